"""Which objects have changed and were not applied yet: the latest of each, and when to try it again.

Filled by the pump's thread, emptied by the syncer's. Holds nothing that a full resync would not find again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slotkeeper.store.schedules import Key

#: Seconds before a key that failed is tried again: doubled from the first to the last, with full jitter.
_FIRST_BACK_OFF, _LAST_BACK_OFF = 0.5, 60.0


@dataclass(frozen=True, slots=True)
class Change:
    """The latest that is known of an object: its ``body``, or None when the one with this ``uid`` is gone."""

    uid: str
    body: Mapping[str, Any] | None
    since: float
    failures: int = 0


class DirtyKeys:
    """``changed`` is called, outside of the lock, whenever a key becomes dirty."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._changes: dict[Key, Change] = {}
        self._not_before: dict[Key, float] = {}

    def mark(self, key: Key, uid: str, body: Mapping[str, Any] | None) -> None:
        """Remembers the latest state of an object; it is due at once."""
        with self._lock:
            earlier = self._changes.get(key)
            since = time.monotonic() if earlier is None else earlier.since
            self._changes[key] = Change(uid, body, since)
            self._not_before.pop(key, None)
        self._changed()

    def take(self, limit: int) -> dict[Key, Change]:
        """Removes and returns up to ``limit`` changes that are due, the longest dirty first."""
        now = time.monotonic()
        with self._lock:
            due = [key for key in self._changes if self._not_before.get(key, 0.0) <= now][:limit]
            for key in due:
                self._not_before.pop(key, None)
            return {key: self._changes.pop(key) for key in due}

    def put_back(self, key: Key, change: Change) -> None:
        """It could not be applied: it is due again after a back-off, unless something newer has come meanwhile."""
        bound = min(_LAST_BACK_OFF, _FIRST_BACK_OFF * 2.0 ** min(change.failures, 10))
        with self._lock:
            if key not in self._changes:
                self._changes[key] = Change(change.uid, change.body, change.since, change.failures + 1)
                self._not_before[key] = time.monotonic() + random.uniform(0, bound)  # noqa: S311

    def clear(self) -> None:
        """Forgets everything: another replica leads, and who becomes the leader begins with a full resync."""
        with self._lock:
            self._changes.clear()
            self._not_before.clear()

    @property
    def oldest_age(self) -> float:
        """Seconds for which the longest dirty key has waited; 0 without one."""
        with self._lock:
            return max((time.monotonic() - change.since for change in self._changes.values()), default=0.0)

    def __len__(self) -> int:
        with self._lock:
            return len(self._changes)

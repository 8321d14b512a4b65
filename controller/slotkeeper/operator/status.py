"""Writes status back: what changed in meaning at once, the next slot soon, figures now and then; never once per run.

Only the leader writes. What the API server has already is not written again. Nothing durable is here: a new leader
reads the objects and the database and knows as much.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import structlog

from slotkeeper.actor import Actor
from slotkeeper.operator.applied import Applied
from slotkeeper.operator.conditions import (
    MEANING,
    NEXT,
    Figures,
    Json,
    figures_of,
    rfc3339,
    status_of,
    status_patch,
)
from slotkeeper.operator.errors import KubernetesError, KubernetesForbidden, KubernetesUnavailable, LeadershipLost
from slotkeeper.operator.events import EventRecorder
from slotkeeper.operator.leadership import Leadership
from slotkeeper.operator.permissions import STATUS, Permission
from slotkeeper.operator.rate import TokenBucket
from slotkeeper.operator.zone_changes import ZoneChanges
from slotkeeper.store import schedules
from slotkeeper.store.connection import Session
from slotkeeper.store.schedules import Key, StoredSchedule

if TYPE_CHECKING:
    from slotkeeper.operator.kubernetes_gateway import KubernetesGateway, Object

_log = structlog.stdlib.get_logger()

#: Writes a second of what changed in meaning (conditions, generations): only so many that the API server is not
#: flooded.
URGENT_RATE, URGENT_BURST = 100.0, 200.0
#: Writes a second of everything else, over all objects.
RATE, BURST = 10.0, 50.0
#: Seconds between writes of one object for its figures alone.
FIGURES_SECONDS = 60.0
#: A queue is told to have no worker when nobody has served it for so long (seconds): a restart of all workers, or the
#: first start of a scaled one, takes less.
NO_WORKER_SECONDS = 120
#: Seconds between reads of the database, at least; and so many times as long as the last one took.
READ_SECONDS, READ_SHARE = 2.0, 20.0
_WRITERS = 4
#: Writes between two looks at whether we still lead.
_PART = 20
_IDLE_SECONDS = 1.0
#: While some wait for the rate: each look costs as much as there are objects that wait.
WAITING_SECONDS = 0.5


class Urgency(IntEnum):
    """How soon a difference is written."""

    MEANING = 0
    NEXT = 1
    FIGURES = 2


@dataclass(slots=True)
class Record:
    """One object: what came of it, the status it has, its figures, and when it was last written and looked at.

    ``written_at`` and ``checked_at`` are monotonic seconds.
    """

    applied: Applied
    observed: Mapping[str, Any]
    resource_version: int
    figures: Figures | None = None
    written_at: float = float("-inf")
    checked_at: float = float("-inf")


class StatusWriter:
    """The statuses of one cluster's objects. ``update``, ``forget`` and ``clear`` may be called from any thread."""

    def __init__(
        self,
        dsn: str,
        cluster: str,
        gateway: KubernetesGateway,
        leadership: Leadership,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = Session(dsn, "status")
        self._cluster = cluster
        self._gateway = gateway
        self._leadership = leadership
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[Key, Record] = {}
        self._changed: set[Key] = set()
        self._waiting: dict[Key, Urgency] = {}
        self._moment: datetime | None = None
        self._moment_at = self._read_at = float("-inf")
        self._urgent = TokenBucket(URGENT_RATE, URGENT_BURST, clock)
        self._others = TokenBucket(RATE, BURST, clock)
        self._events = EventRecorder(gateway, clock)
        self._zone_changes = ZoneChanges(self._session)
        self._pool = ThreadPoolExecutor(_WRITERS, thread_name_prefix="status")
        self.actor = Actor("status", self.step, close=self.close)
        #: Patches sent since the process began.
        self.writes = 0

    def update(self, applied: Applied, obj: Object) -> bool:
        """What came of ``obj``, and the status that it had then; True when the outcome is news."""
        key = (applied.namespace, applied.name)
        version = _number(obj["metadata"].get("resourceVersion"))
        observed = obj.get("status") or {}
        with self._lock:
            known = self._records.get(key)
            if known is None or known.applied.uid != applied.uid:
                known = self._records[key] = Record(applied, observed, version)
                news = True
            else:
                news = _tells(applied) != _tells(known.applied)
                known.applied = replace(applied, triggered=None)
                if known.figures is not None and applied.effective_time is not None:
                    # What was just stored is newer than what was last read.
                    known.figures = replace(
                        known.figures, next_slot=applied.next_slot, suspended=applied.suspended,
                        held=applied.held, timing_since=applied.effective_time,
                    )  # fmt: skip
                if version >= known.resource_version:
                    # An event that is older than our own last write must not make us write again.
                    known.observed, known.resource_version = observed, version
            self._changed.add(key)
        self.actor.wake()
        return news

    def forget(self, key: Key, uid: str | None = None) -> None:
        """The object is gone or no longer ours; with ``uid``, only if it was this one."""
        with self._lock:
            known = self._records.get(key)
            if known is not None and uid in (None, known.applied.uid):
                del self._records[key]
                self._changed.discard(key)
                self._waiting.pop(key, None)

    def clear(self) -> None:
        """Another replica leads."""
        with self._lock:
            self._records.clear()
            self._changed.clear()
            self._waiting.clear()
            self._read_at = float("-inf")

    def step(self) -> float:
        """Reads what is due, writes what may be written; returns the seconds to wait."""
        if not self._leadership.leads or not self._records:
            return _IDLE_SECONDS
        now = self._clock()
        if now >= self._read_at:
            self._read()
            # A large installation is read less often, so that reading takes a twentieth of the time at most.
            self._read_at = now + max(READ_SECONDS, READ_SHARE * (self._clock() - now))
        try:
            left = self._write_due()
        except LeadershipLost:
            return _IDLE_SECONDS
        return WAITING_SECONDS if left else max(0.0, min(_IDLE_SECONDS, self._read_at - self._clock()))

    def close(self) -> None:
        """Closes the connection; by the actor at its end, or by whoever never started it."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._session.close()

    def _read(self) -> None:
        started = self._clock()
        self._moment, self._moment_at = schedules.clock(self._session), started
        rows = schedules.stored_schedules(self._session, self._cluster)
        health = schedules.health(self._session, self._cluster)
        unserved = schedules.unserved_queues(self._session, NO_WORKER_SECONDS)
        told: list[tuple[Applied, Figures, Figures]] = []
        with self._lock:
            for row in rows:
                record = self._records.get(row.key)
                if record is None or row.key not in health or not _speaks_of(row, record.applied):
                    continue
                queue = None if record.applied.spec is None else record.applied.spec.queue
                figures = figures_of(row, health[row.key], unserved.get((row.namespace, queue or "")))
                # Some conditions change with time alone.
                if figures == record.figures and started - record.checked_at < FIGURES_SECONDS:
                    continue
                if record.figures is not None:
                    told.append((record.applied, record.figures, figures))
                record.figures = figures
                self._changed.add(row.key)
            in_force = [record.applied for record in self._records.values()]
        for applied, before, after in told:
            self._events.tell_outcomes(applied, before.health, after.health)
        self._zone_changes.note(in_force, self._moment)

    def _write_due(self) -> bool:
        """Writes the most urgent differences; True when some had to wait for the rate."""
        with self._lock:
            for key in self._changed:
                self._look_at(key)
            changed = [self._records[key].applied for key in self._changed]
            self._changed.clear()
            due = self._due()
        for applied in changed:
            self._events.tell_refusal(applied)
        self._events.tell_waiting()
        chosen = self._within_rates(due)
        for start in range(0, len(chosen), _PART):
            self._leadership.require()
            self._tell_zone_changes(chosen[start : start + _PART])
            # The list makes the errors of the threads ours.
            list(self._pool.map(self._write, chosen[start : start + _PART]))
        return len(chosen) < len(due)

    def _within_rates(self, due: Sequence[tuple[Urgency, Key]]) -> list[Key]:
        chosen: list[Key] = []
        spent: set[TokenBucket] = set()
        for urgency, key in due:
            bucket = self._urgent if urgency is Urgency.MEANING else self._others
            if bucket in spent:
                continue
            if bucket.take():
                chosen.append(key)
            else:
                spent.add(bucket)
                if len(spent) > 1:
                    break
        return chosen

    def _tell_zone_changes(self, keys: Sequence[Key]) -> None:
        """Before a status says that another release decides, what that moves."""
        with self._lock:
            records = [self._records[key] for key in keys if key in self._records]
            releases = [(record.applied, record.observed.get("timeZoneDataVersion")) for record in records]
        for applied, release in releases:
            sentence = self._zone_changes.told(applied, release, self._now())
            if sentence is not None:
                _log.warning("slots_moved", namespace=applied.namespace, name=applied.name, problem=sentence)
                self._events.tell_zone_change(applied, sentence)

    def _look_at(self, key: Key) -> None:
        record = self._records[key]
        record.checked_at = self._clock()
        urgency = _urgency(self._patch(record))
        if urgency is None:
            self._waiting.pop(key, None)
        else:
            self._waiting[key] = urgency

    def _due(self) -> list[tuple[Urgency, Key]]:
        now, forbidden = self._clock(), bool(self._gateway.permissions.missing)
        due = [
            (urgency, self._records[key].written_at, key)
            for key, urgency in self._waiting.items()
            if (urgency is not Urgency.FIGURES or now - self._records[key].written_at >= FIGURES_SECONDS)
            and not (forbidden and self._is_forbidden(key[0]))
        ]
        # The longest unwritten first among equals, so that a busy minute leaves nobody behind.
        due.sort()
        return [(urgency, key) for urgency, _, key in due]

    def _is_forbidden(self, namespace: str) -> bool:
        return self._gateway.permissions.is_missing(Permission("patch", STATUS, namespace))

    def _patch(self, record: Record) -> Json:
        desired = status_of(record.applied, record.figures, self._now(), record.observed)
        return status_patch(desired, record.observed)

    def _write(self, key: Key) -> None:
        with self._lock:
            record = self._records.get(key)
            patch = {} if record is None else self._patch(record)
            if record is None or not patch:
                self._waiting.pop(key, None)
                return
            if record.figures is not None:
                patch["statisticsTime"] = rfc3339(self._now())
        try:
            patched = self._gateway.patch_status(*key, patch)
        except KubernetesUnavailable:
            raise
        except KubernetesForbidden as error:
            # It waits for the right; a namespace that ends may refuse it for another reason, and will be gone.
            _log.debug("status_forbidden", namespace=key[0], name=key[1], error=str(error))
            with self._lock:
                if not self._is_forbidden(key[0]):
                    self._waiting.pop(key, None)
            return
        except KubernetesError as error:
            # Until something changes, the same patch would be refused again.
            _log.warning("status_refused", namespace=key[0], name=key[1], error=str(error))
            with self._lock:
                self._waiting.pop(key, None)
            return
        self.writes += 1
        if patched is None:
            self.forget(key)
            return
        with self._lock:
            record = self._records.get(key)
            if record is None:
                return
            record.written_at = self._clock()
            version = _number(patched["metadata"].get("resourceVersion"))
            if version >= record.resource_version:
                record.observed, record.resource_version = patched.get("status") or {}, version
            self._waiting.pop(key, None)
            self._changed.add(key)  # it may have changed while the request was under way

    def _now(self) -> datetime:
        """The database's clock, carried on by ours since it was last read."""
        assert self._moment is not None  # noqa: S101 - `step` reads before it looks
        return self._moment + timedelta(seconds=self._clock() - self._moment_at)


def _tells(applied: Applied) -> tuple[object, ...]:
    refusal = None if applied.refusal is None else applied.refusal.message
    return applied.generation, applied.accepted_generation, refusal, applied.suspended, applied.held


def _speaks_of(row: StoredSchedule, applied: Applied) -> bool:
    """Whether a row that was read is at least as new as what was applied."""
    return row.uid == applied.uid and row.generation >= (applied.accepted_generation or 0)


def _urgency(patch: Mapping[str, object]) -> Urgency | None:
    if not patch:
        return None
    if "conditions" in patch or any(name in patch for name in MEANING):
        return Urgency.MEANING
    return Urgency.NEXT if any(name in patch for name in NEXT) else Urgency.FIGURES


def _number(resource_version: object) -> int:
    # Comparable by decree since Kubernetes 1.35, and in fact before; what is no number counts as new.
    return int(resource_version) if isinstance(resource_version, str) and resource_version.isdecimal() else 0

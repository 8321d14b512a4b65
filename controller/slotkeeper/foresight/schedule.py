"""A schedule as it is written or in force: which one, what it says, and when its slots are. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from slotkeeper.spec import JobScheduleSpec
from slotkeeper.timing import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One schedule to look ahead for.

    ``held``: who holds it and why, None when nobody does. ``decided_until``: nothing fires at or before it; None for
    a schedule that is not in force. ``trigger_key`` is the value of the annotation ``slotkeeper.dev/trigger``.
    """

    namespace: str
    name: str
    spec: JobScheduleSpec
    timing: Timing
    trigger_key: str | None = None
    held: str | None = None
    decided_until: datetime | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

"""What came of applying one object: for the log, for status, and for whoever has to try again. Values only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from slotkeeper.operator.accept import Accepted, Refusal
from slotkeeper.spec import Identity, JobScheduleSpec
from slotkeeper.store.schedules import StoredSchedule
from slotkeeper.timing import Timing


class Outcome(StrEnum):
    """What came of one object."""

    STORED = "stored"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    #: Older than what is stored, or no longer there: nothing was done and there is nothing to tell.
    STALE = "stale"
    #: Nothing was done; try again. ``Applied.problem`` says why.
    BUSY = "busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What came of one object, and what is in force for it now.

    ``generation`` is the object's; ``accepted_generation``, ``effective_time`` (from when its timing decides slots),
    ``created_at``, ``spec`` (without a payload where the newest is refused) and ``timing`` are those of the spec in
    force, None without one. ``triggered``: the key for which a manual run was made just now.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    outcome: Outcome
    refusal: Refusal | None = None
    accepted_generation: int | None = None
    effective_time: datetime | None = None
    created_at: datetime | None = None
    next_slot: datetime | None = None
    suspended: bool = False
    held: bool = False
    spec: JobScheduleSpec | None = None
    timing: Timing | None = None
    triggered: str | None = None
    problem: str | None = None

    @property
    def resolved_schedule(self) -> str | None:
        """What decides the slots in one line."""
        return None if self.timing is None else self.timing.timetable.resolved


def nothing_done(
    identity: Identity, outcome: Outcome, *, refusal: Refusal | None = None, problem: str | None = None
) -> Applied:
    """An object for which nothing was stored."""
    return Applied(
        namespace=identity.namespace,
        name=identity.name,
        uid=identity.uid,
        generation=identity.generation,
        outcome=outcome,
        refusal=refusal,
        problem=problem,
    )


def newly_stored(verdict: Accepted, since: datetime, effective_time: datetime, row: StoredSchedule | None) -> Applied:
    """An object that was stored. Its slots begin after ``since``; ``row`` is what was stored before."""
    schedule = verdict.schedule
    held = row is not None and row.held
    return Applied(
        namespace=schedule.namespace,
        name=schedule.name,
        uid=schedule.uid,
        generation=schedule.generation,
        outcome=Outcome.STORED,
        accepted_generation=schedule.generation,
        effective_time=effective_time,
        created_at=since if row is None else row.created_at,
        next_slot=None if held else verdict.next_slot(since),
        suspended=schedule.suspend,
        held=held,
        spec=schedule.spec,
        timing=verdict.timing,
    )


def in_force(outcome: Outcome, row: StoredSchedule, verdict: Accepted) -> Applied:
    """An object that is stored already, as ``row``."""
    stored = newly_stored(verdict, row.watermark, row.timing_since, row)
    return replace(stored, outcome=outcome, next_slot=None if row.held else row.next_slot)

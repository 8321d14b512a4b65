"""What becomes of the slots of one stored schedule: for the ticker when they fall due, for the operator before an edit.

Pure: from what the database said (watermark, its clock, the version's spec) to what is to be stored. One rule
for both, so that no due slot vanishes because an edit came first.
"""

from __future__ import annotations

from datetime import datetime

from slotkeeper.spec import parse_spec
from slotkeeper.store.ticker import DecidedSchedule, DueSchedule
from slotkeeper.store.versions import StoredVersion
from slotkeeper.timing import Timing, timing


def timing_of_version(stored: StoredVersion) -> Timing:
    """The timing of a stored version."""
    return timing(stored.namespace, stored.name, parse_spec(stored.spec))


def decide_due(schedule: DueSchedule, timing: Timing) -> DecidedSchedule:
    """The slots in (watermark, moment − offset]: those whose due time has come."""
    return _decided(schedule, timing, until=max(schedule.watermark, schedule.moment - timing.offset))


def decide_before_edit(schedule: DueSchedule, timing: Timing) -> DecidedSchedule:
    """Every slot in (watermark, moment] under the spec that an edit replaces, exactly as the ticker would.

    A slot that has come but, for its spread, is not yet due becomes a run at its old due time.
    """
    due_until = max(schedule.watermark, schedule.moment - timing.offset)
    decided = _decided(schedule, timing, until=due_until)
    return DecidedSchedule(
        id=decided.id,
        version=decided.version,
        watermark=decided.watermark,
        until=max(schedule.watermark, schedule.moment),
        next_slot=None,
        next_due=None,
        plan=decided.plan,
        exempt=timing.still_to_come(after=due_until, until=schedule.moment),
    )


def _decided(schedule: DueSchedule, timing: Timing, *, until: datetime) -> DecidedSchedule:
    next_slot = timing.next_slot(until)
    return DecidedSchedule(
        id=schedule.id,
        version=schedule.version,
        watermark=schedule.watermark,
        until=until,
        next_slot=next_slot,
        next_due=timing.due_time(next_slot),
        plan=timing.decide(after=schedule.watermark, until=until, now=schedule.moment),
    )

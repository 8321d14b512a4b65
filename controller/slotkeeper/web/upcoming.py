"""What a stored spec says of time, for a person: its rule in one line, and the next slots with the clock's changes.

Pure; the slots are those of the timetable, never worked out here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from slotkeeper.errors import InvalidField
from slotkeeper.spec import JobScheduleSpec, parse_spec
from slotkeeper.store.web import DashboardSchedule
from slotkeeper.timetable import Timetable
from slotkeeper.timing import timetable
from slotkeeper.web.wording import duration, offset


@dataclass(frozen=True, slots=True)
class UpcomingSlot:
    """A slot to come; ``local`` is the same instant in the schedule's zone, ``note`` a change of the clock."""

    slot: datetime
    local: datetime
    note: str | None


@dataclass(frozen=True, slots=True)
class Rule:
    """What a schedule says of time. Without a timetable: this build cannot read its spec, and ``text`` says so."""

    spec: JobScheduleSpec | None
    timetable: Timetable | None
    text: str
    zone: str

    def upcoming(self, first: datetime | None, count: int, now: datetime) -> list[UpcomingSlot]:
        """``first``, the slot that is stored as the next one, and those that follow, ``count`` in all."""
        if first is None or self.timetable is None:
            return []
        slots = [first]
        while len(slots) < count and (following := self.timetable.next(slots[-1])) is not None:
            slots.append(following)
        there = [self.timetable.local(instant) for instant in (min(now, first), *slots)]
        notes = [
            "; ".join(filter(None, (self.timetable.note(slot), _clock_change(before, after)))) or None
            for slot, (before, after) in zip(slots, pairwise(there), strict=True)
        ]
        return [UpcomingSlot(*row) for row in zip(slots, there[1:], notes, strict=True)]


def rule_of(schedule: DashboardSchedule) -> Rule:
    """The rule of a stored schedule."""
    zone = schedule.spec.get("timeZone")
    named = zone if isinstance(zone, str) else "Etc/UTC"
    try:
        # The action is not read for the dashboard, but a spec needs one; its name stands in.
        spec = parse_spec({**schedule.spec, "task": schedule.type})
        slots = timetable(spec)
    except InvalidField:
        return Rule(None, None, "not readable by this version", named)
    return Rule(spec, slots, slots.resolved, spec.time_zone)


def _clock_change(before: datetime, after: datetime) -> str | None:
    ours, theirs = before.utcoffset(), after.utcoffset()
    if ours is None or theirs is None or ours == theirs:
        return None
    way = "forward" if theirs > ours else "back"
    return f"the clock went {way} by {duration(abs(theirs - ours))}: {offset(before)} to {offset(after)}"

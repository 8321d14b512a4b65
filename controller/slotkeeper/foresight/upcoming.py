"""The next slots of one schedule, or why there are none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Literal

from slotkeeper.foresight.schedule import Schedule
from slotkeeper.foresight.wording import duration, offset, rfc3339
from slotkeeper.timetable import load_zone, parse_expression
from slotkeeper.timing import Timing

#: The finest step of datetime: turns "at or after" into "after".
_INSTANT = timedelta(microseconds=1)

StandstillReason = Literal["Suspended", "Held", "NeverFires", "Completed"]


@dataclass(frozen=True, slots=True)
class UpcomingSlot:
    """A slot to come. ``due``: when its run falls due, later than the slot by the schedule's spread. ``local``: the
    same instant as ``slot`` on the clock that was asked for. ``note``: what a change of the clock does to it.
    """

    slot: datetime
    due: datetime
    local: datetime
    note: str | None


@dataclass(frozen=True, slots=True)
class Standstill:
    """Why there are no slots; ``reason`` is that of the object's condition Ready."""

    reason: StandstillReason
    message: str


@dataclass(frozen=True, slots=True)
class Upcoming:
    """The slots to come, and why there are none. ``is_last``: none follows the last of them."""

    slots: tuple[UpcomingSlot, ...]
    standstill: Standstill | None = None
    is_last: bool = False


def first_instant(schedule: Schedule, now: datetime) -> datetime:
    """From when slots are still to come: now, or, of a schedule in force, as early as its spread lets them be due."""
    if schedule.decided_until is None:
        return now
    return max(min(now, schedule.decided_until + _INSTANT), now - schedule.timing.offset)


def upcoming(schedule: Schedule, *, begin: datetime, count: int, zone: str | None = None) -> Upcoming:
    """The first ``count`` slots at or after ``begin``, on the clock of ``zone`` or else the schedule's own.

    Raises UnknownTimeZone for a zone that there is not.
    """
    after = begin - _INSTANT
    standstill = _standstill(schedule, after)
    if standstill is not None:
        return Upcoming((), standstill)
    timetable = schedule.timing.timetable
    slots: list[datetime] = []
    last = after
    while len(slots) < count and (following := timetable.next(last)) is not None:
        slots.append(following)
        last = following
    shown = shown_slots(schedule.timing, slots, before=after, zone=zone)
    return Upcoming(shown, is_last=timetable.next(last) is None)


def shown_slots(
    timing: Timing, slots: list[datetime], *, before: datetime, zone: str | None
) -> tuple[UpcomingSlot, ...]:
    """``slots``, ascending, as people read them; ``before`` is the instant from which the clock is watched."""
    name = zone or timing.timetable.zone
    clock = load_zone(name, "--zone")
    shown = []
    for slot in slots:
        note = timing.timetable.note(slot) if name == timing.timetable.zone else None
        if note is None:
            # The timetable tells of slots that a change touches; a clock that has changed is worth a word, too.
            changed = _clock_change(before, slot, clock, name)
            note = "; ".join(text for text in (timing.timetable.note(slot), changed) if text) or None
        shown.append(UpcomingSlot(slot, slot + timing.offset, slot.astimezone(clock), note))
        before = slot
    return tuple(shown)


def remarks(schedule: Schedule) -> list[str]:
    """What people misread in its expressions: two day fields of which one is enough."""
    said = []
    for text in schedule.spec.cron or ():
        expression = parse_expression(text)
        if expression.either_day:
            _, _, days, _, weekdays = expression.text.split(" ")
            said.append(f"{expression.text!r}: on day-of-month {days} OR on day-of-week {weekdays}, either is enough")
    return said


def _standstill(schedule: Schedule, after: datetime) -> Standstill | None:
    timetable = schedule.timing.timetable
    following = timetable.next(after)
    if following is None:
        last = timetable.previous(after)
        if last is not None:
            return Standstill("Completed", f"its last slot was {rfc3339(last)}")
        return Standstill("NeverFires", "no instant matches: it runs only when it is triggered")
    would = f"; the first would be {rfc3339(following)}"
    if schedule.timing.suspended:
        return Standstill("Suspended", f"spec.suspend is true: there are no slots{would}")
    if schedule.held is not None:
        return Standstill("Held", f"{schedule.held}{would}")
    return None


def _clock_change(before: datetime, slot: datetime, clock: tzinfo, name: str) -> str | None:
    then, there = before.astimezone(clock), slot.astimezone(clock)
    earlier, later = then.utcoffset(), there.utcoffset()
    if earlier is None or later is None or earlier == later:
        return None
    way = "forward" if later > earlier else "back"
    return f"the clock of {name} went {way} by {duration(abs(later - earlier))}: {offset(then)} to {offset(there)}"

"""Many schedules whose runs fall due in the same minute: what one schedule alone cannot show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from slotkeeper.foresight.finding import Finding, Level, ahead
from slotkeeper.foresight.schedule import Schedule
from slotkeeper.foresight.wording import rfc3339

#: So many schedules are a crowd.
CROWD = 5
#: How far ahead is looked, and over how many slots of each schedule.
_HORIZON = timedelta(days=35)
_SLOTS = 1500
#: More slots in an hour than this are a steady load, which no spread makes less.
_HOUR, _OFTEN = timedelta(hours=1), 12
_NAMED = 5


def crowds(schedules: Sequence[Schedule], now: datetime) -> list[tuple[Schedule, Finding]]:
    """The largest crowds, one finding each, told at the first of its schedules; no schedule is told of twice."""
    minutes: dict[datetime, list[int]] = defaultdict(list)
    for number, schedule in enumerate(schedules):
        for minute in _minutes(schedule, now):
            minutes[minute].append(number)
    told: set[int] = set()
    found = []
    for minute, members in sorted(minutes.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        if len(members) < CROWD:
            break
        if told.isdisjoint(members):
            told.update(members)
            found.append((schedules[members[0]], _finding(minute, [schedules[number] for number in members])))
    return found


def _minutes(schedule: Schedule, now: datetime) -> set[datetime]:
    """None of a schedule that is spread already, or that is so frequent that it meets everybody."""
    timetable = schedule.timing.timetable
    if schedule.timing.suspended or schedule.spec.spread_seconds:
        return set()
    if timetable.count(now, ahead(now, _HOUR)) > _OFTEN:
        return set()
    return {slot.replace(second=0) for slot in timetable.window(now, ahead(now, _HORIZON), limit=_SLOTS)}


def _finding(minute: datetime, members: Sequence[Schedule]) -> Finding:
    names = ", ".join(str(schedule) for schedule in members[:_NAMED])
    more = f" and {len(members) - _NAMED} more" if len(members) > _NAMED else ""
    return Finding(
        Level.WARNING, "ManyAtOneMinute", "spec.spreadSeconds",
        f"{len(members)} schedules fall due in the minute {rfc3339(minute)}: {names}{more}; write spreadSeconds, which "
        "spreads them by a fixed share of it, or name other minutes",
    )  # fmt: skip

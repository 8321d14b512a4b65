"""What a warning is made of, and what every rule may look at. No rule is here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from slotkeeper.foresight.schedule import Schedule
from slotkeeper.timetable import Timetable

#: How far ahead intervals are measured, and over how many slots at most.
_HORIZON = timedelta(days=731)
_SLOTS = 400
#: For the longest pause, at least so far: the pause may be a night, a weekend, or most of a month.
_WHOLE_MONTH = timedelta(days=32)


class Level(StrEnum):
    """How bad it is: a warning probably is not what was meant; a note is worth knowing."""

    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing worth saying about a schedule. ``field`` is a path such as ``spec.cron[1]``."""

    level: Level
    code: str
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Interval:
    """Two neighbouring slots."""

    first: datetime
    second: datetime

    @property
    def length(self) -> timedelta:
        """The time from one to the other."""
        return self.second - self.first

    @property
    def seconds(self) -> int:
        """The same in whole seconds."""
        return int(self.length.total_seconds())


@dataclass(frozen=True, slots=True)
class Look:
    """A schedule at the instant ``now``, with the shortest interval of its slots to come; None with fewer than two."""

    schedule: Schedule
    now: datetime
    shortest: Interval | None

    @property
    def timetable(self) -> Timetable:
        """When its slots are, suspended or not."""
        return self.schedule.timing.timetable

    def longest(self) -> Interval | None:
        """The longest interval of two years, of at most 400 slots or those of 32 days; None with fewer than two."""
        slots = _slots(self.timetable, self.now)
        whole_month = ahead(self.now, _WHOLE_MONTH)
        if len(slots) == _SLOTS and slots[-1] < whole_month and self.schedule.spec.every is None:
            slots = self.timetable.window(self.now, whole_month)
        return max(_intervals(slots), key=lambda interval: interval.length, default=None)


def look_at(schedule: Schedule, now: datetime) -> Look:
    """Measures the intervals of two years, of at most 400 slots."""
    intervals = _intervals(_slots(schedule.timing.timetable, now))
    return Look(schedule, now, min(intervals, key=lambda interval: interval.length, default=None))


def _slots(timetable: Timetable, now: datetime) -> list[datetime]:
    return timetable.window(now, ahead(now, _HORIZON), limit=_SLOTS)


def _intervals(slots: list[datetime]) -> list[Interval]:
    return [Interval(*pair) for pair in pairwise(slots)]


def ahead(now: datetime, length: timedelta) -> datetime:
    """``now`` and ``length`` later, or the last instant that there is."""
    try:
        return now + length
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)

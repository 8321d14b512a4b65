"""Which minutes of a wall clock a set of expressions names, as if no clock ever jumped.

A *wall* minute counts from 1970-01-01T00:00 on the clock in question. Pure calendar: months and weekdays,
found month by month, so that a minutely expression costs no more than a yearly one. Not for zones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from typing import NamedTuple

from slotkeeper.timetable.expression import CronExpression
from slotkeeper.timetable.zone_offsets import MINUTES_PER_DAY

# How far a search goes before it says "never" (in minutes). The longest wait that five fields can ask for is
# eight years, for 29 February across 2100; 41 would also find one on a given weekday across 2100 (40 years),
# and an expression that never fires still costs a fraction of a millisecond only.
_HORIZON = 41 * 366 * MINUTES_PER_DAY

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()


class _Month(NamedTuple):
    first: int  # day number (since 1970-01-01) of its first day
    length: int
    kind: tuple[int, int, int]  # month, length, weekday of the first (Sunday is 0): all that cron looks at


class _MonthSlots(NamedTuple):
    """What the expressions name in one kind of month; a day index is the day of the month minus one."""

    minutes: tuple[tuple[int, ...], ...]  # per day index: minutes of the day, ascending
    days: tuple[int, ...]  # day indexes with at least one minute, ascending
    up_to: tuple[int, ...]  # per day index and one more: how many minutes all earlier days have


@lru_cache(maxsize=16384)
def _month_of(day: int) -> _Month:
    first = date.fromordinal(_EPOCH_ORDINAL + day).replace(day=1)
    next_month = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    length = (next_month - first).days
    number = first.toordinal() - _EPOCH_ORDINAL
    return _Month(number, length, (first.month, length, first.isoweekday() % 7))


class WallCalendar:
    """The union of the expressions' minutes. Two expressions on one minute are one minute.

    Limits such as ``last`` are inclusive wall minutes; ranges are half-open.
    """

    def __init__(self, expressions: tuple[CronExpression, ...]) -> None:
        self._expressions = expressions
        self._months: dict[tuple[int, int, int], _MonthSlots] = {}

    def on_or_after(self, wall: int, last: int) -> int | None:
        """The first named minute at or after ``wall``; None if there is none up to ``last``, or for 41 years.

        It may return a minute up to a month beyond ``last``: limits are checked by the month.
        """
        day, minute = divmod(wall, MINUTES_PER_DAY)
        first_day, length, kind = _month_of(day)
        slots = self._months.get(kind) or self._slots(kind)
        index = day - first_day
        minutes = slots.minutes[index]
        if minutes and minute <= minutes[-1]:
            return wall - minute + minutes[bisect_left(minutes, minute)]
        last = min(last, wall + _HORIZON)
        index += 1
        while True:
            position = bisect_left(slots.days, index)
            if position < len(slots.days):
                index = slots.days[position]
                return (first_day + index) * MINUTES_PER_DAY + slots.minutes[index][0]
            if (first_day + length) * MINUTES_PER_DAY > last:
                return None
            first_day, length, kind = _month_of(first_day + length)
            slots = self._months.get(kind) or self._slots(kind)
            index = 0

    def on_or_before(self, wall: int, first: int) -> int | None:
        """The mirror image of `on_or_after`: the last named minute at or before ``wall``."""
        day, minute = divmod(wall, MINUTES_PER_DAY)
        first_day, _, kind = _month_of(day)
        slots = self._months.get(kind) or self._slots(kind)
        index = day - first_day
        minutes = slots.minutes[index]
        if minutes and minute >= minutes[0]:
            return day * MINUTES_PER_DAY + minutes[bisect_right(minutes, minute) - 1]
        first = max(first, wall - _HORIZON)
        while True:
            position = bisect_left(slots.days, index)
            if position > 0:
                index = slots.days[position - 1]
                return (first_day + index) * MINUTES_PER_DAY + slots.minutes[index][-1]
            if first_day * MINUTES_PER_DAY <= first:
                return None
            first_day, length, kind = _month_of(first_day - 1)
            slots = self._months.get(kind) or self._slots(kind)
            index = length

    def count(self, begin: int, end: int) -> int:
        """How many named minutes lie in ``begin <= wall < end``; costs by the month, not by the minute."""
        if begin >= end:
            return 0
        total = 0
        day = begin // MINUTES_PER_DAY
        while day * MINUTES_PER_DAY < end:
            month = _month_of(day)
            total += self._slots(month.kind).up_to[-1]
            day = month.first + month.length
        return total - self._count_in_month_before(begin) - self._count_in_month_from(end - 1)

    def ascending(self, begin: int, end: int) -> Iterator[int]:
        """The named minutes in ``begin <= wall < end``, oldest first."""
        wall = self.on_or_after(begin, end)
        while wall is not None and wall < end:
            day, from_minute = divmod(wall, MINUTES_PER_DAY)
            minutes = self._minutes_of(day)
            midnight = day * MINUTES_PER_DAY
            for minute in minutes[bisect_left(minutes, from_minute) :]:
                if midnight + minute >= end:
                    return
                yield midnight + minute
            wall = self.on_or_after(midnight + MINUTES_PER_DAY, end)

    def descending(self, begin: int, end: int) -> Iterator[int]:
        """The same minutes, newest first."""
        wall = self.on_or_before(end - 1, begin)
        while wall is not None and wall >= begin:
            day, to_minute = divmod(wall, MINUTES_PER_DAY)
            minutes = self._minutes_of(day)
            midnight = day * MINUTES_PER_DAY
            for minute in reversed(minutes[: bisect_right(minutes, to_minute)]):
                if midnight + minute < begin:
                    return
                yield midnight + minute
            wall = self.on_or_before(midnight - 1, begin)

    def _minutes_of(self, day: int) -> tuple[int, ...]:
        month = _month_of(day)
        return self._slots(month.kind).minutes[day - month.first]

    def _count_in_month_before(self, wall: int) -> int:
        day, minute = divmod(wall, MINUTES_PER_DAY)
        month = _month_of(day)
        slots = self._slots(month.kind)
        index = day - month.first
        return slots.up_to[index] + bisect_left(slots.minutes[index], minute)

    def _count_in_month_from(self, wall: int) -> int:
        """How many named minutes the month of ``wall`` has after it."""
        day, minute = divmod(wall, MINUTES_PER_DAY)
        month = _month_of(day)
        slots = self._slots(month.kind)
        index = day - month.first
        return slots.up_to[-1] - slots.up_to[index] - bisect_right(slots.minutes[index], minute)

    def _slots(self, kind: tuple[int, int, int]) -> _MonthSlots:
        slots = self._months.get(kind)
        if slots is None:
            slots = self._work_out(*kind)
            # Most months of most schedules are alike (or empty), and a fleet keeps thousands of calendars.
            slots = self._months[kind] = next((other for other in self._months.values() if other == slots), slots)
        return slots

    def _work_out(self, month: int, length: int, first_weekday: int) -> _MonthSlots:
        minutes = []
        up_to = [0]
        for index in range(length):
            weekday = (first_weekday + index) % 7
            named = [e for e in self._expressions if e.names_date(month, index + 1, weekday)]
            if len(named) <= 1:
                minutes.append(named[0].minutes_of_day if named else ())
            else:
                minutes.append(tuple(sorted(set().union(*(e.minutes_of_day for e in named)))))
            up_to.append(up_to[-1] + len(minutes[-1]))
        days = tuple(index for index in range(length) if minutes[index])
        return _MonthSlots(tuple(minutes), days, tuple(up_to))


@lru_cache(maxsize=8192)
def wall_calendar(expressions: tuple[CronExpression, ...]) -> WallCalendar:
    """Return the shared calendar of these expressions: a fleet of schedules has few distinct texts."""
    return WallCalendar(expressions)

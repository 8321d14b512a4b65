"""Slots from cron expressions in a zone: what happens when the clock jumps.

An expression whose hour field starts with ``*`` follows elapsed time: it fires whenever the clock shows a
minute that it names. Any other names wall times, and each of them is one slot; two settings say what
becomes of a time that the clock skips and of one that it shows twice. The expressions' own minutes are
`wall_calendar`, the jumps are `zone_offsets`; here the two meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from slotkeeper.errors import InvalidField
from slotkeeper.timetable.clock_changes import ClockNotes, next_changes
from slotkeeper.timetable.expression import CronExpression, parse_expression
from slotkeeper.timetable.timetable import ClockChange, Timetable, whole_seconds
from slotkeeper.timetable.wall_calendar import WallCalendar, wall_calendar
from slotkeeper.timetable.zone_offsets import MINUTES_PER_DAY, Stretch, ZoneOffsets, zone_offsets
from slotkeeper.timetable.zone_rules import KeptOffsets, ZoneRules

# Clocks of one zone never differ by more than this, even across a move of the date line.
_WIDEST_JUMP = 2 * MINUTES_PER_DAY


class SkippedTime(StrEnum):
    """What becomes of a named time that the clock skips: the first instant after the gap, or no slot."""

    RUN_AFTER = "RunAfter"
    SKIP = "Skip"


class RepeatedTime(StrEnum):
    """What becomes of a named time that the clock shows twice: the first pass, or both."""

    RUN_ONCE = "RunOnce"
    RUN_TWICE = "RunTwice"


class _Span(NamedTuple):
    """The slots of ``calendar`` in ``begin <= wall < end``, at ``wall - offset``."""

    calendar: WallCalendar
    begin: int
    end: int
    offset: int


class _Part(NamedTuple):
    """What one stretch of constant offset contributes: a slot made up for at its start, if any, and spans."""

    made_up: int | None
    spans: tuple[_Span, ...]


class _CronTimetable(Timetable):
    def __init__(
        self,
        expressions: tuple[CronExpression, ...],
        zone: str,
        skipped_time: SkippedTime,
        repeated_time: RepeatedTime,
        bounds: tuple[datetime | None, datetime | None],
    ) -> None:
        super().__init__(zone, *bounds)
        self._expressions = expressions
        self._offsets: ZoneOffsets = zone_offsets(zone)
        fixed = tuple(e for e in expressions if not e.follows_clock)
        following = tuple(e for e in expressions if e.follows_clock)
        self._named = wall_calendar(expressions)
        # Which expressions fire in the second pass of an overlap, and which are made up for after a gap.
        self._repeated = self._named if repeated_time is RepeatedTime.RUN_TWICE else wall_calendar(following)
        self._made_up = wall_calendar(fixed if skipped_time is SkippedTime.RUN_AFTER else ())

    def under(self, rules: ZoneRules) -> Timetable:
        other = copy(self)
        other._offsets = KeptOffsets(rules)
        return other

    @property
    def resolved(self) -> str:
        return ";".join(expression.text for expression in self._expressions)

    @property
    def differs_from_vixie_cron(self) -> str | None:
        sentences = [e.differs_from_vixie_cron for e in self._expressions if e.differs_from_vixie_cron]
        return "; ".join(sentences) or None

    def clock_changes(self, after: datetime, count: int = 2) -> list[ClockChange]:
        first = max(whole_seconds(after) + 1, self._first)
        return next_changes(self._notes(), -(-first // 60), self._last // 60, count)

    def note(self, slot: datetime) -> str | None:
        second = whole_seconds(slot)
        if slot.microsecond or not self._first <= second <= self._last or self._first_from(second, second) is None:
            return None
        previous = self._last_to(self._first, second - 1)
        return self._notes().note(second // 60, None if previous is None else previous // 60)

    def _notes(self) -> ClockNotes:
        return ClockNotes(self._zone_name, self._offsets, self._named, self._repeated, self._made_up)

    def _first_from(self, first: int, last: int) -> int | None:
        minute, last_minute = -(-first // 60), last // 60
        while minute <= last_minute:
            stretch = self._offsets.stretch_at(minute)
            start, end, offset, fresh, _ = stretch
            if minute == start and self._is_made_up(stretch):
                return minute * 60
            wall = minute + offset
            if wall < fresh:
                again = self._repeated.on_or_after(wall, fresh)
                if again is not None and again < min(fresh, end + offset):
                    slot = again - offset
                    return slot * 60 if slot <= last_minute else None
                wall = fresh
            found = self._named.on_or_after(wall, last_minute + _WIDEST_JUMP)
            if found is not None:
                slot = found - offset
                if slot < end:
                    return slot * 60 if slot <= last_minute else None
            if end - minute <= _WIDEST_JUMP:
                minute = end  # the next stretch may repeat wall times from before this minute
            elif found is None:
                return None
            else:
                # Nothing before that wall time: go on where it may be, at the earliest in the next stretch.
                minute = max(end, slot - _WIDEST_JUMP)
        return None

    def _last_to(self, first: int, last: int) -> int | None:
        minute, first_minute = last // 60, -(-first // 60)
        while minute >= first_minute:
            stretch = self._offsets.stretch_at(minute)
            offset = stretch.offset
            wall = minute + offset
            found = self._named.on_or_before(wall, first_minute - _WIDEST_JUMP)
            if found is not None and found >= stretch.fresh:
                slot = found - offset
                return slot * 60 if slot >= first_minute else None
            again = self._repeated.on_or_before(min(wall, stretch.fresh - 1), stretch.start + offset)
            if again is not None and again >= stretch.start + offset:
                slot = again - offset
                return slot * 60 if slot >= first_minute else None
            if stretch.start >= first_minute and self._is_made_up(stretch):
                return stretch.start * 60
            if minute - stretch.start < _WIDEST_JUMP:
                minute = stretch.start - 1  # the stretch before may have shown wall times from after this minute
            elif found is None:
                return None
            else:
                minute = min(stretch.start - 1, found - offset + _WIDEST_JUMP)
        return None

    def _count(self, first: int, last: int) -> int:
        return sum(
            (part.made_up is not None) + sum(span.calendar.count(span.begin, span.end) for span in part.spans)
            for part in self._parts(first, last)
        )

    def _ascending(self, first: int, last: int) -> Iterator[int]:
        for part in self._parts(first, last):
            if part.made_up is not None:
                yield part.made_up * 60
            for calendar, begin, end, offset in part.spans:
                for wall in calendar.ascending(begin, end):
                    yield (wall - offset) * 60

    def _descending(self, first: int, last: int) -> Iterator[int]:
        for part in self._parts_descending(first, last):
            for calendar, begin, end, offset in reversed(part.spans):
                for wall in calendar.descending(begin, end):
                    yield (wall - offset) * 60
            if part.made_up is not None:
                yield part.made_up * 60

    def _parts(self, first: int, last: int) -> Iterator[_Part]:
        minute, last_minute = -(-first // 60), last // 60
        while minute <= last_minute:
            stretch = self._offsets.stretch_at(minute)
            yield self._part(stretch, minute, min(last_minute + 1, stretch.end))
            minute = stretch.end

    def _parts_descending(self, first: int, last: int) -> Iterator[_Part]:
        first_minute, minute = -(-first // 60), last // 60
        while minute >= first_minute:
            stretch = self._offsets.stretch_at(minute)
            yield self._part(stretch, max(first_minute, stretch.start), minute + 1)
            minute = stretch.start - 1

    def _part(self, stretch: Stretch, begin: int, end: int) -> _Part:
        """What ``begin <= minute < end``, all inside this stretch, contributes."""
        offset = stretch.offset
        wall_begin, wall_end = begin + offset, end + offset
        made_up = None
        if begin == stretch.start and self._is_made_up(stretch):
            # The first minute after a gap may be named itself: still one slot.
            made_up, wall_begin = begin, wall_begin + 1
        spans = []
        if wall_begin < stretch.fresh:
            spans.append(_Span(self._repeated, wall_begin, min(stretch.fresh, wall_end), offset))
        if stretch.fresh < wall_end:
            spans.append(_Span(self._named, max(wall_begin, stretch.fresh), wall_end, offset))
        return _Part(made_up, tuple(spans))

    def _is_made_up(self, stretch: Stretch) -> bool:
        """Whether the clock, jumping to the start of this stretch, skipped a time to be made up for."""
        skipped_to = stretch.start + stretch.offset
        if stretch.skipped_from == skipped_to:
            return False
        wall = self._made_up.on_or_after(stretch.skipped_from, skipped_to)
        return wall is not None and wall < skipped_to


def cron_timetable(
    expressions: Sequence[str],
    zone: str = "Etc/UTC",
    *,
    skipped_time: SkippedTime = SkippedTime.RUN_AFTER,
    repeated_time: RepeatedTime = RepeatedTime.RUN_ONCE,
    start: datetime | None = None,
    end: datetime | None = None,
) -> Timetable:
    """The union of several cron expressions in one zone; slots are whole minutes of UTC, in [start, end).

    Each expression is classed alone: the two settings apply to those whose hour field does not start with
    ``*``. Raises `InvalidField` (``spec.cron[1]``) and `UnknownTimeZone`.
    """
    if isinstance(expressions, str) or not expressions:
        raise InvalidField("spec.cron", f"{expressions!r} is no list of expressions", instead="write a list")
    parsed = tuple(parse_expression(text, f"spec.cron[{k}]") for k, text in enumerate(expressions))
    return _CronTimetable(parsed, zone, SkippedTime(skipped_time), RepeatedTime(repeated_time), (start, end))

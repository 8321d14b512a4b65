"""What a change of the clock does to a schedule, in words: which of its times are skipped, moved or doubled.

Only tells; the slots themselves are `cron`, and these sentences follow from the same calendars and the same
stretches of the zone. Not for `every` and `at`, which no clock moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from slotkeeper.timetable.timetable import ClockChange, instant_of
from slotkeeper.timetable.wall_calendar import WallCalendar
from slotkeeper.timetable.zone_offsets import MINUTES_PER_DAY, Jump, ZoneOffsets

# Ten years. Rules that the zone has today hold for ever in the tz database; nobody plans by them for longer.
_HORIZON = 3653 * MINUTES_PER_DAY

# So many times are listed in a sentence before it says "and 57 more".
_LISTED = 3

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ClockNotes(NamedTuple):
    """The calendars of a cron timetable in its zone, as `cron` walks them.

    ``named``: every minute that the expressions name. ``repeated``: those that fire again in a second pass.
    ``made_up``: those that a gap moves to its end.
    """

    zone: str
    offsets: ZoneOffsets
    named: WallCalendar
    repeated: WallCalendar
    made_up: WallCalendar

    def changes(self, first: int, last: int) -> Iterator[ClockChange]:
        """The changes at ``first <= minute <= last`` that touch a named time, for at most ten years."""
        for jump in self.offsets.jumps(first - 1, min(last, first + _HORIZON)):
            told = self._effect(jump)
            if told is not None:
                yield ClockChange(
                    at=instant_of(jump.at * 60),
                    zone=self.zone,
                    offset_before=timedelta(minutes=jump.before.offset),
                    offset_after=timedelta(minutes=jump.after.offset),
                    told=f"{instant_of(jump.at * 60):%Y-%m-%d %H:%MZ} {self.zone} {told}",
                )

    def note(self, minute: int, previous: int | None) -> str | None:
        """What to say about the slot at ``minute``, when the slot before it was at ``previous``."""
        stretch = self.offsets.stretch_at(minute)
        wall = minute + stretch.offset
        if wall < stretch.fresh:
            return f"second of two {_clock(wall)}"
        if self._comes_again(minute, wall):
            once = "" if _has(self.repeated, wall) else "; runs once"
            return f"first of two {_clock(wall)}{once}"
        begin = minute - 1 if previous is None else max(previous, minute - _HORIZON)
        notes = [self._note_of_gap(jump, minute) for jump in self.offsets.jumps(begin, minute)]
        return "; ".join(note for note in notes if note) or None

    def _comes_again(self, minute: int, wall: int) -> bool:
        """Whether the clock will show this wall minute, now shown for the first time, once more."""
        return any(wall in jump.repeated for jump in self.offsets.jumps(minute, minute + 2 * MINUTES_PER_DAY))

    def _note_of_gap(self, jump: Jump, minute: int) -> str | None:
        """About the first slot at or after a gap: what it stands for, or what has no slot."""
        moved, lost = self._skipped(jump)
        notes = []
        if moved and minute == jump.at:
            does = "does not exist" if len(moved) == 1 else "do not exist"
            wall = minute + jump.after.offset
            if _has(self.named, wall):
                notes.append(f"{_clock(wall)}, and in place of {_list(moved)}, which {does}")
            else:
                notes.append(f"{_list(moved)} {does}: first instant after the gap")
        if lost:
            does = "does not exist and has" if len(lost) == 1 else "do not exist and have"
            same_day = _date(lost[0]) == _date(minute + self.offsets.stretch_at(minute).offset)
            notes.append(f"{_list(lost, dates=not same_day)} {does} no slot")
        return "; ".join(notes) or None

    def _effect(self, jump: Jump) -> str | None:
        if jump.repeated:
            return self._effect_of_overlap(jump)
        moved, lost = self._skipped(jump)
        clauses = []
        if moved:
            clauses.append(f"{_list(moved)} become{_s(moved)} {_clock(jump.skipped.stop)}")
        if lost:
            whole_day = len(jump.skipped) >= MINUTES_PER_DAY
            clauses.append(f"{_list(lost, dates=whole_day)} {'has' if len(lost) == 1 else 'have'} no slot")
        return f"skips {_stretch_of_clock(jump.skipped, jump.at)}: {'; '.join(clauses)}" if clauses else None

    def _effect_of_overlap(self, jump: Jump) -> str | None:
        walls = list(self.named.ascending(jump.repeated.start, jump.repeated.stop))
        twice = [wall for wall in walls if _has(self.repeated, wall)]
        once = [wall for wall in walls if not _has(self.repeated, wall)]
        clauses = []
        if once:
            clauses.append(f"{_list(once)} run{_s(once)} once, the first time")
        if twice:
            clauses.append(f"{_list(twice)} run{_s(twice)} twice")
        return f"repeats {_stretch_of_clock(jump.repeated, jump.at)}: {'; '.join(clauses)}" if clauses else None

    def _skipped(self, jump: Jump) -> tuple[list[int], list[int]]:
        """The named wall minutes that the jump skips: those made up for at its end, and those that are lost."""
        walls = list(self.named.ascending(jump.skipped.start, jump.skipped.stop))
        moved = [wall for wall in walls if jump.is_made_up_for and _has(self.made_up, wall)]
        return moved, [wall for wall in walls if wall not in set(moved)]


def next_changes(notes: ClockNotes, first: int, last: int, count: int) -> list[ClockChange]:
    """The first ``count`` of `ClockNotes.changes`. A fleet that is asked again and again pays once a day."""
    if first > last:
        return []
    begin = first // MINUTES_PER_DAY * MINUTES_PER_DAY
    # Changes of one zone are days apart (see `zone_offsets`): of one more than asked, one may be over.
    changes = _changes_from(notes, begin, last, count + 1)
    return [change for change in changes if change.at >= instant_of(first * 60)][:count]


@lru_cache(maxsize=4096)
def _changes_from(notes: ClockNotes, first: int, last: int, count: int) -> tuple[ClockChange, ...]:
    return tuple(islice(notes.changes(first, last), count))


def _has(calendar: WallCalendar, wall: int) -> bool:
    return calendar.on_or_after(wall, wall) == wall


def _s(times: list[int]) -> str:
    return "s" if len(times) == 1 else ""


def _list(walls: list[int], *, dates: bool = False) -> str:
    told = ", ".join(_date_and_clock(wall) if dates else _clock(wall) for wall in walls[:_LISTED])
    return told if len(walls) <= _LISTED else f"{told} and {len(walls) - _LISTED} more"


def _stretch_of_clock(walls: range, at: int) -> str:
    """The wall times from the first to the one after the last; with a date where UTC is on another one."""
    if len(walls) >= MINUTES_PER_DAY:
        return f"{_date_and_clock(walls.start)}–{_date_and_clock(walls.stop)}"
    begin = _clock(walls.start) if _date(walls.start) == _date(at) else _date_and_clock(walls.start)
    return f"{begin}–{_clock(walls.stop) if walls.stop % MINUTES_PER_DAY else '24:00'}"


def _clock(wall: int) -> str:
    return f"{_EPOCH + timedelta(minutes=wall):%H:%M}"


def _date(wall: int) -> str:
    return (_EPOCH + timedelta(minutes=wall)).date().isoformat()


def _date_and_clock(wall: int) -> str:
    return f"{_date(wall)} {_clock(wall)}"

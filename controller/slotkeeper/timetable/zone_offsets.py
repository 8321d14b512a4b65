"""A zone as stretches of constant offset: where the clock jumps, what it skips and what it repeats.

Everything is counted in whole minutes since 1970-01-01T00:00, in UTC (a *minute*) or on the zone's clock
(a *wall* minute). Not for dates or expressions: those are `wall_calendar`; not for which policy applies
to a jump: that is `cron`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from slotkeeper.timetable.zone import load_zone

MINUTES_PER_DAY = 1440

# A slot is made up for after a jump of the clock of at most this; more is a change of calendar (a zone
# that moves across the date line), where the day in question simply did not exist.
_LONGEST_GAP = 3 * 60

# About a year: the piece of a zone that is worked out, and kept, at once.
_CHUNK_BITS = 19
_CHUNK = 1 << _CHUNK_BITS

# The offset is looked at once in this time and the jump found by bisection. No two jumps of any zone of
# the tz database are nearer than 6.9 days to each other; a test reads the tables and checks it.
_LOOK_EVERY = 2 * MINUTES_PER_DAY

# How far back a jump can still repeat wall minutes: the largest jumps are a calendar day.
_LOOK_BACK = 2 * _LOOK_EVERY

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Stretch(NamedTuple):
    """The minutes ``start <= minute < end`` in UTC, through which the zone's offset does not change.

    ``wall = minute + offset``. Wall minutes from ``fresh`` on are shown for the first time; those below it
    are a second pass (an overlap). ``skipped_from <= wall < start + offset`` never existed because the
    clock jumped at ``start`` (a gap of up to three hours; empty otherwise).
    """

    start: int
    end: int
    offset: int
    fresh: int
    skipped_from: int


class Jump(NamedTuple):
    """A change of the offset, from the stretch that ends with it to the one that starts with it."""

    before: Stretch
    after: Stretch

    @property
    def at(self) -> int:
        """The first minute of the new offset."""
        return self.after.start

    @property
    def skipped(self) -> range:
        """The wall minutes that the clock never shows because of this jump."""
        shown = max(self.before.fresh, self.before.end + self.before.offset)
        return range(shown, self.after.start + self.after.offset)

    @property
    def repeated(self) -> range:
        """The wall minutes that the clock shows for the second time after this jump."""
        return range(self.after.start + self.after.offset, self.after.fresh)

    @property
    def is_made_up_for(self) -> bool:
        """Whether it is a gap short enough that a time in it may move to its end."""
        return self.after.skipped_from < self.after.start + self.after.offset


class ZoneOffsets:
    """The stretches of one zone, worked out about a year at a time when first asked for.

    Safe to share between threads: the worst that a race does is work out the same year twice.
    """

    def __init__(self, zone: ZoneInfo | None) -> None:
        self._zone = zone
        self._chunks: dict[int, tuple[list[int], list[Stretch]]] = {}

    def stretch_at(self, minute: int) -> Stretch:
        """Return the stretch that holds this minute (UTC, since 1970)."""
        starts, stretches = self._chunks.get(minute >> _CHUNK_BITS) or self._work_out(minute >> _CHUNK_BITS)
        return stretches[bisect_right(starts, minute) - 1]

    def jumps(self, after: int, until: int) -> Iterator[Jump]:
        """The changes of the offset at ``after < minute <= until``, in their order."""
        before = self.stretch_at(after)
        while before.end <= until:
            stretch = self.stretch_at(before.end)
            if stretch.offset != before.offset:
                yield Jump(before, stretch)
            before = stretch

    def _work_out(self, number: int) -> tuple[list[int], list[Stretch]]:
        begin, end = number * _CHUNK, (number + 1) * _CHUNK
        changes = self._changes(begin - _LOOK_BACK, end)
        stretches: list[Stretch] = []
        offset_before = changes[0][1]
        shown = changes[0][0] + offset_before  # wall minutes below this have been shown, or skipped
        for (start, offset), (stop, _) in zip(changes, [*changes[1:], (end, 0)], strict=True):
            wall_start = start + offset
            gap = 0 < offset - offset_before <= _LONGEST_GAP
            skipped_from = min(shown, wall_start) if gap else wall_start
            fresh = max(shown, wall_start)
            if stop > begin:
                inside = max(start, begin)
                # The part of a stretch that was cut off at the chunk's edge has no jump at its start.
                skipped = skipped_from if inside == start else inside + offset
                stretches.append(Stretch(inside, stop, offset, fresh=max(fresh, inside + offset), skipped_from=skipped))
            shown = max(shown, stop + offset)
            offset_before = offset
        chunk = ([stretch.start for stretch in stretches], stretches)
        self._chunks[number] = chunk
        return chunk

    def _changes(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The offset at ``begin``, then each first minute (< end) with a new offset, and that offset."""
        changes = [(begin, self._offset(begin))]
        known = begin
        while known < end - 1:
            ahead = min(known + _LOOK_EVERY, end - 1)
            offset = self._offset(ahead)
            if offset != changes[-1][1]:
                low, high = known, ahead  # the old offset still holds at low, no longer at high
                while high - low > 1:
                    middle = (low + high) // 2
                    if self._offset(middle) == changes[-1][1]:
                        low = middle
                    else:
                        high = middle
                changes.append((high, self._offset(high)))
                ahead = high
            known = ahead
        return changes

    def _offset(self, minute: int) -> int:
        """Minutes that the zone's clock shows more than UTC.

        Old offsets have seconds (Monrovia had -0:44:30 until 1972). Rounded down, a whole minute of UTC is
        a slot when the clock, seconds cut off, shows the minute that the expression names.
        """
        offset = (_EPOCH + timedelta(minutes=minute)).astimezone(self._zone).utcoffset()
        return 0 if offset is None else offset // timedelta(minutes=1)


@lru_cache(maxsize=1024)
def zone_offsets(name: str) -> ZoneOffsets:
    """Return the shared offsets of a zone; raises `UnknownTimeZone`."""
    return ZoneOffsets(load_zone(name))

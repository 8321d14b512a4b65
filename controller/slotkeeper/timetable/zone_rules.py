"""The offsets of a zone over the next years as values that can be kept, and what another release changes of a schedule.

A new release of the tz database may move slots that lie ahead, because a parliament has changed a law. The package in
use does not know the former rules, so they are kept beside the schedules. Not for finding slots: that is `cron`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from slotkeeper.timetable.zone_offsets import ZoneOffsets, zone_offsets

if TYPE_CHECKING:
    from slotkeeper.timetable.timetable import Timetable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
#: How far ahead rules are kept and compared. Nobody is helped by a warning of more.
YEARS_AHEAD = 5
#: What a change of the clock can do to slots lies within this time of it.
_MARGIN = timedelta(days=2)
#: So many slots around one difference are compared: more than a minutely schedule has within two margins.
_COMPARED = 10_000


@dataclass(frozen=True, slots=True)
class ZoneRules:
    """The offsets of ``zone`` in [since, until): ``changes`` holds the one at ``since``, then each with its instant."""

    zone: str
    since: datetime
    until: datetime
    changes: tuple[tuple[datetime, timedelta], ...]

    def offset_at(self, instant: datetime) -> timedelta:
        """The offset in force at this instant; beyond the two ends that of the nearer end."""
        place = bisect_right(self.changes, instant, key=lambda change: change[0])
        return self.changes[max(place - 1, 0)][1]


@dataclass(frozen=True, slots=True)
class MovedSlots:
    """The first slots that differ: ``was`` by the former rules alone, ``becomes`` by the new ones alone."""

    zone: str
    was: datetime | None
    becomes: datetime | None


class KeptOffsets(ZoneOffsets):
    """A zone by rules that were kept, instead of those in use."""

    def __init__(self, rules: ZoneRules) -> None:
        self._rules = rules
        super().__init__(None)

    def _offset(self, minute: int) -> int:
        return self._rules.offset_at(_EPOCH + minute * _MINUTE) // _MINUTE


def zone_rules(zone: str, since: datetime) -> ZoneRules:
    """The rules of a zone in use now, for the years from ``since``. Raises `UnknownTimeZone`."""
    until = since + timedelta(days=366 * YEARS_AHEAD)
    first, last = (since - _EPOCH) // _MINUTE, (until - _EPOCH) // _MINUTE
    offsets = zone_offsets(zone)
    changes: list[tuple[datetime, timedelta]] = []
    minute = first
    while minute < last:
        stretch = offsets.stretch_at(minute)
        offset = stretch.offset * _MINUTE
        if not changes or changes[-1][1] != offset:
            changes.append((_EPOCH + minute * _MINUTE, offset))
        minute = stretch.end
    return ZoneRules(zone, since, until, tuple(changes))


def moved_slots(timetable: Timetable, former: ZoneRules, after: datetime) -> MovedSlots | None:
    """What the rules in use move of the slots after ``after`` that ``former`` gave; None: nothing.

    ``former`` are the rules of the timetable's own zone.
    """
    before = timetable.under(former)
    for begin, end in _differences(former, zone_rules(former.zone, after)):
        bounds = max(after, begin - _MARGIN), min(former.until, end + _MARGIN)
        was = before.window(*bounds, limit=_COMPARED)
        becomes = timetable.window(*bounds, limit=_COMPARED)
        if len(was) == _COMPARED or len(becomes) == _COMPARED:
            # Cut off at different instants, which is no difference.
            common = min(was[-1:] + becomes[-1:])
            was, becomes = [s for s in was if s <= common], [s for s in becomes if s <= common]
        gone, new = sorted(set(was) - set(becomes)), sorted(set(becomes) - set(was))
        if gone or new:
            return MovedSlots(former.zone, next(iter(gone), None), next(iter(new), None))
    return None


def _differences(former: ZoneRules, current: ZoneRules) -> Iterator[tuple[datetime, datetime]]:
    """The stretches of time through which the two differ, ascending, within what both know."""
    begin, end = max(former.since, current.since), min(former.until, current.until)
    instants = sorted({begin, *(at for at, _ in (*former.changes, *current.changes) if begin < at < end)})
    for at, until in zip(instants, [*instants[1:], end], strict=True):
        if at < until and former.offset_at(at) != current.offset_at(at):
            yield at, until

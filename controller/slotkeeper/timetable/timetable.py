"""What every timetable answers, whatever it was made from: which slots lie where.

A slot is an instant on a whole second. Here are the public questions, the conversion between datetimes and
whole seconds, and the bounds [start, end); the three flavours answer in seconds since 1970. No "now" here:
every question names its instants.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from slotkeeper.timetable.zone import load_zone
from slotkeeper.timetable.zone_rules import ZoneRules

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_from_timestamp = datetime.fromtimestamp  # looked up once: a tenth of what a next slot costs

# Two years from either end of what datetime can hold: zones are worked out a year at a time.
_FIRST_SECOND = (datetime(3, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
_LAST_SECOND = (datetime(9998, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)


def whole_seconds(instant: datetime) -> int:
    """Seconds since 1970-01-01T00:00Z, rounded down. Raises `TypeError` for a naive datetime."""
    try:
        since = instant - _EPOCH
    except TypeError:
        raise TypeError(f"expected a datetime with a time zone, got {instant!r}") from None
    return since.days * 86400 + since.seconds


def _seconds_up(instant: datetime) -> int:
    return whole_seconds(instant) + (1 if instant.microsecond else 0)


def instant_of(second: int) -> datetime:
    """The inverse of `whole_seconds`, in UTC."""
    return _from_timestamp(second, UTC)


def in_utc(instant: datetime) -> datetime:
    """The same instant in UTC, where adding a duration means elapsed time. Raises `TypeError` if naive."""
    if instant.utcoffset() is None:
        raise TypeError(f"expected a datetime with a time zone, got {instant!r}")
    return instant.astimezone(UTC)


@dataclass(frozen=True)
class ClockChange:
    """A change of the zone's offset that touches a time of the schedule.

    ``at``: the first instant of the new offset, in UTC. The offsets are those of the clock from UTC.
    ``told``: one sentence for people, such as ``2027-03-28 01:00Z Europe/Berlin skips 02:00–03:00: 02:30
    becomes 03:00``.
    """

    at: datetime
    zone: str
    offset_before: timedelta
    offset_after: timedelta
    told: str


class Timetable(ABC):
    """The slots of one schedule. Immutable, safe to share between threads.

    Every datetime that goes in must be aware (`TypeError` otherwise); every one that comes out is in
    `datetime.timezone.utc`, except from `local`. With ``start`` and ``end``, slots lie in [start, end).
    """

    def __init__(self, zone: str, start: datetime | None, end: datetime | None) -> None:
        self._zone_name = zone
        self._zone = load_zone(zone)
        self._first = _FIRST_SECOND if start is None else max(_seconds_up(start), _FIRST_SECOND)
        self._last = _LAST_SECOND if end is None else min(_seconds_up(end) - 1, _LAST_SECOND)

    @property
    def zone(self) -> str:
        """The IANA name of the schedule's zone, as written."""
        return self._zone_name

    @property
    @abstractmethod
    def resolved(self) -> str:
        """The rule in one line: ``expr;expr`` as written, ``every 600s``, ``at 3 times``."""

    def under(self, rules: ZoneRules) -> Timetable:  # noqa: ARG002 - only wall times depend on a zone's rules
        """The same schedule by other rules of its zone."""
        return self

    @property
    def differs_from_vixie_cron(self) -> str | None:
        """A sentence that says where Vixie cron would choose other days, or None."""
        return None

    def clock_changes(self, after: datetime, count: int = 2) -> list[ClockChange]:  # noqa: ARG002 - only cron has any
        """The next ``count`` changes of the clock after this instant that touch a time of the schedule.

        A time is touched when the clock skips it or shows it twice, whatever the settings make of that. Looks
        ten years ahead. `every` and `at` have none: they follow elapsed time.
        """
        whole_seconds(after)
        return []

    def note(self, slot: datetime) -> str | None:
        """What a person should know about this slot because the clock changes near it, or None.

        ``02:30 does not exist: first instant after the gap``; ``first of two 02:30; runs once``; ``second of
        two 02:30``. The first slot after a gap also tells which times before it have no slot. None for an
        instant that is no slot.
        """
        whole_seconds(slot)
        return None

    def window(self, after: datetime, until: datetime, *, limit: int | None = None) -> list[datetime]:
        """The slots in (after, until], ascending; of these the oldest ``limit``."""
        first, last = self._bounds(after, until)
        return [instant_of(second) for second in islice(self._ascending(first, last), limit)]

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        """The newest ``count`` slots in (after, until], ascending."""
        first, last = self._bounds(after, until)
        return [instant_of(second) for second in islice(self._descending(first, last), count)][::-1]

    def count(self, after: datetime, until: datetime) -> int:
        """How many slots lie in (after, until], without listing them."""
        first, last = self._bounds(after, until)
        return self._count(first, last)

    def next(self, after: datetime) -> datetime | None:
        """The first slot after this instant; None if there is never one again."""
        # Asked for every schedule at every slot: written for speed, without max() and min().
        first = whole_seconds(after) + 1
        if first < self._first:
            first = self._first
        second = self._first_from(first, self._last)
        return None if second is None else instant_of(second)

    def previous(self, before: datetime) -> datetime | None:
        """The last slot before this instant; None if there never was one."""
        second = self._last_to(self._first, min(_seconds_up(before) - 1, self._last))
        return None if second is None else instant_of(second)

    def local(self, slot: datetime) -> datetime:
        """The same instant on the clock of the schedule's zone; ``fold`` is 1 in a second pass."""
        whole_seconds(slot)  # a naive datetime would be taken for the machine's local time
        return slot.astimezone(self._zone)

    def _bounds(self, after: datetime, until: datetime) -> tuple[int, int]:
        """(after, until] as the first and the last whole second that may be a slot."""
        return max(whole_seconds(after) + 1, self._first), min(whole_seconds(until), self._last)

    # All of these take inclusive bounds in seconds since 1970; with first > last there are no slots.

    @abstractmethod
    def _ascending(self, first: int, last: int) -> Iterator[int]: ...

    @abstractmethod
    def _descending(self, first: int, last: int) -> Iterator[int]: ...

    @abstractmethod
    def _count(self, first: int, last: int) -> int: ...

    @abstractmethod
    def _first_from(self, first: int, last: int) -> int | None: ...

    @abstractmethod
    def _last_to(self, first: int, last: int) -> int | None: ...

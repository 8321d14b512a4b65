"""Slots at a given list of instants. Not for anything that repeats."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime

from slotkeeper.errors import InvalidField
from slotkeeper.timetable.timetable import Timetable, whole_seconds


class _AtTimetable(Timetable):
    def __init__(self, seconds: tuple[int, ...], zone: str, bounds: tuple[datetime | None, datetime | None]) -> None:
        super().__init__(zone, *bounds)
        self._seconds = seconds

    @property
    def resolved(self) -> str:
        return f"at {len(self._seconds)} time{'s' if len(self._seconds) != 1 else ''}"

    def _slots(self, first: int, last: int) -> tuple[int, ...]:
        return self._seconds[bisect_left(self._seconds, first) : bisect_right(self._seconds, last)]

    def _ascending(self, first: int, last: int) -> Iterator[int]:
        return iter(self._slots(first, last))

    def _descending(self, first: int, last: int) -> Iterator[int]:
        return reversed(self._slots(first, last))

    def _count(self, first: int, last: int) -> int:
        return len(self._slots(first, last))

    def _first_from(self, first: int, last: int) -> int | None:
        return next(self._ascending(first, last), None)

    def _last_to(self, first: int, last: int) -> int | None:
        return next(self._descending(first, last), None)


def at_timetable(
    instants: Sequence[datetime],
    *,
    zone: str = "Etc/UTC",
    start: datetime | None = None,
    end: datetime | None = None,
) -> Timetable:
    """One slot per distinct instant, in any order given; the zone only serves `Timetable.local`.

    Raises `InvalidField` (``spec.at[2]``) for an empty list or an instant that is not on a whole second, and
    `UnknownTimeZone`.
    """
    if not instants:
        raise InvalidField("spec.at", "is empty", instead="write at least one instant")
    seconds = set()
    for k, instant in enumerate(instants):
        seconds.add(whole_seconds(instant))
        if instant.microsecond:
            raise InvalidField(
                f"spec.at[{k}]",
                f"{instant.isoformat()} is not on a whole second",
                instead=f"write {instant.replace(microsecond=0).isoformat()}",
            )
    return _AtTimetable(tuple(sorted(seconds)), zone, (start, end))

"""Slots at a fixed period: anchor + k × period, k ≥ 0, in elapsed time.

The clock's changes do not move them, nor does a restart or an edit. Not for "daily at six": that is cron.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from slotkeeper.errors import InvalidField
from slotkeeper.timetable.timetable import Timetable, whole_seconds


class _EveryTimetable(Timetable):
    def __init__(self, period: int, anchor: int, zone: str, bounds: tuple[datetime | None, datetime | None]) -> None:
        super().__init__(zone, *bounds)
        self._period = period
        self._anchor = anchor

    @property
    def resolved(self) -> str:
        return f"every {self._period}s"

    def _slots(self, first: int, last: int) -> range:
        """Ranges of Python know their length and their end: nothing has to be walked."""
        periods = max(-((self._anchor - first) // self._period), 0)
        return range(self._anchor + periods * self._period, last + 1, self._period)

    def _ascending(self, first: int, last: int) -> Iterator[int]:
        return iter(self._slots(first, last))

    def _descending(self, first: int, last: int) -> Iterator[int]:
        return reversed(self._slots(first, last))

    def _count(self, first: int, last: int) -> int:
        return len(self._slots(first, last))

    def _first_from(self, first: int, last: int) -> int | None:
        slots = self._slots(first, last)
        return slots[0] if slots else None

    def _last_to(self, first: int, last: int) -> int | None:
        slots = self._slots(first, last)
        return slots[-1] if slots else None


def every_timetable(
    period: timedelta,
    anchor: datetime,
    *,
    zone: str = "Etc/UTC",
    start: datetime | None = None,
    end: datetime | None = None,
) -> Timetable:
    """Slot k is anchor + k × period, k ≥ 0; the zone only serves `Timetable.local`.

    Raises `InvalidField` unless the period is a positive number of whole seconds and the anchor lies on a
    whole second, and `UnknownTimeZone`.
    """
    seconds, rest = divmod(period, timedelta(seconds=1))
    if seconds < 1 or rest:
        raise InvalidField(
            "spec.every.periodSeconds",
            f"{period.total_seconds()} is no positive whole number",
            instead="write whole seconds, such as 600",
        )
    second = whole_seconds(anchor)
    if anchor.microsecond:
        raise InvalidField(
            "spec.every.anchorTime",
            f"{anchor.isoformat()} is not on a whole second",
            instead=f"write {anchor.replace(microsecond=0).isoformat()}",
        )
    return _EveryTimetable(seconds, second, zone, (start, end))

"""The heat map of a schedule: one cell for each hour of UTC, coloured by the worst that became of its slots.

Pure: from rows by hour to cells with words, so that no colour stands alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from slotkeeper.store.web import SlotsOfHour
from slotkeeper.web.wording import duration

_HOUR = timedelta(hours=1)
#: From the worst to the best, with the sign that a cell carries beside its colour.
SIGNS = {
    "dead": "×", "skipped": "–", "superseded": "»", "cancelled": "/", "late": "!", "running": "▸", "ready": "·",
    "done": "✓",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One hour. ``worst``: one of SIGNS, or ``none``; ``slots`` counts all, ``text`` says what became of them."""

    hour: datetime
    worst: str
    slots: int
    text: str

    @property
    def sign(self) -> str:
        """What is written in the cell."""
        return SIGNS.get(self.worst, "")


@dataclass(frozen=True, slots=True)
class Day:
    """24 cells, from midnight in UTC."""

    date: date
    cells: Sequence[Cell]


def first_hour(now: datetime, days: int) -> datetime:
    """Midnight in UTC of the first of ``days`` days that end with today."""
    return datetime.combine(now.astimezone(UTC).date() - timedelta(days=days - 1), datetime.min.time(), UTC)


def heat_map(rows: Iterable[SlotsOfHour], now: datetime, days: int) -> list[Day]:
    """The cells of ``days`` days, today first."""
    first = first_hour(now, days)
    found: dict[datetime, list[SlotsOfHour]] = {}
    for row in rows:
        hour = max(_hour_of(row.first_slot), first)
        # A range of slots that did not run colours every hour that it spans.
        while hour <= min(row.last_slot, now):
            found.setdefault(hour, []).append(row)
            hour += _HOUR
    return [
        Day(
            (first + timedelta(days=day)).date(),
            [_cell(first + timedelta(days=day, hours=hour), found) for hour in range(24)],
        )
        for day in reversed(range(days))
    ]


def _hour_of(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _cell(hour: datetime, found: dict[datetime, list[SlotsOfHour]]) -> Cell:
    rows = sorted(found.get(hour, []), key=lambda row: (_severity(row.status), row.reason or ""))
    when = f"{hour:%Y-%m-%d %H}:00"
    if not rows:
        return Cell(hour, "none", 0, f"{when}: no slot")
    states = [row.status for row in rows] + ["late" for row in rows if row.late]
    return Cell(
        hour, min(states, key=_severity), sum(row.slots for row in rows), f"{when}: " + ", ".join(map(_words, rows))
    )


def _severity(status: str) -> int:
    return list(SIGNS).index(status) if status in SIGNS else len(SIGNS)


def _words(row: SlotsOfHour) -> str:
    text = f"{row.slots} {row.status}"
    if row.reason:
        text += f" ({row.reason})"
    if row.late and row.latest_seconds is not None:
        text += f", {row.late} of them late, by up to {duration(row.latest_seconds)}"
    return text

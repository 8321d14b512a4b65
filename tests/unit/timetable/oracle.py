"""A second opinion on slots, made to be slow and hard to get wrong.

It walks every UTC minute of a window, reads the zone's clock and asks whether the five fields match. It
shares nothing with the package: an own parser (for text that the package accepts), no calendar, no offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import product
from typing import NamedTuple
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
LONGEST_GAP = timedelta(hours=3)
MONTH_NAMES = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
MONTHS = {name: number for number, name in enumerate(MONTH_NAMES, 1)}
DAYS = {"SUN": 0, "MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6}
FIELDS = [(0, 59, {}), (0, 23, {}), (1, 31, {}), (1, 12, MONTHS), (0, 6, DAYS)]
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def _numbers(text: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    def number(word: str) -> int:
        return names[word.upper()] if word.upper() in names else int(word)

    found: set[int] = set()
    for term in text.split(","):
        base, slash, step = term.partition("/")
        if base in ("*", "?"):
            first, last = low, high
        elif "-" in base:
            left, right = base.split("-")
            first, last = number(left), number(right)
            if names is DAYS and right.upper() == "SUN":
                last = 7
        else:
            first = number(base)
            last = max(first, high) if slash else first
        found |= set(range(first, last + 1, int(step or 1)))
    return {n % 7 for n in found} if names is DAYS else found


class Cron:
    """One expression: does it match a clock that shows this?"""

    def __init__(self, text: str, day_rule: str = "kubernetes") -> None:
        parts = MACROS.get(text.strip().lower(), text).split()
        minute, hour, self.days, self.months, self.weekdays = (
            _numbers(part, *field) for part, field in zip(parts, FIELDS, strict=True)
        )
        self.minutes_of_day = {60 * h + m for h in hour for m in minute}
        self.follows_clock = parts[1].startswith("*")
        day_fields = (parts[2], parts[4])
        if day_rule == "vixie":
            self.both_days = any(part[0] in "*?" for part in day_fields)
        else:
            free = {"*", "?", "*/1", "?/1"}
            self.both_days = any(free & set(part.split(",")) for part in day_fields)

    def matches_date(self, shown: datetime) -> bool:
        day, weekday = shown.day in self.days, shown.isoweekday() % 7 in self.weekdays
        return shown.month in self.months and ((day and weekday) if self.both_days else (day or weekday))

    def matches(self, shown: datetime) -> bool:
        return 60 * shown.hour + shown.minute in self.minutes_of_day and self.matches_date(shown)


class Reading(NamedTuple):
    """A UTC minute, what the clock shows then (``minute``: of the day), and what it skipped or repeats."""

    instant: datetime
    shown: datetime
    minute: int
    second_pass: bool
    skipped: tuple[datetime, ...]


@lru_cache(maxsize=16)
def read_clock(zone: ZoneInfo, start: datetime, end: datetime) -> list[Reading]:
    """Every whole UTC minute in [start, end), with the zone's clock (seconds cut off)."""

    def shows(instant: datetime) -> tuple[datetime, bool]:
        local = instant.astimezone(zone)
        return local.replace(tzinfo=None, fold=0, second=0), local.fold == 1

    readings = []
    instant = start
    before, _ = shows(start - MINUTE)
    while instant < end:
        shown, second_pass = shows(instant)
        gap = shown - before - MINUTE
        skipped: tuple[datetime, ...] = ()
        if timedelta(0) < gap <= LONGEST_GAP:
            skipped = tuple(before + MINUTE * k for k in range(1, gap // MINUTE + 1))
        readings.append(Reading(instant, shown, 60 * shown.hour + shown.minute, second_pass, skipped))
        before = shown
        instant += MINUTE
    return readings


Settings = tuple[str, str]
SETTINGS: list[Settings] = list(product(("RunAfter", "Skip"), ("RunOnce", "RunTwice")))


def slots_by_settings(texts: Iterable[str], readings: Iterable[Reading]) -> dict[Settings, list[datetime]]:
    """The slots among these readings of a list of expressions, for (skippedTime, repeatedTime) each."""
    crons = [Cron(text) for text in texts]
    following = [cron for cron in crons if cron.follows_clock]
    fixed = [cron for cron in crons if not cron.follows_clock]
    found: dict[Settings, list[datetime]] = {settings: [] for settings in SETTINGS}
    named_at_all = set().union(*(cron.minutes_of_day for cron in crons))
    for instant, shown, minute, second_pass, skipped in readings:
        if minute not in named_at_all and not skipped:
            continue
        follows = any(minute in cron.minutes_of_day and cron.matches_date(shown) for cron in following)
        named = any(minute in cron.minutes_of_day and cron.matches_date(shown) for cron in fixed)
        missed = bool(skipped) and any(cron.matches(time) for cron in fixed for time in skipped)
        if not (follows or named or missed):
            continue
        for (skipped_time, repeated_time), slots in found.items():
            by_name = named and not (second_pass and repeated_time == "RunOnce")
            if follows or by_name or (missed and skipped_time == "RunAfter"):
                slots.append(instant)
    return found


def slots(
    texts: Iterable[str],
    readings: Iterable[Reading],
    *,
    skipped_time: str = "RunAfter",
    repeated_time: str = "RunOnce",
) -> list[datetime]:
    """The same for one of the four settings."""
    return slots_by_settings(texts, readings)[skipped_time, repeated_time]


def utc(text: str) -> datetime:
    """``2026-03-29T01:00Z`` as a datetime."""
    return datetime.fromisoformat(text).astimezone(UTC)

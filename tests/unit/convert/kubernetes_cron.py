"""When Kubernetes fires, minute by minute: a small model of its own, that shares nothing with the timetable.

A CronJob fires in every minute of UTC in which the clock of its zone shows a time that the five fields name.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_NAMES: tuple[dict[str, int], ...] = (
    {},
    {},
    {},
    {name: number for number, name in enumerate(_MONTHS, 1)},
    {name: number for number, name in enumerate(_WEEKDAYS)},
)
_STEPS = (2, 3, 5, 7, 12, 15, 25, 40, 90)


def fires(expression: str, zone: ZoneInfo, first: datetime, until: datetime) -> Iterator[datetime]:
    """The minutes in first <= minute < until in which a CronJob with this expression starts a Job."""
    fields = [_field(text, k) for k, text in enumerate(expression.split())]
    (minutes, _), (hours, _), (days, free_day), (months, _), (weekdays, free_weekday) = fields
    instant = first
    while instant < until:
        wall = instant.astimezone(zone)
        on_day, on_weekday = wall.day in days, wall.isoweekday() % 7 in weekdays
        date = on_day and on_weekday if free_day or free_weekday else on_day or on_weekday
        if date and wall.month in months and wall.hour in hours and wall.minute in minutes:
            yield instant
        instant += timedelta(minutes=1)


def _field(text: str, kind: int) -> tuple[set[int], bool]:
    """The values of one field, and whether it counts as a star."""
    low, high = _BOUNDS[kind]
    values: set[int] = set()
    free = False
    for term in filter(None, text.split(",")):
        base, _, step = term.partition("/")
        width = int(step or 1)
        if base in ("*", "?"):
            values.update(range(low, high + 1, width))
            free = free or width == 1
            continue
        first, dash, last = base.partition("-")
        begin = _number(first, kind)
        end = _number(last, kind) if dash else high if step else begin
        values.update(range(begin, end + 1, width))
    return values, free


def _number(text: str, kind: int) -> int:
    names = _NAMES[kind]
    return names[text.lower()] if text.lower() in names else int(text)


def random_expression(random: Random) -> str:
    """Five fields that Kubernetes accepts, odd ones among them; fields that rarely match are rare."""
    return " ".join(_random_field(random, kind) for kind in range(5))


def _random_field(random: Random, kind: int) -> str:
    if random.random() < (0.1, 0.3, 0.6, 0.8, 0.6)[kind]:
        return random.choice("***?")
    count = 1 if random.random() < 0.7 else random.randint(2, 3)
    separator = "," if random.random() < 0.95 else ",,"
    return separator.join(_random_term(random, kind) for _ in range(count))


def _random_term(random: Random, kind: int) -> str:
    low, high = _BOUNDS[kind]
    begin = random.randint(low, high)
    step = random.choice(_STEPS)
    form = random.randrange(6)
    if form == 0:
        return f"{random.choice('**?')}/{step}"
    if form == 1:
        return f"{begin}/{step}"
    end = random.randint(begin, high)
    names = {number: name for name, number in _NAMES[kind].items()}
    if form == 2:
        return f"{begin}-{end}/{step}"
    if form == 3:
        return f"{names.get(begin, begin)}-{str(names.get(end, end)).upper()}"
    return str(names.get(begin, begin)) if form == 4 else f"{begin:02}"

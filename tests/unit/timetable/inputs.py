"""Random input for the tests of this room: expressions, zones, and instants around changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

from hypothesis import strategies as st

from slotkeeper.timetable import load_zone

# Zones with something odd: half-hour shifts, midnight gaps, negative summer time, two-hour shifts, a calendar
# day that never was, rules that end, rules of Ramadan, offsets with seconds, none at all.
ODD_ZONES = (
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/Monrovia",
    "America/Caracas",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "America/Vancouver",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Asia/Amman",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Etc/UTC",
    "Europe/Berlin",
    "Europe/Dublin",
    "Europe/Lisbon",
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "Pacific/Norfolk",
)

# (lowest, highest, names) of the five fields; the highest here is the one that may be written.
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_NAMES = (
    (),
    (),
    (),
    ("jan", "FEB", "Mar", "apr", "may", "JUN", "jul", "aug", "sep", "oct", "nov", "DEC"),
    ("SUN", "mon", "Tue", "wed", "thu", "FRI", "sat"),
)
_SIZES = (60, 24, 31, 12, 7)


def random_expression(random: Random) -> str:
    """An expression that is accepted; fields that rarely match are rare, so that most windows have slots."""
    if random.random() < 0.03:
        return random.choice(["@hourly", "@Daily", "@midnight", "@weekly", "@monthly", "@yearly"])
    parts = []
    for field, star in enumerate((0.15, 0.3, 0.6, 0.8, 0.6)):
        count = 1 if random.random() < 0.75 else random.randint(2, 3)
        terms = [_random_term(random, field, star) for _ in range(count)]
        parts.append(",".join(terms))
    return " ".join(parts)


def _random_term(random: Random, field: int, star: float) -> str:
    low, high = _BOUNDS[field]
    if random.random() < star:
        free = random.choice("*?") if field in (2, 4) and random.random() < 0.2 else "*"
        return free if random.random() < 0.7 else f"{free}/{random.randint(1, min(_SIZES[field], 12))}"
    shape = random.random()
    first, last = sorted(random.sample(range(low, high + 1), 2))
    # The hours around which clocks change deserve more than their share.
    if field == 1 and random.random() < 0.5:
        first, last = sorted(random.sample([0, 1, 2, 3, 4, 23], 2))
    if shape < 0.5:
        return random.choice(_NAMES[field]) if _NAMES[field] and random.random() < 0.3 else f"{first}"
    if shape < 0.65:
        return f"{first}/{random.randint(1, _SIZES[field])}"
    if shape < 0.7 and field == 4:
        return "FRI-SUN"
    step = f"/{random.randint(1, _SIZES[field])}" if random.random() < 0.4 else ""
    return f"{first}-{last}{step}"


def clock_changes(zone: str, year: int) -> list[datetime]:
    """The UTC hours in this year at whose end the zone's offset is another; nearly always none to three."""
    tz = load_zone(zone)
    start = datetime(year, 1, 1, tzinfo=UTC)
    days = [start + timedelta(days=k) for k in range(367)]
    changes = []
    for day, following in pairwise(days):
        if day.astimezone(tz).utcoffset() != following.astimezone(tz).utcoffset():
            hours = [day + timedelta(hours=k) for k in range(25)]
            changes += [
                hour
                for hour, then in pairwise(hours)
                if hour.astimezone(tz).utcoffset() != then.astimezone(tz).utcoffset()
            ]
    return changes


def expressions() -> st.SearchStrategy[str]:
    """The same expressions as a strategy, shrinking by their seed."""
    return st.randoms(use_true_random=False).map(random_expression)


def zones() -> st.SearchStrategy[str]:
    """Mostly the odd ones."""
    return st.sampled_from(ODD_ZONES)


def instants(first: int = 1970, last: int = 2099) -> st.SearchStrategy[datetime]:
    """Instants to the microsecond in the years supported, whole minutes more often than not."""
    exact = st.datetimes(datetime(first, 1, 1), datetime(last, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
    return st.one_of(exact, exact.map(lambda instant: instant.replace(second=0, microsecond=0)))

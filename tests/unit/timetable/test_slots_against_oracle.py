"""Slots by calendar and offsets equal slots found by walking every minute.

``SLOTKEEPER_ORACLE_TRIPLES`` says how many random (expression, zone, start) are compared, ``SLOTKEEPER_ORACLE_SEED``
repeats those of a run before.
"""

from __future__ import annotations

import itertools
import os
import random
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import pytest

from slotkeeper.timetable import RepeatedTime, SkippedTime, cron_timetable, load_zone
from slotkeeper.timetable.zone import _zone_names
from unit.timetable import oracle
from unit.timetable.inputs import ODD_ZONES, clock_changes, random_expression

SETTINGS = list(itertools.product(SkippedTime, RepeatedTime))
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
FIRST_YEAR, LAST_YEAR = 1970, 2037

TRIPLES = int(os.environ.get("SLOTKEEPER_ORACLE_TRIPLES", "2000"))
SEED = int(os.environ.get("SLOTKEEPER_ORACLE_SEED") or random.SystemRandom().getrandbits(48))
PARTS = 4
#: So many expressions are compared on one reading of a clock, which costs as much as all of them.
TOGETHER = 8
_changes = lru_cache(maxsize=4096)(clock_changes)


def _zone(random_: random.Random) -> str:
    return random_.choice(ODD_ZONES) if random_.random() < 0.5 else random_.choice(sorted(_zone_names()))


def _place(random_: random.Random, at_change: bool) -> tuple[str, datetime]:
    """A zone and the minute in the middle of what is compared."""
    for _ in range(100 if at_change else 0):
        zone, year = _zone(random_), random_.randint(FIRST_YEAR, LAST_YEAR)
        if changes := _changes(zone, year):
            return zone, random_.choice(changes) + MINUTE * random_.randint(-90, 90)
    since = datetime(FIRST_YEAR, 1, 3, tzinfo=UTC)
    minutes = (datetime(LAST_YEAR, 12, 29, tzinfo=UTC) - since) // MINUTE
    return _zone(random_), since + MINUTE * random_.randint(0, minutes)


def _on_this_date(text: str, date: datetime) -> str:
    """The expression once a year, so that what lies next to a slot is far away."""
    minute, hour, *_ = oracle.MACROS.get(text.lower(), text).split()
    return f"{minute} {hour} {date.day} {date.month} *"


@pytest.mark.timeout(max(60, TRIPLES // 10))
@pytest.mark.parametrize("part", range(PARTS))
def test_random_expressions_in_random_zones(part: int) -> None:
    random_ = random.Random(f"{SEED}-{part}")
    for number in range(-(-TRIPLES // (PARTS * TOGETHER))):
        zone, middle = _place(random_, at_change=number % 2 == 0)
        start, end = middle - DAY, middle + DAY
        readings = oracle.read_clock(load_zone(zone), start, end)
        for _ in range(TOGETHER):
            texts = [random_expression(random_) for _ in range(random_.choice([1, 1, 1, 2, 3]))]
            if random_.random() < 0.2:
                texts = [_on_this_date(text, middle.astimezone(load_zone(zone))) for text in texts]
            expected = oracle.slots_by_settings(texts, readings)
            for skipped, repeated in SETTINGS:
                told = (
                    f"SLOTKEEPER_ORACLE_SEED={SEED} SLOTKEEPER_ORACLE_TRIPLES={TRIPLES}: "
                    f"{texts} in {zone}, {skipped}, {repeated}, [{start}, {end})"
                )
                timetable = cron_timetable(texts, zone, skipped_time=skipped, repeated_time=repeated)
                slots = expected[skipped, repeated]
                assert timetable.window(start - MINUTE, end - MINUTE) == slots, told
                assert timetable.count(start - MINUTE, end - MINUTE) == len(slots), told
                assert timetable.newest(start - MINUTE, end - MINUTE, 5) == slots[-5:], told
                spread = random_.choice([3 * 3600, 86400])
                asked = middle + timedelta(seconds=random_.randint(-spread, spread))
                told = f"{told}, asked {asked}"
                later, earlier = [s for s in slots if s > asked], [s for s in slots if s < asked]
                following, preceding = timetable.next(asked), timetable.previous(asked)
                assert following == later[0] if later else following is None or following >= end, told
                assert preceding == earlier[-1] if earlier else preceding is None or preceding < start, told


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/Berlin", "2026-03-29T01:00Z"),
        ("Europe/Berlin", "2026-10-25T01:00Z"),
        ("America/New_York", "2026-11-01T06:00Z"),
        ("America/Sao_Paulo", "2018-02-18T02:00Z"),  # midnight repeats
        ("America/Sao_Paulo", "2018-11-04T03:00Z"),  # midnight is skipped
        ("America/St_Johns", "2010-11-07T02:31Z"),  # 00:01 back to 23:01: the date changes three times
        ("Australia/Lord_Howe", "2026-10-03T15:30Z"),  # half an hour forward
        ("Australia/Lord_Howe", "2026-04-04T15:00Z"),  # half an hour back
        ("Antarctica/Troll", "2026-03-29T01:00Z"),  # two hours at once
        ("Antarctica/Casey", "2009-10-17T18:00Z"),  # three hours, the longest gap that is made up for
        ("Asia/Pyongyang", "2018-05-04T15:00Z"),  # a gap that ends at midnight
        ("Pacific/Apia", "2011-12-30T10:00Z"),  # 30 December 2011 never was
        ("Pacific/Kwajalein", "1993-08-21T12:00Z"),
        ("Africa/Monrovia", "1972-01-07T00:44Z"),  # from an offset with seconds
        ("Europe/Dublin", "2026-10-25T01:00Z"),  # "winter time" is the one that is saved
    ],
)
def test_known_changes(zone: str, change: str) -> None:
    start = oracle.utc(change) - timedelta(hours=26)
    end = start + timedelta(hours=52)
    readings = oracle.read_clock(load_zone(zone), start, end)
    before, until = start - timedelta(minutes=1), end - timedelta(minutes=1)
    texts = ("30 2 * * *", "0 0 * * *", "*/20 0-3 * * *", "7 */2 * * *", "*/15 * * * *", "45 23,1 * * *")
    for text, (skipped, repeated) in itertools.product(texts, SETTINGS):
        told = f"{text}, {skipped}, {repeated}"
        timetable = cron_timetable([text], zone, skipped_time=skipped, repeated_time=repeated)
        expected = oracle.slots([text], readings, skipped_time=skipped, repeated_time=repeated)
        assert timetable.window(before, until) == expected, told
        # Asked from every slot, both ways, the walk is the list.
        assert [timetable.next(a) for a in expected[:-1]] == expected[1:], told
        assert [timetable.previous(a) for a in expected[1:]] == expected[:-1], told
        assert [timetable.count(a, until) for a in expected] == list(range(len(expected)))[::-1], told


def test_the_oracles_settings_are_ours() -> None:
    assert [tuple(map(str, settings)) for settings in SETTINGS] == oracle.SETTINGS

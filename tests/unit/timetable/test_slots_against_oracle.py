"""Slots by calendar and offsets equal slots found by walking every minute."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta

import pytest
from cronsim import CronSim

from slotkeeper.timetable import RepeatedTime, SkippedTime, cron_timetable, load_zone
from slotkeeper.timetable.zone import _zone_names
from unit.timetable import oracle
from unit.timetable.inputs import ODD_ZONES, clock_changes, random_expression

SETTINGS = list(itertools.product(SkippedTime, RepeatedTime))
WINDOW = timedelta(hours=52)


def _random_start(random_: random.Random, zone: str, near_change: bool) -> datetime:
    year = random_.randint(1970, 2098)
    changes = clock_changes(zone, year) if near_change else []
    if changes:
        return random_.choice(changes) - timedelta(minutes=random_.randint(0, 30 * 60))
    return datetime(year, 1, 1, tzinfo=UTC) + timedelta(minutes=random_.randint(0, 365 * 1440))


@pytest.mark.parametrize("near_change", [True, False], ids=["around-changes", "anywhere"])
@pytest.mark.parametrize("part", range(4))
def test_random_expressions_in_random_zones(near_change: bool, part: int) -> None:
    seed = random.getrandbits(48)
    random_ = random.Random(seed)
    for _ in range(8):
        zone = random_.choice(ODD_ZONES) if random_.random() < 0.7 else random_.choice(sorted(_zone_names()))
        start = _random_start(random_, zone, near_change)
        end = start + WINDOW
        readings = oracle.read_clock(load_zone(zone), start, end)
        for _ in range(6):
            texts = [random_expression(random_) for _ in range(random_.choice([1, 1, 1, 2, 3]))]
            skipped, repeated = random_.choice(SETTINGS)
            expected = oracle.slots(texts, readings, skipped_time=skipped, repeated_time=repeated)
            timetable = cron_timetable(texts, zone, skipped_time=skipped, repeated_time=repeated)
            told = f"seed {seed}: {texts} in {zone}, {skipped}, {repeated}, from {start}"

            before, until = start - timedelta(minutes=1), end - timedelta(minutes=1)
            assert timetable.window(before, until) == expected, told
            assert timetable.count(before, until) == len(expected), told
            assert timetable.newest(before, until, 5) == expected[-5:], told
            for _ in range(4):
                asked = start + timedelta(minutes=random_.randint(0, 52 * 60))
                later = [slot for slot in expected if slot > asked]
                if later:
                    assert timetable.next(asked) == later[0], f"{told}, asked {asked}"
                earlier = [slot for slot in expected if slot < asked]
                if earlier:
                    assert timetable.previous(asked) == earlier[-1], f"{told}, asked {asked}"


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


def _is_read_alike_by_cronsim(text: str) -> bool:
    """Debian's grammar: no '?', its own rule for a star in a day field, other ideas of weekday steps."""
    parts = text.split(" ")
    if text.startswith("@") or "?" in text or "FRI-SUN" in text:
        return False
    if any("," in part and "*" in part for part in parts):
        return False
    days = parts[2].split(",") + parts[4].split(",")
    return all(term == "*" or "*" not in term for term in days) and not any(
        "/" in term or "7" in term for term in parts[4].split(",")
    )


def test_cronsim_agrees_where_the_rules_are_the_same() -> None:
    seed = random.getrandbits(48)
    random_ = random.Random(seed)
    compared = 0
    while compared < 150:
        text = random_expression(random_)
        if not _is_read_alike_by_cronsim(text):
            continue
        start = datetime(random_.randint(1970, 2080), 1, 1, tzinfo=UTC)
        start += timedelta(minutes=random_.randint(0, 365 * 1440))
        timetable = cron_timetable([text])
        mine = [timetable.next(start)]
        if mine == [None]:
            continue  # cronsim raises instead
        for _ in range(9):
            mine.append(timetable.next(mine[-1]))
        assert list(itertools.islice(CronSim(text, start), 10)) == mine, f"seed {seed}: {text} after {start}"
        compared += 1

"""What is told of the clock's changes: sentences word by word, and against the clock itself read minute by minute."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from slotkeeper.timetable import (
    RepeatedTime,
    SkippedTime,
    at_timetable,
    cron_timetable,
    every_timetable,
    load_zone,
)
from unit.timetable import oracle
from unit.timetable.inputs import ODD_ZONES, clock_changes, random_expression
from unit.timetable.oracle import utc

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("texts", "zone", "settings", "after", "told"),
    [
        (
            ["30 2 * * *"],
            "Europe/Berlin",
            {},
            "2026-12-01T00:00Z",
            [
                "2027-03-28 01:00Z Europe/Berlin skips 02:00–03:00: 02:30 becomes 03:00",
                "2027-10-31 01:00Z Europe/Berlin repeats 02:00–03:00: 02:30 runs once, the first time",
            ],
        ),
        (
            ["30 2 * * *"],
            "Europe/Berlin",
            {"skipped_time": SkippedTime.SKIP, "repeated_time": RepeatedTime.RUN_TWICE},
            "2026-12-01T00:00Z",
            [
                "2027-03-28 01:00Z Europe/Berlin skips 02:00–03:00: 02:30 has no slot",
                "2027-10-31 01:00Z Europe/Berlin repeats 02:00–03:00: 02:30 runs twice",
            ],
        ),
        (
            ["*/10 * * * *"],
            "Australia/Lord_Howe",
            {},
            "2026-09-01T00:00Z",
            [
                "2026-10-03 15:30Z Australia/Lord_Howe skips 2026-10-04 02:00–02:30: 02:00, 02:10, 02:20 have no slot",
                "2027-04-03 15:00Z Australia/Lord_Howe repeats 2027-04-04 01:30–02:00: 01:30, 01:40, 01:50 run twice",
            ],
        ),
        (
            # Each of a list by its own rule; 02:00 is named by both.
            ["0,30 2 * * *", "0 */2 * * *"],
            "Europe/Berlin",
            {},
            "2026-12-01T00:00Z",
            [
                "2027-03-28 01:00Z Europe/Berlin skips 02:00–03:00: 02:00, 02:30 become 03:00",
                "2027-10-31 01:00Z Europe/Berlin repeats 02:00–03:00: 02:30 runs once, the first time; "
                "02:00 runs twice",
            ],
        ),
        (
            ["0 2 * * *", "15-18 * * * *"],
            "Europe/Berlin",
            {},
            "2026-12-01T00:00Z",
            [
                "2027-03-28 01:00Z Europe/Berlin skips 02:00–03:00: 02:00 becomes 03:00; "
                "02:15, 02:16, 02:17 and 1 more have no slot",
                "2027-10-31 01:00Z Europe/Berlin repeats 02:00–03:00: 02:00 runs once, the first time; "
                "02:15, 02:16, 02:17 and 1 more run twice",
            ],
        ),
        (
            ["0 0 * * *"],
            "Africa/Cairo",
            {},
            "2026-05-01T00:00Z",
            [
                "2027-04-29 22:00Z Africa/Cairo skips 2027-04-30 00:00–01:00: 00:00 becomes 01:00",
                "2028-04-27 22:00Z Africa/Cairo skips 2028-04-28 00:00–01:00: 00:00 becomes 01:00",
            ],
        ),
        (
            ["30 23 * * *"],
            "Africa/Cairo",
            {},
            "2026-05-01T00:00Z",
            [
                "2026-10-29 21:00Z Africa/Cairo repeats 23:00–24:00: 23:30 runs once, the first time",
                "2027-10-28 21:00Z Africa/Cairo repeats 23:00–24:00: 23:30 runs once, the first time",
            ],
        ),
        (
            # A day that never was; the zone has had no change since that touches 06:00.
            ["0 6 * * *"],
            "Pacific/Apia",
            {},
            "2011-10-01T00:00Z",
            [
                "2011-12-30 10:00Z Pacific/Apia skips 2011-12-30 00:00–2011-12-31 00:00: 2011-12-30 06:00 has no slot",
            ],
        ),
        (
            # Touched only when the Sunday of the change falls on this date.
            ["30 2 28 3 *"],
            "Europe/Berlin",
            {},
            "2026-12-01T00:00Z",
            [
                "2027-03-28 01:00Z Europe/Berlin skips 02:00–03:00: 02:30 becomes 03:00",
                "2032-03-28 01:00Z Europe/Berlin skips 02:00–03:00: 02:30 becomes 03:00",
            ],
        ),
        # The law of 2026: no change any more.
        (["30 1 * * *"], "America/Vancouver", {}, "2026-05-01T00:00Z", []),
        (["0 12 * * *"], "Europe/Berlin", {}, "2026-12-01T00:00Z", []),
        (["30 2 * * *"], "Etc/UTC", {}, "2026-12-01T00:00Z", []),
    ],
)
def test_the_next_two_changes(
    texts: list[str], zone: str, settings: dict[str, object], after: str, told: list[str]
) -> None:
    changes = cron_timetable(texts, zone, **settings).clock_changes(utc(after))  # type: ignore[arg-type]
    assert [change.told for change in changes] == told
    for change in changes:
        assert change.zone == zone
        assert change.told.startswith(f"{change.at:%Y-%m-%d %H:%MZ} ")
        tz = load_zone(zone)
        assert (change.offset_before, change.offset_after) == (
            (change.at - MINUTE).astimezone(tz).utcoffset(),
            change.at.astimezone(tz).utcoffset(),
        )


def test_a_change_is_told_until_its_instant_and_within_the_bounds() -> None:
    timetable = cron_timetable(["30 2 * * *"], "Europe/Berlin")
    change = utc("2027-03-28T01:00Z")
    assert timetable.clock_changes(change - timedelta(microseconds=1), 1)[0].at == change
    assert timetable.clock_changes(change, 1)[0].at == utc("2027-10-31T01:00Z")
    assert [c.at.year for c in timetable.clock_changes(change, 5)] == [2027, 2028, 2028, 2029, 2029]
    assert timetable.clock_changes(change, 0) == []
    until = cron_timetable(["30 2 * * *"], "Europe/Berlin", end=change)
    assert until.clock_changes(utc("2027-01-01T00:00Z")) == []
    since = cron_timetable(["30 2 * * *"], "Europe/Berlin", start=change, end=change + DAY)
    assert [c.at for c in since.clock_changes(utc("2020-01-01T00:00Z"))] == [change]
    # Ten years ahead, no further.
    far = cron_timetable(["30 2 28 3 *"], "Europe/Berlin").clock_changes(utc("2032-12-01T00:00Z"))
    assert [c.at.year for c in far] == [2038]
    assert timetable.clock_changes(datetime.max.replace(tzinfo=UTC)) == []
    assert cron_timetable(["* * * * *"], "Europe/Berlin").clock_changes(datetime.min.replace(tzinfo=UTC)) == []


def test_elapsed_time_and_instants_know_no_change() -> None:
    anchor = utc("2026-10-25T00:30Z")
    for timetable in (
        every_timetable(HOUR, anchor, zone="Europe/Berlin"),
        at_timetable([anchor], zone="Europe/Berlin"),
    ):
        assert timetable.clock_changes(utc("2026-01-01T00:00Z")) == []
        assert timetable.note(anchor) is None
        with pytest.raises(TypeError, match="with a time zone"):
            timetable.note(anchor.replace(tzinfo=None))
        with pytest.raises(TypeError, match="with a time zone"):
            timetable.clock_changes(anchor.replace(tzinfo=None))


SKIP, TWICE = {"skipped_time": SkippedTime.SKIP}, {"repeated_time": RepeatedTime.RUN_TWICE}


@pytest.mark.parametrize(
    ("texts", "settings", "slot", "note"),
    [
        (["30 2 * * *"], {}, "2027-03-28T01:00Z", "02:30 does not exist: first instant after the gap"),
        (["0,30 2 * * *"], {}, "2027-03-28T01:00Z", "02:00, 02:30 do not exist: first instant after the gap"),
        (
            ["30 2 * * *", "0 3 * * *"],
            {},
            "2027-03-28T01:00Z",
            "03:00, and in place of 02:30, which does not exist",
        ),
        (["30 2 * * *"], {}, "2027-03-27T01:30Z", None),
        (["30 2 * * *"], {}, "2027-03-29T00:30Z", None),
        (["30 2 * * *"], {}, "2027-10-31T00:30Z", "first of two 02:30; runs once"),
        (["30 2 * * *"], {}, "2027-10-31T01:30Z", None),  # no slot
        (["30 2 * * *"], TWICE, "2027-10-31T00:30Z", "first of two 02:30"),
        (["30 2 * * *"], TWICE, "2027-10-31T01:30Z", "second of two 02:30"),
        (["30 * * * *"], {}, "2027-10-31T00:30Z", "first of two 02:30"),
        (["30 * * * *"], {}, "2027-10-31T01:30Z", "second of two 02:30"),
        (["30 * * * *"], {}, "2027-10-31T02:30Z", None),
        (["30 2 * * *"], SKIP, "2027-03-29T00:30Z", "2027-03-28 02:30 does not exist and has no slot"),
        (["30 * * * *"], {}, "2027-03-28T01:30Z", "02:30 does not exist and has no slot"),
        (["30 * * * *"], {}, "2027-03-28T02:30Z", None),
        (["0 2 * * *", "30 * * * *"], {}, "2027-03-28T01:00Z",
         "02:00 does not exist: first instant after the gap; 02:30 does not exist and has no slot"),
        (["30 2 * * *"], {}, "2027-03-28T01:00:01Z", None),
    ],
)  # fmt: skip
def test_the_note_of_a_slot(texts: list[str], settings: dict[str, object], slot: str, note: str | None) -> None:
    timetable = cron_timetable(texts, "Europe/Berlin", **settings)  # type: ignore[arg-type]
    assert timetable.note(utc(slot)) == note


def test_the_first_slot_of_all_tells_only_of_a_gap_at_its_instant() -> None:
    change = utc("2027-03-28T01:00Z")
    first = cron_timetable(["30 2 * * *"], "Europe/Berlin", start=change)
    assert first.note(change) == "02:30 does not exist: first instant after the gap"
    later = cron_timetable(["30 2 * * *"], "Europe/Berlin", start=change + HOUR, skipped_time=SkippedTime.SKIP)
    assert later.note(utc("2027-03-29T00:30Z")) is None


def test_what_is_told_is_what_the_clock_does() -> None:
    """Random schedules around random changes: each change that touches them is told, and no other."""
    seed = random.getrandbits(48)
    random_ = random.Random(seed)
    for _ in range(10):
        zone = random_.choice(ODD_ZONES)
        changes = clock_changes(zone, random_.randint(1970, 2090))
        if not changes:
            continue
        start = random_.choice(changes).replace(minute=0) - 3 * HOUR
        end = start + 52 * HOUR
        readings = oracle.read_clock(load_zone(zone), start, end)
        for _ in range(4):
            texts = [random_expression(random_) for _ in range(random_.choice([1, 1, 2]))]
            skipped, repeated = random_.choice(list(SkippedTime)), random_.choice(list(RepeatedTime))
            told = f"seed {seed}: {texts} in {zone}, {skipped}, {repeated}, from {start}"
            timetable = cron_timetable(texts, zone, skipped_time=skipped, repeated_time=repeated)
            crons = [oracle.Cron(text) for text in texts]
            touched = [at for at, walls in _jumps(readings) if any(c.matches(wall) for c in crons for wall in walls)]
            found = [c.at for c in timetable.clock_changes(start, 5) if c.at < end]
            assert found == touched, told
            slots = set(oracle.slots(texts, readings, skipped_time=skipped, repeated_time=repeated))
            other = random_.choice(readings).instant
            assert other in slots or timetable.note(other) is None, f"{told}: {other}"
            shown_again = {reading.shown for reading in readings if reading.second_pass}
            for reading in random_.sample([r for r in readings if r.instant in slots], min(len(slots), 100)):
                note = timetable.note(reading.instant) or ""
                assert note.startswith("second of two ") == reading.second_pass, f"{told}: {reading}, {note}"
                first = not reading.second_pass and reading.shown in shown_again
                assert note.startswith("first of two ") == first, f"{told}: {reading}, {note}"
                moved = skipped is SkippedTime.RUN_AFTER and any(
                    not c.follows_clock and c.matches(wall) for c in crons for wall in reading.skipped
                )
                if not note.startswith(("first", "second")):
                    assert (": first instant" in note or "in place of" in note) == moved, f"{told}: {reading}, {note}"


def _jumps(readings: list[oracle.Reading]) -> list[tuple[datetime, list[datetime]]]:
    """Each instant at which the clock jumps, with the times that it skips or is about to show again."""
    jumps = []
    for place, (before, after) in enumerate(pairwise(readings), 1):
        gap = (after.shown - before.shown) // MINUTE - 1
        if gap > 0:
            jumps.append((after.instant, [before.shown + MINUTE * k for k in range(1, gap + 1)]))
        elif gap < 0:
            again = [reading.shown for reading in readings[place : place - gap] if reading.second_pass]
            jumps.append((after.instant, again))
    return jumps

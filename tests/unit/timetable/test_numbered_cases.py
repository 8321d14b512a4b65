"""What a numbered case asks for beyond the slots and refusals of ``data/cases.yaml``."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path

import pytest
from click.testing import CliRunner

from slotkeeper.cli.main import commands
from slotkeeper.errors import InvalidField, UnknownTimeZone
from slotkeeper.metrics.common import build_families
from slotkeeper.timetable import TZDATA_VERSION, Timetable, cron_timetable, every_timetable, load_zone, parse_expression
from unit.timetable import oracle
from unit.timetable.oracle import utc

ROOT = Path(__file__).parents[3]
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
YEAR = (utc("2025-12-31T23:59Z"), utc("2026-12-31T23:59Z"))


def steps(ask: Callable[[], object]) -> int:
    """How many calls of Python functions an answer takes: a measure of work that no busy machine changes."""
    count = 0

    def called(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        ask()
    finally:
        sys.setprofile(before)
    return count


#: A tenth of a second of a slow machine.
FEW = 40_000


@pytest.mark.parametrize("text", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"])
def test_c004_a_date_that_never_comes_is_found_out_in_few_steps(text: str) -> None:
    def ask() -> None:
        timetable = cron_timetable([text], "Europe/Berlin", start=utc("2026-01-01T00:01Z"))
        assert timetable.next(utc("2026-05-01T00:00Z")) is None
        assert timetable.previous(utc("2026-05-01T00:00Z")) is None

    assert steps(ask) < FEW


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("0 3 * * 7", "0 3 * * 0"),
        ("0 3 * * SUN", "0 3 * * 0"),
        ("0 3 * * 5-7", "0 3 * * 0,5,6"),
        ("0 3 * * FRI-SUN", "0 3 * * 0,5,6"),
        ("0 3 * * SUN-TUE", "0 3 * * 0,1,2"),
        ("0 3 * * 0-7", "0 3 * * *"),
        ("0 3 * * 7,1", "0 3 * * 0,1"),
        ("0 3 * * 1-7/2", "0 3 * * 0,1,3,5"),
    ],
)
def test_c006_the_seven_of_sunday_is_its_zero(text: str, same: str) -> None:
    assert parse_expression(text).weekdays == parse_expression(same).weekdays
    assert cron_timetable([text]).window(*YEAR) == cron_timetable([same]).window(*YEAR)


@pytest.mark.parametrize("field", range(5))
def test_c008_the_largest_step_is_the_size_of_the_field(field: int) -> None:
    size, lowest = ((60, 0), (24, 0), (31, 1), (12, 1), (7, 0))[field]
    parts = ["0", "0", "*", "*", "*"]
    parts[field] = f"*/{size}"
    once = [*parts]
    once[field] = str(lowest)
    assert cron_timetable([" ".join(parts)]).window(*YEAR) == cron_timetable([" ".join(once)]).window(*YEAR)
    parts[field] = f"*/{size + 1}"
    with pytest.raises(InvalidField, match=f"the step {size + 1} is larger than the field \\({size} values\\)"):
        cron_timetable([" ".join(parts)])


@pytest.mark.parametrize(
    ("macro", "fields"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_c012_a_macro_in_any_case_is_its_five_fields(macro: str, fields: str) -> None:
    expected = cron_timetable([fields], "America/New_York").window(*YEAR)
    for text in (macro, macro.upper(), macro.title(), f" {macro} "):
        assert cron_timetable([text], "America/New_York").window(*YEAR) == expected


def test_c018_order_and_leading_zeros_change_nothing() -> None:
    expected = cron_timetable(["45 4,10,16,22 * * *"]).window(*YEAR)
    for hours in permutations(["04", "10", "16", "22"]):
        assert cron_timetable([f"45 {','.join(hours)} * * *"]).window(*YEAR) == expected
    assert parse_expression("00 009 * * *").minutes_of_day == (540,)
    assert parse_expression("0 8 * * 6,0").weekdays == {0, 6}


def test_c019_the_moved_slot_says_what_it_stands_for() -> None:
    timetable = cron_timetable(["30 2 * * *"], "America/New_York")
    moved = utc("2026-03-08T07:00Z")
    assert timetable.note(moved) == "02:30 does not exist: first instant after the gap"
    assert timetable.note(timetable.window(moved, moved + DAY)[0]) is None
    [change] = timetable.clock_changes(utc("2026-03-01T00:00Z"), 1)
    assert change.told == "2026-03-08 07:00Z America/New_York skips 02:00–03:00: 02:30 becomes 03:00"


def test_c022_the_first_of_two_says_that_it_is_the_only_run() -> None:
    timetable = cron_timetable(["30 1 * * *"], "America/New_York")
    assert timetable.note(utc("2026-11-01T05:30Z")) == "first of two 01:30; runs once"
    assert timetable.note(utc("2026-11-01T06:30Z")) is None


def test_c023_nothing_depends_on_the_machines_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Australia/Sydney")
    time.tzset()
    try:
        slots = cron_timetable(["0 * * * *"]).window(utc("2025-10-05T01:59Z"), utc("2025-10-05T04:59Z"))
        assert slots == [utc("2025-10-05T02:00Z"), utc("2025-10-05T03:00Z"), utc("2025-10-05T04:00Z")]
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["0 * * * *", "*/30 * * * *", "15 2 * * *", "*/7 1-3 * * *"])
@pytest.mark.parametrize("change", ["2026-10-03T15:30Z", "2026-04-04T15:00Z"])
def test_c025_next_previous_window_and_count_agree_on_every_minute_of_the_day(text: str, change: str) -> None:
    timetable = cron_timetable([text], "Australia/Lord_Howe")
    begin, end = utc(change) - 13 * timedelta(hours=1), utc(change) + 13 * timedelta(hours=1)
    readings = oracle.read_clock(load_zone("Australia/Lord_Howe"), begin, end)
    slots = oracle.slots([text], readings)
    assert timetable.window(begin - MINUTE, end - MINUTE) == slots
    for reading in readings:
        minute = reading.instant
        is_slot = minute in slots
        assert (timetable.next(minute - MINUTE) == minute) == is_slot
        assert (timetable.previous(minute + MINUTE) == minute) == is_slot
        assert timetable.window(minute - MINUTE, minute) == [minute] * is_slot
        assert timetable.count(minute - MINUTE, minute) == is_slot


@pytest.mark.parametrize(
    ("text", "zone", "asked", "slot"),
    [
        ("0 0 * * *", "Africa/Cairo", "2026-04-23T00:00Z", "2026-04-23T22:00Z"),
        ("0 1 4 11 *", "America/Sao_Paulo", "2017-11-05T00:00Z", "2018-11-04T03:00Z"),
        ("0 12 11,26 * *", "America/Sao_Paulo", "2014-10-12T00:00Z", "2014-10-26T14:00Z"),
    ],
)
def test_c027_a_midnight_that_is_skipped_takes_few_steps(text: str, zone: str, asked: str, slot: str) -> None:
    found: list[datetime | None] = []
    assert steps(lambda: found.append(cron_timetable([text], zone).next(utc(asked)))) < FEW
    assert found == [utc(slot)]


def test_c030_a_yearly_date_in_the_gap_takes_few_steps() -> None:
    timetable = cron_timetable(["0 1 30 3 *"], "Europe/Lisbon")
    found: list[datetime | None] = []
    assert steps(lambda: found.append(timetable.next(utc("2024-04-01T00:00Z")))) < FEW
    assert steps(lambda: found.append(timetable.next(utc("2025-03-30T01:00Z")))) < FEW
    assert found == [utc("2025-03-30T01:00Z"), utc("2026-03-30T00:00Z")]


def test_c031_the_zone_data_is_as_new_as_the_laws_and_its_version_is_shown() -> None:
    assert TZDATA_VERSION >= "2026c"  # British Columbia and Alberta keep one offset from 2026 on
    shown = CliRunner().invoke(commands, ["--version"])
    assert shown.output.rstrip().endswith(f"tz database {TZDATA_VERSION}")
    [info] = build_families("controller")
    assert info.samples[0].labels["tzdata"] == TZDATA_VERSION
    # In the image the base's own zone files count for nobody, not even for handlers.
    assert re.search(r'^\s*PYTHONTZPATH="" \\$', (ROOT / "Dockerfile").read_text(), re.MULTILINE)


def test_c031_no_sql_uses_the_zone_files_of_the_database() -> None:
    wrong = []
    for file in sorted((ROOT / "sql").rglob("*.sql")):
        code = re.sub(r"--.*", "", file.read_text(encoding="utf-8"))
        named = [zone for zone in re.findall(r"at\s+time\s+zone\s+(\S+)", code, re.IGNORECASE) if "'UTC'" not in zone]
        wrong += [f"{file.name}: at time zone {zone}" for zone in named]
        if re.search(r"\b(timezone\s*\(|pg_timezone|set\s+(local\s+)?time\s*zone)", code, re.IGNORECASE):
            wrong.append(f"{file.name}: asks for a zone")
    assert wrong == []


@pytest.mark.parametrize("name", ["Europe/Kyiv", "Europe/Kiev", "US/Pacific", "Asia/Calcutta", "Etc/UTC", "GMT"])
def test_c033_aliases_stay_as_written(name: str) -> None:
    assert cron_timetable(["0 0 * * *"], name).zone == name


@pytest.mark.parametrize(
    ("new", "old"),
    [("Europe/Kyiv", "Europe/Kiev"), ("America/Los_Angeles", "US/Pacific"), ("Asia/Kolkata", "Asia/Calcutta")],
)
def test_c033_aliases_have_the_same_slots(new: str, old: str) -> None:
    assert cron_timetable(["0 3 * * *"], new).window(*YEAR) == cron_timetable(["0 3 * * *"], old).window(*YEAR)


@pytest.mark.parametrize("name", ["Mars/Olympus", "Europe/Berlin ", " Europe/Berlin", "europe/berlin", ""])
def test_c033_other_names_are_refused_and_nothing_stands_in_for_them(name: str) -> None:
    for make in (
        lambda: cron_timetable(["0 3 * * *"], name),
        lambda: every_timetable(DAY, utc("2026-01-01T00:00Z"), zone=name),
    ):
        with pytest.raises(UnknownTimeZone) as caught:
            make()
        assert caught.value.field == "spec.timeZone"


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("TZ=America/New_York 0 9 * * *", "write spec.timeZone: America/New_York and '0 9 * * *' here"),
        ("cron_tz=UTC  0 9 * * *", "write spec.timeZone: UTC and '0 9 * * *' here"),
        ("TZ=UTC @daily", "write spec.timeZone: UTC and '@daily' here"),
        ("CRON_TZ= 0 9 * * *", "write spec.timeZone: an IANA name such as Europe/Berlin and '0 9 * * *' here"),
        ("TZ=UTC", "write spec.timeZone: UTC and five fields here, such as '30 2 * * *'"),
    ],
)
def test_c035_a_prefix_is_refused_beside_any_zone(text: str, instead: str) -> None:
    for zone in ("Europe/London", "America/New_York", "Etc/UTC"):
        with pytest.raises(InvalidField) as caught:
            cron_timetable([text], zone)
        assert (caught.value.field, caught.value.instead) == ("spec.cron[0]", instead)
        assert "time zone prefix" in caught.value.problem


def _hours(timetable: Timetable, slots: list[datetime]) -> list[int]:
    return [timetable.local(slot).hour for slot in slots]


def test_c037_every_is_elapsed_time() -> None:
    anchor = utc("2026-10-23T05:00Z")
    timetable = every_timetable(DAY, anchor, zone="Europe/London")
    slots = timetable.window(anchor - timedelta(hours=1), anchor + 3 * DAY)
    assert slots == [anchor, anchor + DAY, anchor + 2 * DAY, anchor + 3 * DAY]
    assert _hours(timetable, slots) == [6, 6, 5, 5]
    # What people meant.
    daily = cron_timetable(["0 6 * * *"], "Europe/London")
    assert _hours(daily, daily.window(anchor - timedelta(hours=1), anchor + 4 * DAY)) == [6] * 4
    # No drift, however far, and from wherever one asks.
    for k in (0, 1, 999, 1000, 100_000):
        assert timetable.next(anchor + k * DAY - timedelta(microseconds=1)) == anchor + k * DAY
        assert timetable.window(anchor + k * DAY - MINUTE, anchor + k * DAY) == [anchor + k * DAY]
    assert timetable.previous(anchor) is None


def test_c039_a_year_of_days_in_zones_of_half_and_quarter_hours() -> None:
    for zone in ("Asia/Kolkata", "Asia/Kathmandu", "Australia/Eucla", "Pacific/Chatham", "Asia/Yangon"):
        timetable = cron_timetable(["30 9 * * *"], zone)
        slots = timetable.window(datetime(2026, 1, 1, tzinfo=UTC) - DAY, datetime(2027, 1, 1, tzinfo=UTC))
        assert {f"{timetable.local(slot):%H:%M}" for slot in slots} == {"09:30"}
        assert len({timetable.local(slot).date() for slot in slots}) == len(slots) >= 365

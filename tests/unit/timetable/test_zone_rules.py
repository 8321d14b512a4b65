"""What another release of the tz database moves of a schedule, from the rules that were kept of the former one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotkeeper.timetable import (
    Timetable,
    ZoneRules,
    at_timetable,
    cron_timetable,
    every_timetable,
    moved_slots,
    zone_rules,
)
from slotkeeper.timetable.zone_rules import YEARS_AHEAD
from unit.timetable.oracle import utc

NOW = datetime(2026, 12, 1, 12, 0, 30, tzinfo=UTC)
BERLIN = zone_rules("Europe/Berlin", NOW)
HOUR = timedelta(hours=1)


def abolished() -> ZoneRules:
    """Berlin stays in winter time."""
    return replace(BERLIN, changes=BERLIN.changes[:1])


def moved(timetable: Timetable, former: ZoneRules) -> tuple[datetime | None, datetime | None] | None:
    found = moved_slots(timetable, former, NOW)
    return None if found is None else (found.was, found.becomes)


def test_rules_are_the_changes_of_the_next_years() -> None:
    assert BERLIN.changes[:3] == (
        (utc("2026-12-01T12:00Z"), HOUR), (utc("2027-03-28T01:00Z"), 2 * HOUR), (utc("2027-10-31T01:00Z"), HOUR),
    )  # fmt: skip
    assert len(BERLIN.changes) == 1 + 2 * YEARS_AHEAD
    assert BERLIN.offset_at(NOW) == HOUR
    assert BERLIN.offset_at(utc("2027-03-28T00:59Z")) == HOUR
    assert BERLIN.offset_at(utc("2027-03-28T01:00Z")) == 2 * HOUR
    assert zone_rules("Asia/Tokyo", NOW).changes == ((utc("2026-12-01T12:00Z"), 9 * HOUR),)


@pytest.mark.parametrize("expression", ["30 2 * * *", "30 * * * *", "0 0 31 2 *", "*/5 9-17 * * 1-5"])
def test_the_same_rules_move_nothing(expression: str) -> None:
    assert moved(cron_timetable([expression], "Europe/Berlin"), BERLIN) is None


@pytest.mark.parametrize(
    ("expression", "was", "becomes"),
    [
        # Formerly 02:30 of that night existed; now it is in the gap, and made up for at its end.
        ("30 2 * * *", "2027-03-28T01:30Z", "2027-03-28T01:00Z"),
        ("0 12 * * *", "2027-03-28T11:00Z", "2027-03-28T10:00Z"),
        ("0 12 1 7 *", "2027-07-01T11:00Z", "2027-07-01T10:00Z"),
    ],
)
def test_a_clock_change_that_comes_moves_the_first_slot_after_it(expression: str, was: str, becomes: str) -> None:
    assert moved(cron_timetable([expression], "Europe/Berlin"), abolished()) == (utc(was), utc(becomes))


def test_a_clock_change_that_is_given_up_moves_slots_back() -> None:
    tokyo = cron_timetable(["0 12 * * *"], "Asia/Tokyo")
    summer = ((utc("2027-05-01T00:00Z"), 10 * HOUR), (utc("2027-09-01T00:00Z"), 9 * HOUR))
    former = zone_rules("Asia/Tokyo", NOW)
    former = replace(former, changes=former.changes + summer)
    assert moved(tokyo, former) == (utc("2027-05-01T02:00Z"), utc("2027-05-01T03:00Z"))


@pytest.mark.parametrize("expression", ["30 * * * *", "* * * * *", "0 */2 * * *"])
def test_whole_hours_do_not_move_what_follows_elapsed_time(expression: str) -> None:
    expected = None
    if expression == "0 */2 * * *":
        # Even hours of the clock are other instants after a shift by one.
        expected = (utc("2027-03-28T01:00Z"), utc("2027-03-28T02:00Z"))
    assert moved(cron_timetable([expression], "Europe/Berlin"), abolished()) == expected


def test_a_slot_that_is_new_or_no_more() -> None:
    schedule = cron_timetable(["0 12 * * *"], "Europe/Berlin", end=utc("2027-03-28T10:30Z"))
    assert moved(schedule, abolished()) == (None, utc("2027-03-28T10:00Z"))
    schedule = cron_timetable(
        ["0 12 * * *"], "Europe/Berlin", start=utc("2027-03-28T10:30Z"), end=utc("2027-03-28T12:00Z")
    )
    assert moved(schedule, abolished()) == (utc("2027-03-28T11:00Z"), None)


def test_what_names_instants_never_moves() -> None:
    assert moved(every_timetable(HOUR, NOW, zone="Europe/Berlin"), abolished()) is None
    assert moved(at_timetable([utc("2027-07-01T12:00Z")], zone="Europe/Berlin"), abolished()) is None


def test_nothing_is_told_of_what_has_passed() -> None:
    later = utc("2031-11-01T12:00Z")
    found = moved_slots(cron_timetable(["0 12 * * *"], "Europe/Berlin"), abolished(), later)
    assert found is None, "the rules that were kept end in winter"


@given(
    hour=st.integers(0, 23), minute=st.integers(0, 59), shift=st.sampled_from([-60, -30, 30, 60]),
    day=st.integers(0, 1500),
    expression=st.sampled_from(["{m} {h} * * *", "{m} * * * *", "{m} */3 * * *", "{m} {h} 1 * *"]),
)  # fmt: skip
@settings(deadline=None)
def test_the_first_difference_is_the_one_that_a_whole_comparison_finds(
    hour: int, minute: int, shift: int, day: int, expression: str
) -> None:
    rules = zone_rules("Asia/Kolkata", NOW)
    former = replace(
        rules,
        changes=(
            *rules.changes,
            (NOW.replace(second=0) + timedelta(days=day), 330 * timedelta(minutes=1) + shift * timedelta(minutes=1)),
        ),
    )
    schedule = cron_timetable([expression.format(m=minute, h=hour)], "Asia/Kolkata")
    until = min(former.until, NOW + timedelta(days=day + 40))
    was, becomes = set(schedule.under(former).window(NOW, until)), set(schedule.window(NOW, until))
    expected = None
    if was != becomes:
        expected = (min(was - becomes, default=None), min(becomes - was, default=None))
    assert moved(schedule, former) == expected

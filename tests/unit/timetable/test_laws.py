"""Laws that hold for every timetable, whatever it was made from."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotkeeper.timetable import (
    RepeatedTime,
    SkippedTime,
    Timetable,
    at_timetable,
    cron_timetable,
    every_timetable,
    load_zone,
)
from unit.timetable.inputs import ODD_ZONES, clock_changes, expressions, instants, zones

DAY = timedelta(days=1)


@st.composite
def timetables(draw: st.DrawFn) -> Timetable:
    bounds = {
        "start": draw(st.none() | instants(1990, 2010)),
        "end": draw(st.none() | instants(2030, 2050)),
    }
    kind = draw(st.sampled_from(["cron", "cron", "cron", "every", "at"]))
    if kind == "cron":
        return cron_timetable(
            draw(st.lists(expressions(), min_size=1, max_size=3)),
            draw(zones()),
            skipped_time=draw(st.sampled_from(SkippedTime)),
            repeated_time=draw(st.sampled_from(RepeatedTime)),
            **bounds,
        )
    if kind == "every":
        period = timedelta(seconds=draw(st.integers(600, 400 * 86400)))
        return every_timetable(period, draw(instants(1980, 2060)).replace(microsecond=0), **bounds)
    listed = st.lists(instants(1980, 2060).map(lambda i: i.replace(microsecond=0)), min_size=1, max_size=20)
    return at_timetable(draw(listed), **bounds)


@st.composite
def spans(draw: st.DrawFn) -> tuple[datetime, datetime, datetime]:
    """Three instants in order, a few days apart."""
    first = draw(instants(1985, 2055))
    steps = st.integers(0, 5 * 86400).map(lambda seconds: timedelta(seconds=seconds))
    second = first + draw(steps)
    return first, second, second + draw(steps)


@given(timetables(), spans())
@settings(max_examples=100, deadline=None)
def test_windows_add_up_and_ascend(timetable: Timetable, span: tuple[datetime, datetime, datetime]) -> None:
    a, b, c = span
    whole = timetable.window(a, c)
    assert timetable.window(a, b) + timetable.window(b, c) == whole
    assert all(earlier < later for earlier, later in pairwise(whole))
    assert all(a < slot <= c and slot.tzinfo is UTC and not slot.microsecond for slot in whole)
    assert timetable.count(a, c) == len(whole)
    for n in (0, 1, 3, len(whole), len(whole) + 1):
        assert timetable.window(a, c, limit=n) == whole[:n]
        assert timetable.newest(a, c, n) == (whole[-n:] if n else [])


@given(timetables(), spans())
@settings(max_examples=100, deadline=None)
def test_next_and_previous_are_inverse(timetable: Timetable, span: tuple[datetime, datetime, datetime]) -> None:
    a, _, c = span
    following = timetable.next(a)
    whole = timetable.window(a, c)
    if following is None:
        assert whole == []
        return
    assert following > a
    assert whole[:1] == ([following] if following <= c else [])
    assert timetable.window(a, following) == [following]
    assert timetable.next(following - timedelta(microseconds=1)) == following
    before = timetable.previous(following)
    if before is not None:
        assert before <= a
        assert timetable.next(before) == following
        assert timetable.count(before, following) == 1
    after = timetable.next(following)
    if after is not None:
        assert timetable.previous(after) == following


@given(st.data(), zones(), st.integers(0, 1439))
@settings(max_examples=60, deadline=None)
def test_a_fixed_time_is_one_slot_on_each_day(data: st.DataObject, zone: str, minute: int) -> None:
    """The sentence of the docs: if the hour is not a star, nothing is skipped or doubled."""
    year = data.draw(st.integers(1970, 2098))
    changes = clock_changes(zone, year) or [datetime(year, 7, 1, tzinfo=UTC)]
    middle = data.draw(st.sampled_from(changes))
    timetable = cron_timetable([f"{minute % 60} {minute // 60} * * *"], zone)
    slots = timetable.window(middle - 4 * DAY, middle + 4 * DAY)
    named = [_named_date(timetable.local(slot), minute) for slot in slots]
    shown = {timetable.local(middle + timedelta(hours=k)).date() for k in range(-84, 85)}
    assert len(set(named)) == len(named), "twice on one day"
    assert shown - set(named) <= {min(shown), max(shown)}, "a day without"
    for earlier, later in pairwise(slots):
        # From one day's slot to the next: a day, give or take what the clock jumps. Two calendar days that
        # never were (Kwajalein 1993, Samoa 2011) took 24 hours out of the clock, not out of elapsed time.
        assert abs(later - earlier - DAY) <= timedelta(hours=3), (earlier, later)


def _named_date(local: datetime, minute: int) -> date:
    """The day whose ``minute`` a slot stands for: one moved out of a gap before midnight belongs to the day before."""
    return local.date() if minute <= 60 * local.hour + local.minute else local.date() - DAY


def test_every_fixed_minute_of_a_year_is_there_once() -> None:
    """All 365 dates of a year with two changes, for each time around them, by plain enumeration."""
    for zone in ("Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Cairo"):
        for text in (
            "0 0 * * *",
            "30 0 * * *",
            "1 1 * * *",
            "59 1 * * *",
            "0 2 * * *",
            "15 2 * * *",
            "59 23 * * *",
        ):
            timetable = cron_timetable([text], zone)
            midnight = datetime(2026, 1, 1, tzinfo=load_zone(zone)).astimezone(UTC)
            next_year = datetime(2027, 1, 1, tzinfo=load_zone(zone)).astimezone(UTC)
            before = timedelta(seconds=1)
            slots = timetable.window(midnight - before, next_year - before)
            dates = [timetable.local(slot).date() for slot in slots]
            assert len(slots) == len(set(dates)) == 365, (zone, text)


@pytest.mark.parametrize("zone", ODD_ZONES)
def test_c025_half_hours_never_stop_at_any_change(zone: str) -> None:
    timetable = cron_timetable(["*/30 * * * *"], zone)
    for change in clock_changes(zone, 2010) + clock_changes(zone, 2018):
        slots = timetable.window(change - timedelta(hours=6), change + timedelta(hours=6))
        assert all(later - earlier == timedelta(minutes=30) for earlier, later in pairwise(slots))
        assert [timetable.next(slot) for slot in slots[:-1]] == slots[1:]


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("0 0 29 2 *", "2096-03-01", "2104-02-29"),  # 2100 is no leap year
        ("0 0 29 2 *", "2026-01-01", "2028-02-29"),
        ("59 23 31 12 *", "2099-12-31", "2099-12-31"),
    ],
)
def test_long_waits(text: str, after: str, expected: str) -> None:
    timetable = cron_timetable([text])
    asked = datetime.fromisoformat(after).replace(tzinfo=UTC)
    following = timetable.next(asked)
    assert following is not None
    assert following.date().isoformat() == expected
    assert timetable.previous(following + DAY) == following


@pytest.mark.parametrize("text", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"])
def test_c004_a_date_that_never_comes_is_accepted(text: str) -> None:
    timetable = cron_timetable([text], "Europe/Berlin")
    asked = datetime(2026, 5, 1, tzinfo=UTC)
    assert timetable.next(asked) is None
    assert timetable.previous(asked) is None
    assert timetable.count(datetime(1971, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)) == 0


def test_the_ends_of_time() -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Amsterdam"):
        timetable = cron_timetable(["0 0 1 1 *"], zone)
        assert timetable.next(last) is None
        assert timetable.previous(first) is None
        assert timetable.next(first) is not None
        assert timetable.previous(last) is not None
        # Two years at either end are left out, so that no zone carries an instant over the edge.
        assert 1 <= timetable.count(first, first + 5 * 365 * DAY) <= 4
        assert 1 <= timetable.count(last - 5 * 365 * DAY, last) <= 4


def test_counting_and_the_newest_of_a_long_absence_walk_nothing() -> None:
    timetable = cron_timetable(["* * * * *"], "Europe/Berlin")
    after, until = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
    assert timetable.count(after, until) == (until - after) // timedelta(minutes=1)
    assert timetable.newest(after, until, 2) == [until - timedelta(minutes=1), until]
    assert timetable.window(after, until, limit=1) == [after + timedelta(minutes=1)]

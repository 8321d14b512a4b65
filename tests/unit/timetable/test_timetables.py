"""The three flavours: bounds, texts, local time, and what each refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from slotkeeper.errors import InvalidField, UnknownTimeZone
from slotkeeper.timetable import (
    RepeatedTime,
    SkippedTime,
    Timetable,
    at_timetable,
    cron_timetable,
    every_timetable,
    load_zone,
)
from unit.timetable.oracle import utc


def _times(slots: list[datetime]) -> list[str]:
    return [f"{slot:%d %H:%M}" for slot in slots]


BERLIN_FORWARD = (utc("2026-03-28T12:00Z"), utc("2026-03-29T12:00Z"))  # 02:00 becomes 03:00 at 01:00Z
BERLIN_BACK = (utc("2026-10-24T12:00Z"), utc("2026-10-25T12:00Z"))  # 03:00 becomes 02:00 at 01:00Z


@pytest.mark.parametrize(
    ("text", "skipped", "slots"),
    [
        ("30 2 * * *", "RunAfter", ["29 01:00"]),
        ("30 2 * * *", "Skip", []),
        ("0,30 2,3 * * *", "RunAfter", ["29 01:00", "29 01:30"]),  # 02:00, 02:30 and 03:00 are one
        ("0,30 2,3 * * *", "Skip", ["29 01:00", "29 01:30"]),
        (
            "30 */2 29 3 *",
            "RunAfter",
            ["28 23:30", "29 02:30", "29 04:30", "29 06:30", "29 08:30", "29 10:30"],
        ),
        ("30 */2 29 3 *", "Skip", ["28 23:30", "29 02:30", "29 04:30", "29 06:30", "29 08:30", "29 10:30"]),
    ],
)
def test_skipped_time(text: str, skipped: str, slots: list[str]) -> None:
    timetable = cron_timetable([text], "Europe/Berlin", skipped_time=SkippedTime(skipped))
    assert _times(timetable.window(*BERLIN_FORWARD)) == slots


@pytest.mark.parametrize(
    ("text", "repeated", "slots"),
    [
        ("30 2 * * *", "RunOnce", ["25 00:30"]),
        ("30 2 * * *", "RunTwice", ["25 00:30", "25 01:30"]),
        ("0 1-3 * * *", "RunOnce", ["24 23:00", "25 00:00", "25 02:00"]),
        ("0 1-3 * * *", "RunTwice", ["24 23:00", "25 00:00", "25 01:00", "25 02:00"]),
        ("0 */2 25 10 *", "RunOnce", ["24 22:00", "25 00:00", "25 01:00", "25 03:00", "25 05:00"]),
    ],
)
def test_repeated_time(text: str, repeated: str, slots: list[str]) -> None:
    timetable = cron_timetable([text], "Europe/Berlin", repeated_time=RepeatedTime(repeated))
    assert _times(timetable.window(*BERLIN_BACK))[: len(slots)] == slots


def test_each_expression_of_a_list_is_classed_alone() -> None:
    timetable = cron_timetable(["30 2 * * *", "15 * * * *"], "Europe/Berlin")
    night = timetable.window(utc("2026-10-24T23:59Z"), utc("2026-10-25T02:00Z"))
    assert _times(night) == ["25 00:15", "25 00:30", "25 01:15"]
    # In the second pass only one of them fires, after it the other comes first again.
    both = cron_timetable(["5 3 * * *", "30 * * * *"], "Europe/Berlin")
    assert both.next(utc("2026-10-25T01:45Z")) == utc("2026-10-25T02:05Z")
    assert both.previous(utc("2026-10-25T02:05Z")) == utc("2026-10-25T01:30Z")


@pytest.mark.parametrize("end", [None, utc("2026-11-01T00:00Z")])
def test_a_rare_time_is_found_in_the_second_pass_from_after_it_in_the_first(end: datetime | None) -> None:
    # Only on this date, so that the next time by name is a year away: the search must not leap over the second pass.
    timetable = cron_timetable(["10,40 2 25 10 *"], "Europe/Berlin", repeated_time=RepeatedTime.RUN_TWICE, end=end)
    first, second = utc("2026-10-25T00:10Z"), utc("2026-10-25T01:10Z")
    assert timetable.next(first + timedelta(minutes=40)) == second
    assert timetable.next(second) == second + timedelta(minutes=30)
    begun = cron_timetable(["10,40 2 25 10 *"], "Europe/Berlin", start=utc("2026-01-01T00:00Z"))
    for at in (second - timedelta(minutes=5), second + timedelta(minutes=5)):
        assert begun.previous(at) == first + timedelta(minutes=30)
    assert begun.previous(first + timedelta(minutes=1)) == first


def test_a_missing_calendar_day_has_no_slot() -> None:
    # Samoa had no 30 December 2011; 24 hours are no gap to be made up for.
    timetable = cron_timetable(["30 2 * * *"], "Pacific/Apia")
    slots = timetable.window(utc("2011-12-29T00:00Z"), utc("2012-01-01T00:00Z"))
    assert [f"{timetable.local(slot):%m-%d %H:%M}" for slot in slots] == [
        "12-29 02:30",
        "12-31 02:30",
        "01-01 02:30",
    ]


def test_several_expressions_on_one_instant_are_one_slot() -> None:
    timetable = cron_timetable(["0 0 * * *", "@daily", "*/30 0 * * 1"])
    monday = utc("2026-06-01T00:00Z")
    slots = timetable.window(monday - timedelta(minutes=1), monday + timedelta(hours=1))
    assert slots == [monday, monday + timedelta(minutes=30)]
    assert timetable.count(monday - timedelta(minutes=1), monday + timedelta(days=1)) == 3


def test_start_is_within_and_end_is_not() -> None:
    start, end = utc("2026-06-01T01:00Z"), utc("2026-06-01T03:00Z")
    far = utc("2020-01-01T00:00Z"), utc("2030-01-01T00:00Z")
    hourly = [start, start + timedelta(hours=1)]
    listed = [start - timedelta(hours=1), *hourly, end]
    timetables = [
        cron_timetable(["0 * * * *"], start=start, end=end),
        every_timetable(timedelta(hours=1), utc("2000-01-01T00:00Z"), start=start, end=end),
        at_timetable(listed, start=start, end=end),
        at_timetable(listed, start=start - timedelta(microseconds=1), end=end - timedelta(microseconds=1)),
    ]
    for timetable in timetables:
        assert timetable.window(*far) == hourly
        assert timetable.newest(*far, 5) == hourly
        assert timetable.count(*far) == 2
        assert timetable.next(far[0]) == start
        assert timetable.next(hourly[-1]) is None
        assert timetable.previous(far[1]) == hourly[-1]
        assert timetable.previous(start) is None
    late = cron_timetable(["0 * * * *"], start=start + timedelta(microseconds=1))
    assert late.next(far[0]) == hourly[1]


def test_a_slot_made_up_for_keeps_to_the_bounds() -> None:
    after_gap = utc("2026-03-29T01:00Z")
    for start, slot in ((after_gap, after_gap), (after_gap + timedelta(minutes=1), None)):
        timetable = cron_timetable(["30 2 * * *"], "Europe/Berlin", start=start)
        assert timetable.previous(after_gap + timedelta(hours=1)) == slot
    assert cron_timetable(["30 2 * * *"], "Europe/Berlin", end=after_gap).next(BERLIN_FORWARD[0]) is None


def test_a_start_beyond_the_search_is_found_all_the_same() -> None:
    timetable = cron_timetable(["0 0 29 2 *"], start=utc("2089-01-01T00:00Z"))
    assert timetable.next(utc("1980-01-01T00:00Z")) == utc("2092-02-29T00:00Z")


def test_every_counts_and_finds_the_newest_without_walking() -> None:
    anchor = utc("2026-10-23T05:00Z")
    odd = every_timetable(timedelta(seconds=601), anchor)
    assert odd.newest(anchor, anchor + timedelta(seconds=601_000), 1) == [anchor + timedelta(seconds=601_000)]
    assert odd.count(anchor, anchor + timedelta(seconds=601_000)) == 1000
    assert odd.next(anchor - timedelta(days=9999)) == anchor


def test_at_takes_any_order_and_each_instant_once() -> None:
    a, b = utc("2026-06-01T01:00Z"), utc("2026-06-02T01:00Z")
    same_as_b = b.astimezone(timezone(timedelta(hours=5)))
    timetable = at_timetable([b, a, same_as_b])
    assert timetable.window(a - timedelta(1), b) == [a, b]
    assert timetable.resolved == "at 2 times"
    assert timetable.next(b) is None


@pytest.mark.parametrize(
    ("timetable", "resolved"),
    [
        (cron_timetable(["  30  2 * *\tMON ", "@Daily"]), "30 2 * * MON;@Daily"),
        (every_timetable(timedelta(minutes=10), utc("2026-01-01T00:00Z")), "every 600s"),
        (at_timetable([utc("2026-01-01T00:00Z")]), "at 1 time"),
    ],
)
def test_resolved(timetable: Timetable, resolved: str) -> None:
    assert timetable.resolved == resolved
    assert timetable.zone == "Etc/UTC"
    assert timetable.differs_from_vixie_cron is None


def test_local_tells_the_passes_of_an_overlap_apart() -> None:
    timetable = cron_timetable(["30 * * * *"], "Europe/Berlin")
    first, second = timetable.window(utc("2026-10-25T00:00Z"), utc("2026-10-25T02:00Z"))
    locals_ = timetable.local(first), timetable.local(second)
    assert [f"{local:%H:%M %z}" for local in locals_] == ["02:30 +0200", "02:30 +0100"]
    assert [local.fold for local in locals_] == [0, 1]
    assert timetable.local(second).astimezone(UTC) == second


def test_instants_in_any_zone_mean_the_same() -> None:
    timetable = cron_timetable(["*/10 * * * *"], "Europe/Berlin")
    second_pass = datetime(2026, 10, 25, 2, 25, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    assert timetable.next(second_pass) == utc("2026-10-25T01:30Z")
    assert timetable.next(second_pass.replace(fold=0)) == utc("2026-10-25T00:30Z")


def test_naive_datetimes_are_refused() -> None:
    naive, aware = datetime(2026, 1, 1), utc("2026-01-01T00:00Z")  # noqa: DTZ001
    timetable = cron_timetable(["0 * * * *"])
    for ask in (
        lambda: timetable.next(naive),
        lambda: timetable.previous(naive),
        lambda: timetable.window(naive, aware),
        lambda: timetable.count(aware, naive),
        lambda: timetable.newest(aware, naive, 1),
        lambda: timetable.local(naive),
        lambda: cron_timetable(["0 * * * *"], start=naive),
        lambda: every_timetable(timedelta(hours=1), naive),
        lambda: at_timetable([naive]),
    ):
        with pytest.raises(TypeError, match="with a time zone"):
            ask()


def test_an_empty_window_has_no_slots() -> None:
    timetable = cron_timetable(["* * * * *"])
    later, earlier = utc("2026-01-02T00:00Z"), utc("2026-01-01T00:00Z")
    assert timetable.window(later, earlier) == []
    assert timetable.newest(later, earlier, 3) == []
    assert timetable.count(later, earlier) == 0
    assert timetable.window(later, later) == []


def test_refusals_name_the_field() -> None:
    a = utc("2026-01-01T00:00Z")
    for field, make in {
        "spec.cron": lambda: cron_timetable([]),
        "spec.cron[2]": lambda: cron_timetable(["0 0 * * *", "@daily", "0 0 * *"]),
        "spec.every.periodSeconds": lambda: every_timetable(timedelta(0), a),
        "spec.every.anchorTime": lambda: every_timetable(timedelta(hours=1), a.replace(microsecond=1)),
        "spec.at": lambda: at_timetable([]),
        "spec.at[1]": lambda: at_timetable([a, a.replace(microsecond=500_000)]),
    }.items():
        with pytest.raises(InvalidField) as caught:
            make()
        assert caught.value.field == field
    with pytest.raises(InvalidField):
        every_timetable(timedelta(seconds=1.5), a)
    with pytest.raises(UnknownTimeZone):
        at_timetable([a], zone="Mars/Olympus")
    assert load_zone("Etc/UTC").key == "Etc/UTC"

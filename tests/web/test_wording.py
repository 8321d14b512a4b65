"""How instants and durations are written, and what a rule says of the nights on which the clock changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from slotkeeper.store.web import DashboardSchedule
from slotkeeper.timetable import load_zone
from slotkeeper.web.upcoming import rule_of
from slotkeeper.web.wording import duration, instant, local, relative, rfc3339

NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)


def schedule(**spec: Any) -> DashboardSchedule:
    nothing: dict[str, Any] = dict.fromkeys(DashboardSchedule.__dataclass_fields__)
    return replace(DashboardSchedule(**nothing), spec=spec, type="t")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (0.25, "0.2 s"), (12.6, "13 s"), (59.9, "60 s"), (60, "1 min"), (90, "1 min 30 s"), (7200, "2 h"),
     (7260, "2 h 1 min"), (7219, "2 h"), (86400 * 3 + 3600 * 4, "3 d 4 h")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
    assert duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (0.9, "now"),
        (-0.9, "now"),
        (5, "in 5 s"),
        (-5, "5 s ago"),
        (200, "in 3 min 20 s"),
        (-90000, "1 d 1 h ago"),
    ],
)
def test_relative_times(seconds: float, text: str) -> None:
    assert relative(NOW + timedelta(seconds=seconds), NOW) == text


def test_instants() -> None:
    there = datetime(2026, 3, 28, 13, 0, 0, 5, tzinfo=load_zone("Europe/Berlin"))
    assert instant(there) == "2026-03-28 12:00:00"
    assert rfc3339(there) == "2026-03-28T12:00:00.000005Z"
    assert local(there, load_zone("America/New_York")) == "2026-03-28 08:00:00 -04:00"


def test_c019_slots_to_come_tell_where_the_clock_changes() -> None:
    rule = rule_of(schedule(cron=["30 2 * * *"], timeZone="Europe/Berlin"))
    assert (rule.text, rule.zone) == ("30 2 * * *", "Europe/Berlin")
    slots = rule.upcoming(datetime(2026, 3, 29, 1, 0, tzinfo=UTC), 3, NOW)
    assert [(f"{item.slot:%d %H:%M}", f"{item.local:%H:%M}") for item in slots] == [
        ("29 01:00", "03:00"), ("30 00:30", "02:30"), ("31 00:30", "02:30"),
    ]  # fmt: skip
    assert [item.note for item in slots] == [
        "02:30 does not exist: first instant after the gap; the clock went forward by 1 h: +01:00 to +02:00",
        None,
        None,
    ]


def test_the_clock_going_back() -> None:
    rule = rule_of(schedule(cron=["0 4 * * *"], timeZone="Europe/Berlin"))
    slots = rule.upcoming(datetime(2026, 10, 24, 2, tzinfo=UTC), 2, datetime(2026, 10, 24, tzinfo=UTC))
    assert [item.note for item in slots] == [None, "the clock went back by 1 h: +02:00 to +01:00"]


def test_the_last_slots_are_fewer() -> None:
    rule = rule_of(schedule(at=["2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z"]))
    assert len(rule.upcoming(datetime(2026, 3, 29, tzinfo=UTC), 10, NOW)) == 2
    assert rule.upcoming(None, 10, NOW) == []
    assert rule.text == "at 2 times"


def test_a_spec_that_this_version_cannot_read_is_said_to_be_so() -> None:
    rule = rule_of(schedule(cron=["* * * * *"], timeZone="Mars/Olympus"))
    assert (rule.text, rule.zone, rule.upcoming(NOW, 10, NOW)) == ("not readable by this version", "Mars/Olympus", [])

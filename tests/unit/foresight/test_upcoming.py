"""The slots to come, and why there are none."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from slotkeeper.errors import UnknownTimeZone
from slotkeeper.foresight import upcoming
from slotkeeper.foresight.upcoming import first_instant
from slotkeeper.timetable import spread_offset
from unit.foresight.schedules import at, schedule

NIGHTLY = {"cron": ["30 2 * * *"], "timeZone": "Europe/Berlin"}


def test_slots_at_or_after_the_beginning() -> None:
    found = upcoming(schedule(cron=["0 * * * *"]), begin=at("2027-01-01 10:00"), count=2)
    assert [slot.slot for slot in found.slots] == [at("2027-01-01 10:00"), at("2027-01-01 11:00")]
    assert not found.is_last
    found = upcoming(schedule(cron=["0 * * * *"]), begin=at("2027-01-01 10:00") + timedelta(microseconds=1), count=1)
    assert [slot.slot for slot in found.slots] == [at("2027-01-01 11:00")]


def test_local_times_are_those_of_the_zone_that_is_asked_for() -> None:
    ours = upcoming(schedule(**NIGHTLY), begin=at("2027-01-01 00:00"), count=1).slots[0]
    theirs = upcoming(schedule(**NIGHTLY), begin=at("2027-01-01 00:00"), count=1, zone="Asia/Tokyo").slots[0]
    assert ours.slot == theirs.slot == at("2027-01-01 01:30")
    assert (ours.local.isoformat(), theirs.local.isoformat()) == (
        "2027-01-01T02:30:00+01:00",
        "2027-01-01T10:30:00+09:00",
    )


def test_an_unknown_zone_is_refused_as_the_flag() -> None:
    with pytest.raises(UnknownTimeZone) as caught:
        upcoming(schedule(**NIGHTLY), begin=at("2027-01-01 00:00"), count=1, zone="Mars")
    assert caught.value.field == "--zone"


def test_a_spread_moves_the_due_time_and_not_the_slot() -> None:
    spread = schedule(cron=["0 * * * *"], spreadSeconds=1800)
    (slot,) = upcoming(spread, begin=at("2027-01-01 10:00"), count=1).slots
    assert slot.slot == at("2027-01-01 10:00")
    assert slot.due - slot.slot == spread_offset("billing/report", 1800) != timedelta(0)


def test_changes_of_the_clock_are_marked() -> None:
    notes = [slot.note for slot in upcoming(schedule(**NIGHTLY), begin=at("2027-03-27 00:00"), count=3).slots]
    assert notes[0] is None
    assert notes[1] is not None
    assert "02:30 does not exist" in notes[1]
    # At noon nothing is skipped; the clock is another one all the same.
    noon = schedule(cron=["0 12 * * *"], timeZone="Europe/Berlin")
    notes = [slot.note for slot in upcoming(noon, begin=at("2027-03-27 00:00"), count=3).slots]
    assert notes == [None, "the clock of Europe/Berlin went forward by 1 h: +01:00 to +02:00", None]
    notes = [slot.note for slot in upcoming(noon, begin=at("2027-10-30 00:00"), count=3).slots]
    assert notes == [None, "the clock of Europe/Berlin went back by 1 h: +02:00 to +01:00", None]


def test_the_clock_of_another_zone_is_marked_beside_that_of_the_schedule() -> None:
    """London changes at the same instant as Berlin."""
    found = upcoming(schedule(**NIGHTLY), begin=at("2027-03-27 00:00"), count=2, zone="Europe/London")
    note = found.slots[1].note
    assert note is not None
    assert "02:30 does not exist" in note
    assert "the clock of Europe/London went forward" in note


def test_a_schedule_by_elapsed_time_is_marked_where_its_clock_changes() -> None:
    every = schedule(every={"periodSeconds": 86400}, timeZone="Europe/Berlin")
    notes = [slot.note for slot in upcoming(every, begin=at("2027-03-28 00:00"), count=2).slots]
    assert notes == [None, "the clock of Europe/Berlin went forward by 1 h: +01:00 to +02:00"]


def test_start_and_end_bound_the_slots() -> None:
    bounded = schedule(cron=["0 0 * * *"], startTime="2027-02-01T00:00:00Z", endTime="2027-02-03T00:00:00Z")
    found = upcoming(bounded, begin=at("2027-01-01 00:00"), count=10)
    assert [slot.slot for slot in found.slots] == [at("2027-02-01 00:00"), at("2027-02-02 00:00")]
    assert found.is_last
    assert upcoming(bounded, begin=at("2027-01-01 00:00"), count=2).is_last
    assert not upcoming(bounded, begin=at("2027-01-01 00:00"), count=1).is_last


@pytest.mark.parametrize(
    ("spec", "held", "reason", "words"),
    [
        ({"cron": ["0 0 31 2 *"]}, None, "NeverFires", "only when it is triggered"),
        ({"at": ["2026-01-01T00:00:00Z"]}, None, "Completed", "2026-01-01T00:00:00Z"),
        (NIGHTLY | {"endTime": "2026-12-31T00:00:00Z"}, None, "Completed", "2026-12-30T01:30:00Z"),
        (NIGHTLY | {"suspend": True}, None, "Suspended", "the first would be 2027-01-01T01:30:00Z"),
        (NIGHTLY, "by anna: no bank", "Held", "no bank; the first would be 2027-01-01T01:30:00Z"),
        (NIGHTLY | {"suspend": True}, "held by anna", "Suspended", "spec.suspend"),
        # It would not fire if it were resumed, either: that is the news.
        ({"cron": ["0 0 31 2 *"], "suspend": True}, None, "NeverFires", "no instant"),
    ],
)  # fmt: skip
def test_why_there_are_no_slots(spec: dict[str, object], held: str | None, reason: str, words: str) -> None:
    found = upcoming(replace(schedule(**spec), held=held), begin=at("2027-01-01 00:00"), count=3)
    assert found.slots == ()
    assert found.standstill is not None
    assert found.standstill.reason == reason
    assert words in found.standstill.message


def test_of_a_stored_schedule_a_slot_that_is_not_yet_due_is_still_to_come() -> None:
    spread = schedule(cron=["0 * * * *"], spreadSeconds=1800)
    offset = spread.timing.offset
    now = at("2027-01-01 10:00") + offset / 2
    stored = replace(spread, decided_until=at("2026-12-31 00:00"))
    assert first_instant(spread, now) == now
    (slot,) = upcoming(stored, begin=first_instant(stored, now), count=1).slots
    assert slot.slot == at("2027-01-01 10:00")
    # Once it is due it is not to come any more, and nothing at or before the watermark is.
    late = at("2027-01-01 10:00") + offset + timedelta(seconds=1)
    (slot,) = upcoming(stored, begin=first_instant(stored, late), count=1).slots
    assert slot.slot == at("2027-01-01 11:00")
    edited = replace(spread, decided_until=at("2027-01-01 10:00"))
    (slot,) = upcoming(edited, begin=first_instant(edited, now), count=1).slots
    assert slot.slot == at("2027-01-01 11:00")

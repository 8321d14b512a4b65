"""What an edit would change: slots, fields, and what would fire at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotkeeper.foresight import Difference, Schedule, difference
from slotkeeper.timetable import spread_offset
from unit.foresight.schedules import at, schedule
from unit.timetable.inputs import expressions, instants

NOW = at("2027-01-01 00:00")


def _of(found: Difference, kind: str) -> list[datetime]:
    return [entry.slot.slot for entry in found.of(kind)]


def test_slots_added_removed_and_kept() -> None:
    old, new = schedule(cron=["0 2,4 * * *"]), schedule(cron=["0 4,6 * * *"])
    found = difference(old, new, now=NOW, count=5)
    assert found.change == "Edited"
    assert _of(found, "removed") == [at("2027-01-01 02:00"), at("2027-01-02 02:00")]
    assert _of(found, "kept") == [at("2027-01-01 04:00"), at("2027-01-02 04:00")]
    assert _of(found, "added") == [at("2027-01-01 06:00")]
    assert found.triggered is None


@settings(max_examples=60, deadline=None)
@given(expressions(), expressions(), instants(2020, 2030), st.integers(1, 12), st.booleans())
def test_the_first_slots_of_either_spec_and_no_others(
    before: str, after: str, now: datetime, count: int, suspend: bool
) -> None:
    old, new = schedule(cron=[before], timeZone="Europe/Berlin"), schedule(cron=[after], suspend=suspend)
    found = difference(old, new, now=now, count=count)
    shown = [entry.slot.slot for entry in found.slots]
    assert shown == sorted(set(shown))
    assert len(shown) <= count
    until = shown[-1] if len(shown) == count else datetime(2070, 1, 1, tzinfo=now.tzinfo)
    limit = count + 1
    expected_old = set(old.timing.timetable.window(now, until, limit=limit))
    expected_new = set() if suspend else set(new.timing.timetable.window(now, until, limit=limit))
    assert set(_of(found, "removed")) == expected_old - expected_new
    assert set(_of(found, "added")) == expected_new - expected_old
    assert set(_of(found, "kept")) == expected_old & expected_new


def test_the_slot_of_this_very_instant_is_the_old_specs() -> None:
    found = difference(schedule(cron=["0 * * * *"]), schedule(cron=["0 * * * *"], queue="q"), now=NOW, count=1)
    assert _of(found, "kept") == [at("2027-01-01 01:00")]


def test_a_new_trigger_key_fires_once_and_only_for_what_is_there() -> None:
    plain = schedule(cron=["0 * * * *"])
    keyed, other = replace(plain, trigger_key="1"), replace(plain, trigger_key="2")
    assert difference(keyed, other, now=NOW, count=1).triggered == "2"
    assert difference(keyed, other, now=NOW, count=1).change == "Edited"
    assert difference(plain, keyed, now=NOW, count=1).triggered == "1"
    assert difference(keyed, keyed, now=NOW, count=1).triggered is None
    assert difference(keyed, plain, now=NOW, count=1).triggered is None
    # A key that is there when an object is first seen is recorded, not run.
    assert difference(None, keyed, now=NOW, count=1).triggered is None


def test_fields_with_what_they_mean() -> None:
    old = schedule(cron=["0 * * * *"], payload={"a": 1})
    new = schedule(
        cron=["0 * * * *"], payload={"a": 2}, queue="reports", overlapPolicy="Queue", maxSuccessAgeSeconds=7200
    )
    fields = {field.field: field for field in difference(old, new, now=NOW, count=1).fields}
    assert list(fields) == ["spec.payload", "spec.queue", "spec.overlapPolicy", "spec.maxSuccessAgeSeconds"]
    assert (fields["spec.payload"].old, fields["spec.payload"].new) == ({"a": 1}, {"a": 2})
    assert "keep the old one" in fields["spec.payload"].meaning
    assert "move, too" in fields["spec.queue"].meaning
    assert "from now on" in fields["spec.overlapPolicy"].meaning
    assert fields["spec.maxSuccessAgeSeconds"].old is None
    assert "health" in fields["spec.maxSuccessAgeSeconds"].meaning


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        ({"cron": ["0 * * * *", "30 * * * *"]}, {"cron": ["30 * * * *", "0 * * * *"]}, False),
        ({"cron": ["0 * * * *"]}, {"cron": ["0  *  * * *"]}, False),
        ({"cron": ["0 * * * *"]}, {"cron": ["1 * * * *"]}, True),
        ({"every": {"periodSeconds": 60}}, {"every": {"periodSeconds": 60}, "timeZone": "Europe/Berlin"}, False),
        ({"cron": ["0 * * * *"]}, {"cron": ["0 * * * *"], "timeZone": "Asia/Kathmandu"}, True),
    ],
)
def test_a_field_of_time_says_whether_it_moves_a_slot(
    before: dict[str, object], after: dict[str, object], moves: bool
) -> None:
    found = difference(schedule(**before), schedule(**after), now=NOW, count=4)
    assert [field.meaning for field in found.fields] == ["decides slots, from now on" if moves else "moves no slot"]
    assert bool(found.of("added")) == moves


def test_a_spread_moves_due_times_of_slots_that_are_kept() -> None:
    old, new = schedule(cron=["0 * * * *"]), schedule(cron=["0 * * * *"], spreadSeconds=1800)
    (slot,) = difference(old, new, now=NOW, count=1).slots
    assert slot.kind == "kept"
    assert slot.due_before == slot.slot.slot == at("2027-01-01 01:00")
    assert slot.slot.due == slot.slot.slot + spread_offset("billing/report", 1800)


def test_a_slot_that_has_come_and_is_not_due_keeps_its_due_time() -> None:
    spread = schedule(cron=["0 * * * *"], spreadSeconds=1800)
    in_force = replace(spread, decided_until=at("2026-12-01 00:00"))
    new = schedule(cron=["30 5 * * *"])
    now = at("2027-01-01 10:00") + spread.timing.offset / 2
    (slot,) = difference(in_force, new, now=now, count=1).decided
    assert (slot.slot, slot.due) == (at("2027-01-01 10:00"), at("2027-01-01 10:00") + spread.timing.offset)
    # Of a file nobody knows whether it has been in force; what is held or already decided has no such slot.
    others: list[Schedule] = [
        spread, replace(in_force, held="by anna"), replace(in_force, decided_until=at("2027-01-01 10:00")),
    ]  # fmt: skip
    assert [difference(old, new, now=now, count=1).decided for old in others] == [(), (), ()]


def test_created_deleted_unchanged() -> None:
    one = schedule(cron=["0 * * * *"])
    created, deleted = difference(None, one, now=NOW, count=2), difference(one, None, now=NOW, count=2)
    assert (created.change, deleted.change) == ("Created", "Deleted")
    assert _of(created, "added") == _of(deleted, "removed") == [at("2027-01-01 01:00"), at("2027-01-01 02:00")]
    assert difference(one, one, now=NOW, count=2).change == "Unchanged"
    with pytest.raises(ValueError, match="nothing to compare"):
        difference(None, None, now=NOW, count=2)


def test_a_hold_outlives_an_edit() -> None:
    old, new = replace(schedule(cron=["0 * * * *"]), held="by anna"), schedule(cron=["30 * * * *"])
    found = difference(old, new, now=NOW, count=3)
    assert found.slots == ()
    assert [still.reason for still in found.standstills if still] == ["Held", "Held"]


def test_suspending_removes_every_slot_and_says_why() -> None:
    old, new = schedule(cron=["0 * * * *"]), schedule(cron=["0 * * * *"], suspend=True)
    found = difference(old, new, now=NOW, count=3)
    assert len(found.of("removed")) == len(found.slots) == 3
    before, after = found.standstills
    assert before is None
    assert after is not None
    assert after.reason == "Suspended"

"""Edits, suspension, deletion and restarts at the boundary second: each slot once, under the right spec.

An every-ten-seconds schedule, whose slots all become runs, is changed at 12:00:30 or a microsecond before or after.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from applied_schedules import jobschedule
from scenario import add_worker, connect, one, rows
from slotkeeper.operator.applied import Outcome
from slotkeeper.timetable import spread_offset
from timeline import Timeline, next_generation

NOON = datetime(2026, 6, 5, 12, tzinfo=UTC)
SECOND, INSTANT = timedelta(seconds=1), timedelta(microseconds=1)
BOUNDARIES = [-INSTANT, timedelta(0), INSTANT]
#: Slots that are overdue when the change comes, or not: a ticker looked at 12:00:05, or just before it.
TICKED = [5, 29]
Change = dict[str, Any]
_numbers = itertools.count(1)


def at(second: float) -> datetime:
    return NOON + second * SECOND


@pytest.fixture(scope="module")
def connection(shared_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(shared_dsn) as opened:
        yield opened


def tens(**spec: Any) -> dict[str, Any]:
    every = {"periodSeconds": 10, "anchorTime": "2026-06-05T00:00:00Z"}
    return jobschedule(
        f"edited-{next(_numbers)}",
        **{"every": every, "task": "t", "overlapPolicy": "Allow", "catchUp": {"policy": "RunAll"}, **spec},
    )


def begun(timeline: Timeline, ticked: int = 5, **spec: Any) -> dict[str, Any]:
    """The schedule has been there since 11:59:59; a ticker looked at ``ticked`` seconds past noon."""
    obj = tens(**spec)
    timeline.apply(obj, at(-1))
    timeline.tick(at(ticked))
    return obj


def made(timeline: Timeline) -> list[tuple[float, int]]:
    """(seconds past noon, generation) of every slot on record."""
    query = "select slot, generation, slots from slotkeeper.job where schedule = any (%s) order by slot"
    found = rows(timeline.connection, query, list(timeline.names))
    assert all(row.slots == 1 for row in found)
    return [((row.slot - NOON).total_seconds(), row.generation) for row in found]


def split(until: datetime, old: dict[str, Any], new: dict[str, Any], period: int = 10) -> list[tuple[float, int]]:
    """Slots up to ``until`` are the old generation's, those after it the new one's."""
    return [
        *((second, old["metadata"]["generation"]) for second in range(0, 61, 10) if at(second) <= until),
        *((second, new["metadata"]["generation"]) for second in range(0, 61, period) if at(second) > until),
    ]


@pytest.mark.parametrize("ticked", TICKED)
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(
    "change",
    [
        {"payload": {"a": 1}}, {"queue": "renamed"}, {"priority": 2}, {"task": None, "command": ["true"]},
        {"retry": {"maxAttempts": 2}}, {"overlapPolicy": "Queue"}, {"catchUp": {"policy": "RunAll", "maxRuns": 50}},
        {"attemptDeadlineSeconds": 5}, {"timeZone": "Asia/Tokyo"},
    ],
    ids=lambda change: "-".join(change),
)  # fmt: skip
def test_a_new_generation_of_the_same_calendar_moves_no_slot(
    timeline: Timeline, change: Change, boundary: timedelta, ticked: int
) -> None:
    old = begun(timeline, ticked)
    moment = at(30) + boundary
    new = next_generation(old, **change)
    assert timeline.apply(new, moment).outcome is Outcome.STORED
    timeline.tick(at(60))
    assert made(timeline) == split(moment, old, new)


@pytest.mark.parametrize("ticked", TICKED)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_new_calendar_begins_after_the_edit(timeline: Timeline, boundary: timedelta, ticked: int) -> None:
    old = begun(timeline, ticked)
    moment = at(30) + boundary
    new = next_generation(old, every={"periodSeconds": 15, "anchorTime": "2026-06-05T00:00:00Z"})
    timeline.apply(new, moment)
    assert timeline.health(new["metadata"]["name"]).next_slot == at(30 if boundary < timedelta(0) else 45)
    timeline.tick(moment)
    assert made(timeline) == [slot for slot in split(moment, old, new) if at(slot[0]) <= moment], "nothing at once"
    timeline.tick(at(60))
    assert made(timeline) == split(moment, old, new, period=15)


@pytest.mark.parametrize("resumed", BOUNDARIES)
@pytest.mark.parametrize("suspended", BOUNDARIES)
def test_suspended_time_has_no_slots(timeline: Timeline, suspended: timedelta, resumed: timedelta) -> None:
    old = begun(timeline)
    paused = next_generation(old, suspend=True)
    timeline.apply(paused, at(20) + suspended)
    assert timeline.tick(at(35)) == 0
    again = next_generation(paused, suspend=False)
    timeline.apply(again, at(40) + resumed)
    assert timeline.health(again["metadata"]["name"]).next_slot == at(40 if resumed < timedelta(0) else 50)
    timeline.tick(at(60))
    generation = again["metadata"]["generation"]
    before = [(slot, old["metadata"]["generation"]) for slot in (0, 10, 20) if at(slot) <= at(20) + suspended]
    after = [(slot, generation) for slot in (40, 50, 60) if at(slot) > at(40) + resumed]
    assert made(timeline) == before + after


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_restart_changes_nothing(timeline: Timeline, boundary: timedelta) -> None:
    obj = begun(timeline)
    for _ in range(2):
        timeline.restart()
        assert timeline.apply(obj, at(30) + boundary).outcome is Outcome.UNCHANGED
        timeline.tick(at(30) + boundary)
    timeline.tick(at(60))
    assert made(timeline) == split(at(60), obj, obj)


@pytest.mark.parametrize("seen", [True, False], ids=["deletion-seen", "only-the-new-uid-seen"])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_delete_and_apply_catches_nothing_up(timeline: Timeline, boundary: timedelta, seen: bool) -> None:
    old = begun(timeline)
    if seen:
        timeline.retire(old, at(20))
        assert timeline.tick(at(25)) == 0
    new = next_generation(old, uid="another")
    moment = at(40) + boundary
    timeline.apply(new, moment)
    timeline.tick(at(60))
    gone = [slot for slot in (0, 10, 20, 30, 40) if at(slot) <= (at(20) if seen else moment)]
    statuses = [
        ((slot - NOON).total_seconds(), status, reason)
        for slot, status, reason, _ in timeline.slots(old["metadata"]["name"])
    ]
    assert statuses == [
        *((slot, "cancelled", "ScheduleDeleted") for slot in gone),
        *((slot, "ready", None) for slot in (40, 50, 60) if at(slot) > moment),
    ]


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_new_object_has_no_slot_at_or_before_its_first_instant(timeline: Timeline, boundary: timedelta) -> None:
    timeline.apply(tens(), at(0) + boundary)
    timeline.tick(at(0) + boundary)
    timeline.tick(at(10))
    assert [second for second, _ in made(timeline)] == ([0, 10] if boundary < timedelta(0) else [10])


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_an_invalid_edit_and_its_repair_move_no_slot(timeline: Timeline, boundary: timedelta) -> None:
    old = begun(timeline)
    wrong = next_generation(old, every=None, cron=["61 * * * *"])
    assert timeline.apply(wrong, at(20) + boundary).outcome is Outcome.REFUSED
    timeline.tick(at(30) + boundary)
    repaired = next_generation(old, payload={"a": 1})
    timeline.apply(repaired, at(40) + boundary)
    timeline.tick(at(60))
    assert made(timeline) == split(at(40) + boundary, old, repaired)


def test_start_is_the_first_slot_and_end_is_none(timeline: Timeline) -> None:
    """Slots in [startTime, endTime), and moving them never reaches back."""
    old = begun(timeline, startTime="2026-06-05T12:00:20Z", endTime="2026-06-05T12:00:50Z")
    timeline.tick(at(30))
    assert [second for second, _ in made(timeline)] == [20, 30]
    earlier = next_generation(old, startTime="2026-06-05T12:00:00Z")
    timeline.apply(earlier, at(35))
    timeline.tick(at(70))
    assert [second for second, _ in made(timeline)] == [20, 30, 40]
    later = next_generation(earlier, endTime="2026-06-05T12:02:00Z")
    timeline.apply(later, at(90))
    timeline.tick(at(130))
    assert [second for second, _ in made(timeline)] == [20, 30, 40, 100, 110]


def test_an_edit_of_what_has_completed_begins_after_it(timeline: Timeline) -> None:
    """`at`: an instant that has passed when it is added never fires."""
    old = jobschedule("completed", at=["2026-06-05T12:00:10Z"], task="t")
    timeline.apply(old, at(0))
    timeline.tick(at(20))
    assert timeline.tick(at(40)) == 0, "complete"
    new = next_generation(old, at=["2026-06-05T12:00:10Z", "2026-06-05T12:00:30Z", "2026-06-05T12:00:50Z"])
    timeline.apply(new, at(45))
    timeline.tick(at(60))
    assert [second for second, _ in made(timeline)] == [10, 50]


@pytest.mark.parametrize("policy", ["RunAll", "Skip"])
def test_a_slot_that_an_edit_kept_for_its_spread_keeps_no_due_one_waiting(timeline: Timeline, policy: str) -> None:
    """Its row is there hours before its due time; what falls due meanwhile runs, and it runs when it is due."""
    now: datetime = one(timeline.connection, "select date_trunc('second', clock_timestamp())")
    early = now - 90 * SECOND
    name = next(
        name for name in (f"edited-{next(_numbers)}" for _ in range(1000))
        if spread_offset(f"default/{name}", 86_400) > timedelta(hours=2)
    )  # fmt: skip
    catch_up = {"policy": policy, "graceSeconds": 3600}
    old = jobschedule(name, at=[early.isoformat()], task="t", spreadSeconds=86_400, catchUp=catch_up, queue=name)
    timeline.apply(old, early - SECOND)
    minutely = {"periodSeconds": 60, "anchorTime": (now - timedelta(days=1)).isoformat()}
    new = next_generation(old, at=None, every=minutely, spreadSeconds=0)
    timeline.apply(new, now - 70 * SECOND)
    owner = one(timeline.connection, "select owner from slotkeeper.schedule where name = %s", name)
    (kept,) = rows(timeline.connection, "select id, slot, run_at from slotkeeper.run where owner = %s", owner)
    assert kept.slot == early
    assert kept.run_at == early + spread_offset(f"default/{name}", 86_400)
    worker = add_worker(timeline.connection, queues=[name])
    for slot in (now - 60 * SECOND, now):
        timeline.tick(slot)
        (run,) = worker.claim()
        assert run.slot == slot
        assert worker.claim() == [], "one at a time"
        worker.finish(run)
    waiting = rows(timeline.connection, "select id, behind, run_at from slotkeeper.run where owner = %s", owner)
    assert [tuple(row) for row in waiting] == [(kept.id, False, kept.run_at)]
    timeline.connection.execute("update slotkeeper.run set run_at = clock_timestamp() where id = %s", (kept.id,))
    assert [run.id for run in worker.claim()] == [kept.id]

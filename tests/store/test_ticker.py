"""Materialising: a slot becomes exactly one row, or one record of why it did not, whoever decides it and how often."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import scenario
from scenario import add_schedule, add_worker, one, records, requeue, rows
from slotkeeper.database_clock import boot_seconds
from slotkeeper.decisions import decide_before_edit, decide_due
from slotkeeper.spec import parse_spec
from slotkeeper.store.ticker import DecidedSchedule, DueSchedule, materialise
from slotkeeper.ticker import Ticker
from slotkeeper.timetable import Plan, PlannedRun, SkippedSlots
from slotkeeper.timing import timing

Connection = psycopg.Connection[Any]
SLOT = datetime(2020, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def minutes(count: int, after: datetime = SLOT) -> list[datetime]:
    return [after + number * MINUTE for number in range(count)]


def test_a_slot_becomes_exactly_one_row(connection: Connection) -> None:
    schedule = add_schedule(connection, max_attempts=3, queue="reports")
    start_by, before = datetime.now(UTC) + timedelta(hours=1), one(connection, "select clock_timestamp()")
    assert schedule.materialise([SLOT], start_by=start_by, trigger=1)
    (run,) = schedule.runs()
    assert (run["slot"], run["start_by"], run["trigger"], run["max_attempts"]) == (SLOT, start_by, 1, 3)
    assert (run["state"], run["behind"], run["exclusive"], run["attempt"]) == (0, False, True, 0)
    assert run["run_at"] >= before, "never before it was made: a claim's bound may have passed"
    stored = records(connection, "select watermark, watermark_highest, next_slot from slotkeeper.schedule")[0]
    assert stored == {"watermark": SLOT, "watermark_highest": SLOT, "next_slot": SLOT + MINUTE}


def test_of_two_tickers_with_one_watermark_one_decides(connection: Connection, other: Connection) -> None:
    schedule = add_schedule(connection)
    with connection.transaction():
        assert schedule.materialise([SLOT])
        schedule.watermark = scenario.EPOCH
        assert not schedule.materialise([SLOT], connection=other), "it waits for nobody"
    assert not schedule.materialise([SLOT], connection=other)
    assert schedule.job() == [(SLOT, "ready", None)]


@pytest.mark.parametrize(
    "moved",
    [
        "version = 2", "watermark = watermark + interval '1 s'", "retired_at = now()",
        "suspended = true", "held = true", "unwatched = true",
    ],
)  # fmt: skip
def test_a_schedule_that_has_moved_is_left(connection: Connection, moved: str) -> None:
    schedule, still = add_schedule(connection), add_schedule(connection)
    connection.execute(f"update slotkeeper.schedule set {moved} where id = %s", (schedule.id,))
    decided = [_decided(schedule, runs=[SLOT]), _decided(still, runs=[SLOT])]
    assert materialise(connection, decided) == {schedule.id}
    assert schedule.runs() == []
    assert len(still.runs()) == 1


def test_two_thousand_schedules_due_at_once(connection: Connection, dsn: str) -> None:
    connection.execute(
        "select slotkeeper.store_schedule_v1('default', 'default', 's' || g, 'u', 1, '', false, null, %s::jsonb,"
        " '{}', 'h', 't', 'default', 0::smallint, 0::smallint, 0::smallint, 100, null, 0, 60, 6::smallint, 30, 900,"
        " null, null, %s, %s, %s, true)"
        " from generate_series(1, 2000) g",
        (json.dumps({"at": [SLOT.isoformat()], "task": "t"}), scenario.EPOCH, SLOT, SLOT),
    )
    ticker = Ticker(dsn)
    ticker.tick()
    ticker._session.close()
    found = rows(
        connection, "select count(*) as runs, count(distinct owner) as owners from slotkeeper.run where not behind"
    )
    assert tuple(found[0]) == (2000, 2000)
    assert (
        one(connection, "select count(*) from slotkeeper.schedule where watermark < %s or next_due is not null", SLOT)
        == 0
    )
    assert rows(connection, "select * from slotkeeper.due_v1(10)") == []


def test_ranges_that_do_not_run_are_on_record(connection: Connection) -> None:
    schedule = add_schedule(connection)
    first, second = (
        SkippedSlots(SLOT, SLOT + MINUTE, 2, "Late"),
        SkippedSlots(SLOT + 2 * MINUTE, SLOT + 4 * MINUTE, 3, "Superseded"),
    )
    assert materialise(connection, [_decided(schedule, runs=[SLOT + 5 * MINUTE], skipped=[first, second])]) == set()
    assert schedule.job() == [
        (SLOT, "skipped", "Late"), (SLOT + 2 * MINUTE, "superseded", "Superseded"), (SLOT + 5 * MINUTE, "ready", None),
    ]  # fmt: skip
    assert one(connection, "select array_agg(slots order by slot) from slotkeeper.job") == [2, 3, 1]
    deltas = rows(connection, "select outcome, slot, slots from slotkeeper.state_delta order by id")
    assert [tuple(delta) for delta in deltas] == [(3, SLOT + MINUTE, 2), (1, SLOT + 4 * MINUTE, 3)]


@pytest.mark.parametrize("ended", ["run", "run_done", "run_dead"])
@pytest.mark.parametrize("overlap", ["Skip", "Allow"])
def test_below_a_lowered_watermark_no_slot_is_made_twice(connection: Connection, ended: str, overlap: str) -> None:
    schedule = add_schedule(connection, overlap=overlap, catch_up="RunAll", max_attempts=1)
    worker = add_worker(connection)
    assert schedule.materialise([SLOT])
    if ended != "run":
        worker.finish(worker.claim()[0], "done" if ended == "run_done" else "failed")
    _lower(connection, schedule)
    assert schedule.materialise(minutes(3))
    assert one(connection, f"select count(*) from slotkeeper.{ended} where slot = %s", SLOT) == 1
    assert [slot for slot, _, _ in schedule.job()] == minutes(3)
    assert one(connection, "select count(*) from slotkeeper.run where not behind") == (
        3 - (ended != "run") if overlap == "Allow" else 1
    )


def test_below_a_lowered_watermark_no_skip_is_recorded_twice(connection: Connection) -> None:
    schedule = add_schedule(connection)
    assert schedule.materialise([SLOT])
    add_worker(connection).finish_batch(add_worker(connection).claim())
    late = SkippedSlots(SLOT + MINUTE, SLOT + 2 * MINUTE, 2, "Late")
    assert materialise(connection, [_decided(schedule, skipped=[late], until=SLOT + 2 * MINUTE)]) == set()
    _lower(connection, schedule)
    all_of_them = SkippedSlots(SLOT, SLOT + 4 * MINUTE, 5, "Superseded")
    assert materialise(connection, [_decided(schedule, skipped=[all_of_them], runs=[SLOT + 5 * MINUTE])]) == set()
    on_record = rows(connection, "select status, sum(slots)::int as slots from slotkeeper.job group by 1 order by 1")
    assert [tuple(row) for row in on_record] == [("done", 1), ("ready", 1), ("skipped", 2), ("superseded", 2)]


def test_the_watermark_that_was_lowered_rises_to_where_it_was(connection: Connection) -> None:
    schedule = add_schedule(connection)
    assert schedule.materialise([SLOT + 5 * MINUTE])
    _lower(connection, schedule)
    assert schedule.materialise([SLOT])
    stored = rows(connection, "select watermark, watermark_highest from slotkeeper.schedule")[0]
    assert tuple(stored) == (SLOT, SLOT + 5 * MINUTE)
    assert schedule.materialise([SLOT + 5 * MINUTE, SLOT + 6 * MINUTE])
    assert [slot for slot, _, _ in schedule.job()] == [SLOT, SLOT + 5 * MINUTE, SLOT + 6 * MINUTE]


def test_nothing_is_due_while_the_ticker_is_paused(connection: Connection) -> None:
    """After a forward step of the clock; a ticker that asked for the next slot must not spin meanwhile."""
    add_schedule(connection, next_due=SLOT)
    assert len(rows(connection, "select * from slotkeeper.due_v1(10)")) == 1
    connection.execute("update slotkeeper.fleet set tick_paused_until = clock_timestamp() + interval '1 hour'")
    assert rows(connection, "select * from slotkeeper.due_v1(10)") == []
    assert 3500 < one(connection, "select slotkeeper.next_due_v1()") <= 3600


@pytest.mark.parametrize("restarted", [False, True])
def test_c048_a_forward_step_of_the_clock_is_seen_before_anything_is_decided(
    connection: Connection, dsn: str, restarted: bool
) -> None:
    """An hour ahead: a reaper may look a second later, when the slots of that hour would be decided already.

    ``restarted``: the server, too, as when another takes over whose clock is ahead.
    """
    schedule = add_schedule(connection, spec=json.dumps({"every": {"periodSeconds": 300}, "task": "t"}))
    ticker = Ticker(dsn)
    ticker.tick()
    now = one(connection, "select clock_timestamp()")
    assert ticker._clock.expected() is not None, "it looks at the clock even while nothing is due"
    ticker._clock.tell(now - timedelta(hours=1), boot_seconds())  # what it would have been told before the step
    connection.execute("update slotkeeper.schedule set next_due = %s", (SLOT,))
    if restarted:
        connection.execute("update slotkeeper.fleet set postmaster_start = postmaster_start - interval '1 day'")
    ticker.tick()
    assert schedule.runs() == []
    paused = rows(connection, "select reap_pause_reason, tick_paused_until, reap_paused_until from slotkeeper.fleet")[0]
    assert paused.reap_pause_reason == ("PostmasterStart" if restarted else "ClockStep")
    assert min(paused.tick_paused_until, paused.reap_paused_until) >= now
    assert ticker.tick() > 0
    assert schedule.runs() == [], "until the pause ends"
    connection.execute("update slotkeeper.fleet set tick_paused_until = clock_timestamp()")
    ticker.tick()
    ticker._session.close()
    assert len(schedule.runs()) == 1, "a step that stays is believed"


def test_the_most_overdue_come_first(connection: Connection) -> None:
    late, later = add_schedule(connection, next_due=SLOT + MINUTE), add_schedule(connection, next_due=SLOT)
    add_schedule(connection, next_due=datetime.now(UTC) + timedelta(hours=1))
    assert [row.id for row in rows(connection, "select * from slotkeeper.due_v1(10)")] == [later.id, late.id]
    assert [row.id for row in rows(connection, "select * from slotkeeper.due_v1(1)")] == [later.id]
    assert one(connection, "select slotkeeper.next_due_v1()") < 0


def test_a_slot_whose_spread_is_still_to_come_is_kept_by_an_edit_and_exempt_from_overlap(
    connection: Connection,
) -> None:
    now: datetime = one(connection, "select date_trunc('second', clock_timestamp())")
    spec = {"at": [(now - MINUTE).isoformat()], "task": "t", "spreadSeconds": 86_400}
    schedule = add_schedule(connection, spec=json.dumps(spec))
    compiled = timing("default", "spread", parse_spec(spec))
    assert compiled.offset > 2 * MINUTE
    assert schedule.materialise([SLOT])
    (running,) = add_worker(connection).claim()
    due = DueSchedule(schedule.id, schedule.owner, 1, SLOT, now)
    with connection.transaction():
        assert decide_due(due, compiled).plan.runs == ()
        assert materialise(connection, [decide_before_edit(due, compiled)]) == set()
    (kept,) = [run for run in schedule.runs() if run["id"] != running.id]
    assert (kept["slot"], kept["run_at"], kept["behind"]) == (now - MINUTE, now - MINUTE + compiled.offset, True)


def test_a_requeued_slot_below_a_lowered_watermark_stays_one_row(connection: Connection) -> None:
    schedule = add_schedule(connection, max_attempts=1)
    assert schedule.materialise([SLOT])
    worker = add_worker(connection)
    (run,) = worker.claim()
    worker.finish(run, "fatal")
    requeue(connection, run.id)
    _lower(connection, schedule)
    assert schedule.materialise([SLOT])
    assert [row["trigger"] for row in schedule.runs()] == [4]


def _lower(connection: Connection, schedule: scenario.Schedule) -> None:
    """By hand, as after a restore."""
    connection.execute("update slotkeeper.schedule set watermark = %s where id = %s", (scenario.EPOCH, schedule.id))
    schedule.watermark = scenario.EPOCH


def _decided(
    schedule: scenario.Schedule, *, runs: list[datetime] | None = None, skipped: list[SkippedSlots] | None = None,
    until: datetime | None = None,
) -> DecidedSchedule:  # fmt: skip
    planned = tuple(PlannedRun(slot, slot, None, "Schedule") for slot in runs or [])
    until = until or max(runs or [])
    decided = DecidedSchedule(
        schedule.id, 1, schedule.watermark, until, None, None, Plan(planned, tuple(skipped or ()))
    )
    schedule.watermark = until
    return decided


def test_what_falls_due_soon_is_compiled_before(
    connection: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand schedules of one instant must not all be read when it has come: here they can no longer be read."""
    soon = one(connection, "select date_trunc('second', clock_timestamp()) + interval '30 s'")
    anchor = (soon - timedelta(days=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
    spec = json.dumps({"every": {"periodSeconds": 86400, "anchorTime": anchor}, "task": "t"})
    monkeypatch.setattr("slotkeeper.ticker.ticker._AHEAD", 2)
    for _ in range(3):
        add_schedule(connection, spec=spec, next_due=soon)
    later = add_schedule(connection, spec=spec, next_due=soon + timedelta(hours=1))
    ticker = Ticker(dsn)
    assert ticker.tick() == 0, "there is more to compile"
    assert ticker.tick() > 0
    connection.execute("update slotkeeper.schedule_version set spec = '{}'")
    connection.execute(
        "update slotkeeper.schedule set next_due = clock_timestamp(), watermark = %s, watermark_highest = %s",
        (soon - timedelta(days=1, minutes=1),) * 2,
    )
    ticker.tick()
    ticker._session.close()
    ran = rows(connection, "select distinct owner from slotkeeper.run")
    assert len(ran) == 3
    assert (later.owner,) not in ran

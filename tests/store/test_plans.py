"""Plan-proof: whatever statistics say, the hot statements read about as many rows as they change, among very many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from scenario import EPOCH, add_schedule, add_worker, fold, one, rows, sweep
from slotkeeper.store.ticker import DecidedSchedule, materialise
from slotkeeper.timetable import Plan, PlannedRun

Connection = psycopg.Connection[Any]
SLOT = datetime(2020, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MANY, SOME = 20_000, 500
TABLES = ("run", "schedule", "schedule_version", "schedule_state", "owner", "run_dead", "state_delta")


@pytest.fixture(params=["of empty tables", "none at all", "a million rows", "true"])
def crowd(request: pytest.FixtureRequest, connection: Connection) -> Connection:
    """Schedules, each with one row that waits, and 20,000 rows of others; statistics as the parameter says."""
    if request.param == "of empty tables":
        connection.execute("analyze")
    first = add_schedule(connection, overlap="Queue", catch_up="RunAll", late_reason="Late", backoff=(30, 900))
    for table, columns in (
        ("owner", "'kind', 0, 'schedule', {0} + g, 'id', {0} + g"),
        ("schedule", "'name', 's' || g, 'owner', {0} + g, 'id', {0} + g"),
        ("schedule_version", "'schedule', {0} + g"),
        ("schedule_state", "'schedule', {0} + g"),
    ):
        key = {"owner": "id", "schedule": "id"}.get(table, "schedule")
        connection.execute(
            f"insert into slotkeeper.{table} overriding system value"
            f" select (jsonb_populate_record(t, jsonb_build_object({columns.format(first.id)}))).*"
            f" from slotkeeper.{table} t, generate_series(1, {SOME - 1}) g where t.{key} = {first.id}"
        )
    connection.execute(
        "insert into slotkeeper.run (run_at, lane, max_attempts, trigger, task, payload)"
        " select clock_timestamp(), slotkeeper.lane_of('other', 'default', 0::smallint), 6, 5, 't', '{}'"
        " from generate_series(1, %s)", (MANY,),
    )  # fmt: skip
    connection.execute(
        "insert into slotkeeper.run (owner, slot, run_at, version, lane, max_attempts, trigger, exclusive)"
        " select owner, %s, clock_timestamp(), 1,"
        " (select id from slotkeeper.lane where namespace = 'default'), 6, 0, true"
        " from slotkeeper.schedule", (SLOT,),
    )  # fmt: skip
    if request.param == "true":
        connection.execute("analyze")
    elif request.param != "of empty tables":
        lie = 0 if request.param == "none at all" else 1_000_000
        connection.execute(
            "update pg_class set reltuples = %s, relpages = %s where relnamespace = 'slotkeeper'::regnamespace"
            " and relname = any(%s)", (lie, lie // 50, list(TABLES)),
        )  # fmt: skip
    return connection


def reads(connection: Connection) -> tuple[int, int]:
    """Sequential scans of `run`, and the rows that any scan of it has read."""
    connection.execute("select pg_stat_force_next_flush()")
    connection.execute("select pg_stat_clear_snapshot()")
    row = rows(
        connection,
        "select seq_scan, (select sum(idx_tup_read)::int from pg_stat_user_indexes where relname = 'run') as read"
        " from pg_stat_user_tables where relname = 'run'",
    )[0]  # fmt: skip
    return row.seq_scan, row.read


@contextmanager
def no_more_than(connection: Connection, rows_read: int) -> Iterator[None]:
    """What the block does reads at most so many rows of `run`, all of them through an index."""
    scans, before = reads(connection)
    yield
    scans_after, after = reads(connection)
    assert scans_after == scans, "a sequential scan"
    assert after - before <= rows_read, f"{after - before} rows read"


def tick(connection: Connection, slot: datetime, watermark: datetime) -> None:
    decided = [
        DecidedSchedule(row.id, 1, watermark, slot, None, None, Plan((PlannedRun(slot, slot, None, "Schedule"),), ()))
        for row in rows(connection, "select id from slotkeeper.schedule order by id")
    ]
    assert materialise(connection, decided) == set()


def test_nobody_reads_the_whole_table(crowd: Connection) -> None:
    """One life of 500 schedules: a slot beside a waiting run, claim, finish one by one, in a batch, reap, sweep."""
    with no_more_than(crowd, 20 * SOME):
        tick(crowd, SLOT + MINUTE, EPOCH)
    worker = add_worker(crowd)
    with no_more_than(crowd, 10 * SOME):
        first, second = worker.claim(free=SOME // 2), worker.claim(free=SOME // 2)
    assert len(first) == len(second) == SOME // 2
    with no_more_than(crowd, 20 * SOME):
        worker.finish_batch(first)
    with no_more_than(crowd, 20 * SOME):
        for run in second[::4]:
            worker.finish(run, "failed", reason="ValueError")
    left = one(crowd, "select count(*) from slotkeeper.run where state = 1")
    assert left > 100
    worker.expire()
    with no_more_than(crowd, 40 * SOME):
        assert rows(crowd, "select * from slotkeeper.reap_v1(null, false)")[0].given_back == left
    crowd.execute("update slotkeeper.run set start_by = %s where trigger = 0 and first_started_at is null", (SLOT,))
    with no_more_than(crowd, 20 * SOME):
        assert rows(crowd, "select * from slotkeeper.reap_v1(null, false)")[0].skipped > 100


def test_deciding_beside_live_rows_reads_each_schedules_own(crowd: Connection) -> None:
    """500 schedules with a run that has started: each meets its own rows, not those of all."""
    crowd.execute("update slotkeeper.schedule_version set overlap = 0")
    assert len(add_worker(crowd).claim(free=SOME)) == SOME
    with no_more_than(crowd, 20 * SOME):
        tick(crowd, SLOT + MINUTE, EPOCH)
    assert one(crowd, "select count(*) from slotkeeper.slot_skip") == SOME
    crowd.execute("update slotkeeper.schedule_version set overlap = 2, catch_up = 0")
    with no_more_than(crowd, 30 * SOME):
        tick(crowd, SLOT + 2 * MINUTE, SLOT + MINUTE)
    assert one(crowd, "select count(*) from slotkeeper.run where state = 2") == SOME
    with no_more_than(crowd, 0):
        assert fold(crowd) == SOME
    sweep(crowd)  # sweep_orphans reads everything, by design at most a twentieth of the time
    crowd.execute("update slotkeeper.fleet set swept_at = 'epoch', orphans_at = clock_timestamp()")
    with no_more_than(crowd, 10 * SOME):
        crowd.execute("select * from slotkeeper.sweep_v1()")


def test_a_pinned_function_never_compiles_its_plans(connection: Connection) -> None:
    """Before Postgres 18 a pin counts as an enormous cost, for which the server would compile: 5 times slower."""
    pinned = rows(
        connection,
        "select proname as name, proconfig as settings from pg_proc where pronamespace = 'slotkeeper'::regnamespace"
        " and 'enable_hashjoin=off' = any (proconfig)",
    )
    assert len(pinned) > 5
    assert [function.name for function in pinned if "jit=off" not in function.settings] == []

"""Claiming: who gets a run, in which order, and what a claim leaves behind in the tables."""

from __future__ import annotations

import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import scenario
from scenario import add_schedule, add_worker, enqueue, one, reap, rows

Connection = psycopg.Connection[Any]
SLOT = datetime(2020, 1, 1, 12, tzinfo=UTC)


def test_a_claimed_run_is_running_under_the_claims_token(connection: Connection) -> None:
    enqueue(connection)
    worker, token = add_worker(connection), uuid.uuid4()
    (run,) = worker.claim(token=token)
    assert (run.attempt, run.charged, run.lost, run.task, run.token) == (1, 1, 0, "t", token)
    stored = rows(connection, "select state, worker, first_started_at is not null as started from slotkeeper.run")[0]
    assert tuple(stored) == (1, worker.id, True)
    assert one(connection, "select count(*) from slotkeeper.claim_batch where token = %s", token) == 1


def test_claims_take_the_highest_priority_then_the_oldest(connection: Connection) -> None:
    ids = [enqueue(connection, priority=priority).id for priority in (0, -2, 2, 0, 1)]
    worker = add_worker(connection)
    order = [run.id for _ in ids for run in worker.claim(free=1)]
    assert order == [ids[2], ids[4], ids[0], ids[3], ids[1]]


def test_a_run_is_not_claimed_before_it_is_due_and_the_outlook_says_when(connection: Connection) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    enqueue(connection, run_at=soon)
    worker = add_worker(connection)
    assert worker.claim() == []
    assert worker.outlook.run_at == soon


def test_a_worker_without_a_lease_gets_nothing(connection: Connection) -> None:
    enqueue(connection)
    worker = add_worker(connection)
    worker.expire()
    with pytest.raises(psycopg.DatabaseError) as caught:
        worker.claim()
    assert caught.value.sqlstate == "SK002"
    assert one(connection, "select state from slotkeeper.run") == 0


def test_a_worker_gets_only_its_namespaces_and_queues(connection: Connection) -> None:
    enqueue(connection, namespace="billing")
    enqueue(connection, queue="reports")
    mine = enqueue(connection)
    assert [run.id for run in add_worker(connection).claim()] == [mine.id]


def test_a_login_without_a_grant_claims_nothing(connection: Connection) -> None:
    enqueue(connection)
    connection.execute("update slotkeeper.queue_grant set namespace = 'elsewhere'")
    worker = add_worker(connection)
    lane = one(connection, "select id from slotkeeper.lane")
    assert rows(connection, "select * from slotkeeper.lanes_v1(%s)", worker.id) == []
    claimed = rows(
        connection,
        "select * from slotkeeper.work_v1(%s, %s, %s::int[], '{null}', '{null}', null, 9, 0, '{}', '{}', 0, 0, '{}',"
        " false)",
        worker.id, uuid.uuid4(), [lane],
    )  # fmt: skip
    assert [row.id for row in claimed] == [0]


def test_two_claims_at_once_share_the_runs(connection: Connection, other: Connection) -> None:
    ids = {enqueue(connection).id for _ in range(200)}
    workers = [add_worker(connection), add_worker(other)]
    got: list[list[int]] = [[], []]

    def drain(index: int) -> None:
        while batch := workers[index].claim(free=7):
            got[index] += [run.id for run in batch]

    threads = [threading.Thread(target=drain, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got[0] + got[1]) == sorted(ids)


def test_a_claim_waits_for_the_lane_and_then_takes_the_next_rows(connection: Connection, other: Connection) -> None:
    first, second = enqueue(connection), enqueue(connection)
    early, late = add_worker(connection), add_worker(other)
    got: list[int] = []
    with connection.transaction():
        assert [run.id for run in early.claim(free=1)] == [first.id]
        waiting = threading.Thread(target=lambda: got.extend(run.id for run in late.claim(free=1)))
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive(), "the second claim went ahead without the lane"
    waiting.join()
    assert got == [second.id]


def test_a_claim_and_the_reaper_exclude_each_other(connection: Connection, other: Connection) -> None:
    """Without KEY SHARE the reaper could remove a worker that is just claiming: its rows would belong to nobody."""
    enqueue(connection)
    worker = add_worker(connection)
    with connection.transaction():
        worker.claim()
        worker.expire()
        assert reap(other).given_back == 0
        assert one(other, "select count(*) from slotkeeper.worker") == 1
    assert reap(other).given_back == 1


def test_a_resent_claim_returns_the_same_runs(connection: Connection) -> None:
    ids = [enqueue(connection).id for _ in range(5)]
    worker, token = add_worker(connection), uuid.uuid4()
    first = worker.claim(free=3, token=token)
    again = worker.claim(free=3, token=token, resend=True)
    assert [run.id for run in again] == [run.id for run in first] == ids[:3]
    assert {run.attempt for run in again} == {1}
    assert worker.claim(free=3, token=uuid.uuid4(), resend=True) == []


def test_runs_with_one_attempt_or_a_lost_lease_are_not_prefetched(connection: Connection) -> None:
    plenty, single, after = enqueue(connection), enqueue(connection, max_attempts=1), enqueue(connection)
    worker = add_worker(connection)
    assert [run.id for run in worker.claim(free=1, prefetch=10)] == [plenty.id]
    assert [run.id for run in worker.claim(free=0, prefetch=10)] == []
    assert [run.id for run in worker.claim(free=1, prefetch=10)] == [single.id, after.id]


def test_a_run_past_its_start_by_is_not_claimed_but_recorded_as_skipped(connection: Connection) -> None:
    schedule = add_schedule(connection, late_reason="Late", catch_up="Skip", overlap="Allow")
    assert schedule.materialise([SLOT], start_by=SLOT)
    assert add_worker(connection).claim() == []
    assert reap(connection).skipped == 1
    assert schedule.job() == [(SLOT, "skipped", "Late")]


def test_a_started_run_may_pass_its_start_by(connection: Connection) -> None:
    schedule = add_schedule(connection, late_reason="Late", backoff=(0, 0))
    schedule.materialise([SLOT], start_by=datetime.now(UTC) + timedelta(hours=1))
    worker = add_worker(connection)
    (run,) = worker.claim()
    worker.finish(run, "failed", reason="ValueError")
    connection.execute("update slotkeeper.run set start_by = %s", (SLOT,))
    assert reap(connection).skipped == 0
    assert [run.attempt for run in worker.claim()] == [2]


def test_every_claim_is_a_hot_update(connection: Connection) -> None:
    """No index mentions a column that a claim changes, so 2,000 claims leave the indexes alone."""
    connection.execute(
        "insert into slotkeeper.run (run_at, lane, max_attempts, trigger, task, payload)"
        " select clock_timestamp(), slotkeeper.lane_of('default', 'default', 0::smallint), 6, 5, 't', '{}'"
        " from generate_series(1, 2000)"
    )
    worker = add_worker(connection)
    assert sum(len(worker.claim(free=500)) for _ in range(4)) == 2000
    connection.execute("select pg_stat_force_next_flush()")
    updates = rows(connection, "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'run'")[0]
    assert updates.n_tup_upd == updates.n_tup_hot_upd == 2000


def test_no_index_of_run_mentions_a_column_that_a_claim_changes(connection: Connection) -> None:
    changed = {"state", "attempt", "charged", "lost", "returns", "worker", "first_started_at", "token"}
    for definition in rows(connection, "select indexdef from pg_indexes where tablename = 'run'"):
        words = set(definition.indexdef.replace("(", " ").replace(")", " ").replace(",", " ").split())
        assert not words & changed, definition.indexdef


def test_a_bound_hides_a_straggler_until_the_keeper_notes_it(connection: Connection, other: Connection) -> None:
    """A row that was committed late lies below the bound; the sweep's note brings it back."""
    worker = add_worker(connection)
    enqueue(connection)
    worker.claim()
    with other.transaction():
        late = enqueue(other)
        enqueue(connection)
        (seen,) = worker.claim()
        bounds = {seen.lane: (seen.run_at, seen.id)}
    # An hour ago in the tables: the sweep leaves the last second to the claims themselves.
    connection.execute("update slotkeeper.run set run_at = run_at - interval '1 hour' where id = %s", (late.id,))
    before = one(connection, "select clock_timestamp()")
    assert worker.claim(bounds=bounds, seen=before) == []
    assert one(connection, "select stragglers from slotkeeper.sweep_v1()") == 1
    assert [run.id for run in worker.claim(bounds=bounds, seen=before)] == [late.id]


@pytest.mark.parametrize("statistics", ["empty", "stale"])
def test_the_claim_uses_the_ready_index_whatever_the_statistics_say(connection: Connection, statistics: str) -> None:
    """Plans: the index finds the rows, their addresses carry them; never a sequential scan, bitmap or sort."""
    if statistics == "empty":
        connection.execute("analyze slotkeeper.run")
    connection.execute(
        "insert into slotkeeper.run (run_at, lane, max_attempts, trigger, task, payload)"
        " select clock_timestamp(), slotkeeper.lane_of('default', 'default', 0::smallint), 6, 5, 't', '{}'"
        " from generate_series(1, 5000)"
    )
    if statistics == "stale":
        connection.execute("analyze slotkeeper.run")
    before = rows(connection, "select seq_scan, seq_tup_read from pg_stat_user_tables where relname = 'run'")[0]
    worker = add_worker(connection)
    worker.finish_batch(worker.claim(free=500))
    connection.execute("select pg_stat_force_next_flush()")
    connection.execute("select pg_stat_clear_snapshot()")
    after = rows(connection, "select seq_scan, seq_tup_read from pg_stat_user_tables where relname = 'run'")[0]
    assert after.seq_scan == before.seq_scan
    assert one(connection, "select count(*) from slotkeeper.run_done") == 500
    assert scenario.one(connection, "select count(*) from slotkeeper.run") == 4500

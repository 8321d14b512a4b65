"""The number to scale pools on: each clause of what it counts, by hand and against a plain reading of the tables."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

import scenario
from scenario import Worker, add_schedule, add_worker, cancel, due_now, edit, enqueue, one, reap, requeue, rows, sweep
from slotkeeper.store.connection import Session
from slotkeeper.store.scaling import PoolNumber, pool_numbers

Connection = psycopg.Connection[Any]
SLOT = datetime(2020, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HISTORY = ("run_done", "run_dead", "run_error", "slot_skip", "state_delta", "idempotency")
_names = itertools.count(1)


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    with scenario.connect(dsn) as opened:
        yield opened


def numbers(connection: Connection, **settings: Any) -> dict[tuple[str, str], PoolNumber]:
    """As a process of ours reads them."""
    session = Session(connection.info.dsn, "scaling test")
    found = pool_numbers(session, **{"horizon_seconds": 60, "drain_seconds": 30, "most_workers": 1000, **settings})
    session.close()
    return {(number.namespace, number.pool): number for number in found}


def number(connection: Connection, pool: str = "default", namespace: str = "default", **settings: Any) -> PoolNumber:
    return numbers(connection, **settings)[namespace, pool]


def parts(found: PoolNumber) -> tuple[int, int, int, int]:
    return found.claimable, found.running, found.due_soon, found.wanted


def in_seconds(connection: Connection, seconds: float) -> datetime:
    """An instant of the database's clock."""
    found = one(connection, "select clock_timestamp() + make_interval(secs => %s)", seconds)
    assert isinstance(found, datetime)
    return found


def test_a_pool_that_is_known_and_idle_wants_nobody(connection: Connection) -> None:
    add_worker(connection)
    assert parts(number(connection)) == (0, 0, 0, 0)


def test_workers_are_runs_by_concurrency_rounded_up(connection: Connection) -> None:
    add_worker(connection, concurrency=4)
    for count, wanted in ((1, 1), (3, 1), (1, 2), (3, 2), (1, 3)):
        for _ in range(count):
            enqueue(connection)
        assert number(connection).wanted == wanted


def test_a_pool_counts_the_queues_that_it_serves(connection: Connection) -> None:
    add_worker(connection, pool="one")
    add_worker(connection, pool="two", queues=["mail", "reports"])
    add_worker(connection, pool="three", namespaces=["billing"], queues=["*"])
    add_worker(connection, pool="four", namespaces=["*"], queues=["*"])
    add_worker(connection, pool="one", namespace="billing", namespaces=["billing"], queues=["mail"])
    for queue, namespace, count in (
        ("default", "default", 1), ("mail", "default", 2), ("reports", "default", 4), ("default", "billing", 8),
        ("mail", "billing", 16),
    ):  # fmt: skip
        for priority in range(count):
            enqueue(connection, queue=queue, namespace=namespace, priority=priority % 5 - 2)
    found = {key: value.claimable for key, value in numbers(connection).items()}
    assert found == {
        ("default", "one"): 1, ("default", "two"): 6, ("default", "three"): 24, ("default", "four"): 31,
        ("billing", "one"): 16,
    }  # fmt: skip


def test_what_its_login_may_not_claim_is_not_counted(connection: Connection) -> None:
    add_worker(connection, queues=["default", "mail"])
    enqueue(connection)
    enqueue(connection, queue="mail")
    login = one(connection, "select session_user")
    connection.execute("update slotkeeper.queue_grant set may_claim = false")
    connection.execute("insert into slotkeeper.queue_grant values (%s, 'default', 'mail', true, false)", (login,))
    assert number(connection).claimable == 1
    connection.execute("select slotkeeper.declare_pool_v1('default', 'default', '{default}', '{*}', 7)")
    assert number(connection).claimable == 2  # configuration has no login: it says what the workers will serve


def test_a_run_counts_when_it_is_due_and_ahead_of_that_within_the_horizon(connection: Connection) -> None:
    add_worker(connection, concurrency=1)
    for seconds in (-5, 30, 300):
        enqueue(connection, run_at=in_seconds(connection, seconds))
    assert parts(number(connection)) == (1, 0, 1, 2)
    assert parts(number(connection, horizon_seconds=600)) == (1, 0, 2, 3)
    assert parts(number(connection, horizon_seconds=0)) == (1, 0, 0, 1)


def test_running_counts_for_the_pool_whose_workers_hold_it(connection: Connection) -> None:
    busy = add_worker(connection, pool="busy", concurrency=1)
    add_worker(connection, pool="idle", concurrency=1)
    add_worker(connection, pool="busy", namespace="elsewhere", concurrency=1)  # a namesake
    for _ in range(5):
        enqueue(connection)
    held = busy.claim(3)
    assert parts(number(connection, "busy")) == (2, 3, 0, 5)
    assert parts(number(connection, "idle")) == (2, 0, 0, 2)
    assert parts(number(connection, "busy", "elsewhere")) == (2, 0, 0, 2)
    assert number(connection, "busy", "elsewhere").workers == 1
    cancel(connection, held[0].id)
    assert number(connection, "busy").running == 3  # until its worker confirms
    busy.finish(held[0], "cancelled")
    busy.finish(held[1])
    assert parts(number(connection, "busy")) == (2, 1, 0, 3)


def test_what_is_due_and_what_is_held_are_added(connection: Connection) -> None:
    """C133: ten busy workers and nothing pending, then five runs more, then all have ended."""
    workers = [add_worker(connection, concurrency=1) for _ in range(10)]
    enqueue_many(connection, 10)
    held = [(worker, run) for worker in workers for run in worker.claim(1)]
    assert number(connection).wanted == 10
    enqueue_many(connection, 5)
    assert number(connection).wanted == 15
    for worker, run in held:
        worker.finish(run)
    for run in workers[0].claim(5):
        workers[0].finish(run)
    assert number(connection).wanted == 0


def test_running_counts_though_the_pool_serves_its_queue_no_longer(connection: Connection) -> None:
    old = add_worker(connection, queues=["default"])
    enqueue(connection)
    old.claim()
    add_worker(connection, queues=["mail"])
    assert parts(number(connection)) == (0, 1, 0, 1)


def test_run_all_with_a_hundred_waiting_asks_for_one(connection: Connection) -> None:
    add_worker(connection, concurrency=1)
    schedule = add_schedule(connection, overlap="Queue", catch_up="RunAll", max_runs=1000)
    schedule.materialise([SLOT + n * MINUTE for n in range(100)])
    assert len(schedule.runs()) == 100
    assert parts(number(connection)) == (1, 0, 0, 1)


@pytest.mark.parametrize("overlap", ["Skip", "Queue", "Replace"])
def test_an_exclusive_schedule_counts_once_whatever_its_state(connection: Connection, overlap: str) -> None:
    worker = add_worker(connection, concurrency=1)
    schedule = add_schedule(connection, overlap=overlap, catch_up="RunAll", max_runs=1000, backoff=(600, 900))
    schedule.materialise([SLOT + n * MINUTE for n in range(5)])
    (run,) = worker.claim()
    assert parts(number(connection)) == (0, 1, 0, 1)
    cancel(connection, run.id)
    assert parts(number(connection)) == (0, 1, 0, 1)  # being cancelled, it holds its place
    worker.finish(run, "cancelled")
    assert parts(number(connection)) == (1, 0, 0, 1)  # the next one


def test_a_due_retry_counts_and_one_to_come_when_it_is_near(connection: Connection) -> None:
    worker = add_worker(connection, concurrency=1)
    schedule = add_schedule(connection, overlap="Queue", catch_up="RunAll")
    schedule.materialise([SLOT, SLOT + MINUTE])
    (run,) = worker.claim()
    worker.finish(run, "failed", reason="ValueError")
    retry = "update slotkeeper.run set run_at = clock_timestamp() + %s where not behind"
    connection.execute(retry, (timedelta(minutes=10),))
    assert parts(number(connection)) == (0, 0, 0, 0)
    connection.execute(retry, (timedelta(seconds=20),))
    assert parts(number(connection)) == (0, 0, 1, 1)
    due_now(connection)
    assert parts(number(connection)) == (1, 0, 0, 1)


def test_what_is_too_late_to_start_does_not_count_but_its_retry_does(connection: Connection) -> None:
    worker = add_worker(connection, concurrency=1)
    late, early = add_schedule(connection), add_schedule(connection)
    for schedule in (late, early):
        schedule.materialise([SLOT], start_by=in_seconds(connection, 600))
    (run,) = (run for run in worker.claim() if run.owner == early.owner)
    connection.execute("update slotkeeper.run set start_by = %s", (SLOT,))
    assert number(connection).running == 2
    worker.finish(run, "failed", reason="ValueError")
    connection.execute("update slotkeeper.run set first_started_at = null, state = 0 where owner = %s", (late.owner,))
    due_now(connection)
    assert parts(number(connection)) == (1, 0, 0, 1)
    connection.execute("update slotkeeper.run set run_at = clock_timestamp() + interval '20 seconds'")
    assert parts(number(connection)) == (0, 0, 1, 1)


def test_slots_that_fall_due_soon_count_before_they_are_rows(connection: Connection) -> None:
    add_worker(connection, concurrency=1)
    soon, later = add_schedule(connection), add_schedule(connection)
    add_schedule(connection, queue="mail", next_due=in_seconds(connection, 20))
    for schedule, seconds in ((soon, 20), (later, 300)):
        connection.execute(
            "update slotkeeper.schedule set next_due = %s where id = %s", (in_seconds(connection, seconds), schedule.id)
        )
    assert parts(number(connection)) == (0, 0, 1, 1)
    assert not soon.runs()
    assert number(connection, horizon_seconds=10).due_soon == 0
    assert number(connection, horizon_seconds=600).due_soon == 2
    # One that the ticker has not come to yet counts as well.
    connection.execute("update slotkeeper.schedule set next_due = %s where id = %s", (SLOT, soon.id))
    assert number(connection).due_soon == 1
    connection.execute("update slotkeeper.schedule set held = true where id = %s", (soon.id,))
    assert number(connection).due_soon == 0  # next_due is then the end of the hold
    connection.execute("update slotkeeper.schedule set held = false, next_due = null where id = %s", (soon.id,))
    assert number(connection).due_soon == 0  # suspended


def test_a_slot_to_come_adds_nothing_to_the_run_that_holds_its_place(connection: Connection) -> None:
    worker = add_worker(connection, concurrency=1)
    exclusive = add_schedule(connection, overlap="Skip")
    newest = add_schedule(connection, overlap="Allow", catch_up="RunOnce")
    all_of_them = add_schedule(connection, overlap="Allow", catch_up="RunAll")
    soon = in_seconds(connection, 20)
    connection.execute("update slotkeeper.schedule set next_due = %s", (soon,))
    assert number(connection).due_soon == 3
    for schedule, due_soon in ((exclusive, 2), (newest, 1), (all_of_them, 1)):
        schedule.materialise([SLOT])
        connection.execute("update slotkeeper.schedule set next_due = %s", (soon,))
        assert number(connection).due_soon == due_soon
    assert parts(number(connection)) == (3, 0, 1, 4)
    assert len(worker.claim()) == 3
    assert parts(number(connection)) == (0, 3, 2, 5)  # beside a running one, Allow starts the next


def test_a_worker_that_holds_a_long_run_is_wanted(connection: Connection) -> None:
    workers = [add_worker(connection, concurrency=20) for _ in range(4)]
    for worker in workers[:3]:
        enqueue(connection)
        enqueue(connection)
        worker.claim(2)
    assert (number(connection).wanted, number(connection).holding) == (1, 0)
    for worker in workers[:2]:
        connection.execute(
            "update slotkeeper.claim_batch set claimed_at = claimed_at - interval '40 seconds' where worker = %s",
            (worker.id,),
        )
    assert (number(connection).wanted, number(connection).holding) == (2, 2)
    assert number(connection, drain_seconds=50).wanted == 1
    for run in rows(connection, "select id, token, owner, slot from slotkeeper.run where worker = %s", workers[0].id):
        workers[0].finish(run)
    assert (number(connection).wanted, number(connection).holding) == (1, 1)


def test_c133_busy_workers_are_wanted_as_long_as_they_hold_runs(connection: Connection) -> None:
    """Ten workers hold a run each and nothing waits: 10; five come: 15; all end: 0. Nobody is counted twice."""
    busy = [add_worker(connection, concurrency=1) for _ in range(10)]
    for _ in busy:
        enqueue(connection)
    held = [(worker, worker.claim(1)[0]) for worker in busy]
    assert parts(number(connection)) == (0, 10, 0, 10)
    for _ in range(5):
        enqueue(connection)
    assert parts(number(connection)) == (5, 10, 0, 15)
    held += [(worker, worker.claim(1)[0]) for worker in [add_worker(connection, concurrency=1) for _ in range(5)]]
    assert parts(number(connection)) == (0, 15, 0, 15)
    for left, (worker, run) in zip(range(14, -1, -1), held, strict=True):
        worker.finish(run)
        assert parts(number(connection)) == (0, left, 0, left), "never fewer than what is held"


def test_c133_workers_with_room_are_wanted_while_a_run_of_theirs_would_outlive_the_drain(
    connection: Connection,
) -> None:
    """By concurrency one worker would do for ten runs; but each of the ten that hold one would be told to stop."""
    held = []
    for _ in range(10):
        enqueue(connection)
        worker = add_worker(connection, concurrency=20)
        held.append((worker, worker.claim(1)[0]))
    assert number(connection).wanted == 1, "what is young ends while its worker drains"
    connection.execute("update slotkeeper.claim_batch set claimed_at = claimed_at - interval '10 minutes'")
    assert number(connection).wanted == 10
    for worker, run in held:
        worker.finish(run)
    assert number(connection).wanted == 0


def test_the_newest_worker_says_how_the_pool_is(connection: Connection) -> None:
    add_worker(connection, concurrency=20)
    add_worker(connection, concurrency=40, queues=["default", "mail"])
    enqueue(connection, queue="mail")
    assert number(connection).concurrency == 40
    assert number(connection).claimable == 1
    connection.execute("select slotkeeper.declare_pool_v1('default', 'default', '{default}', '{default}', 7)")
    add_worker(connection, concurrency=40)
    assert number(connection).concurrency == 7  # configuration stands above workers


def test_another_login_does_not_change_the_pool_of_living_workers(connection: Connection) -> None:
    add_worker(connection, concurrency=20)
    other = f"other_{next(_names)}"
    connection.execute(sql.SQL("create role {} login").format(sql.Identifier(other)))
    connection.execute(sql.SQL("grant slotkeeper_worker to {}").format(sql.Identifier(other)))
    try:
        with scenario.connect(connection.info.dsn) as theirs:
            theirs.execute(sql.SQL("set session authorization {}").format(sql.Identifier(other)))
            add_worker(theirs, concurrency=1)
            assert number(connection).concurrency == 20
            connection.execute("update slotkeeper.worker set lease_until = 'epoch' where login = session_user")
            add_worker(theirs, concurrency=1)
            assert number(connection).concurrency == 1  # a login that was replaced
    finally:
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(other)))


def test_counting_ends_where_nobody_scales_further(connection: Connection) -> None:
    worker = add_worker(connection, concurrency=5)
    enqueue_many(connection, 200)
    assert parts(number(connection, most_workers=7)) == (35, 0, 0, 7)
    worker.claim(5)
    assert parts(number(connection, most_workers=7)) == (35, 5, 0, 8)


def enqueue_many(connection: Connection, count: int, queue: str = "default") -> None:
    connection.execute(
        "insert into slotkeeper.run (run_at, lane, max_attempts, trigger, task, payload)"
        " select clock_timestamp(), slotkeeper.lane_of('default', %s, 0::smallint), 6, 5, 't', '{}'"
        " from generate_series(1, %s)", (queue, count),
    )  # fmt: skip


def test_the_keepers_note_of_the_lowest_row_loses_none(connection: Connection) -> None:
    worker = add_worker(connection)
    enqueue_many(connection, 50)
    connection.execute("update slotkeeper.run set run_at = run_at - interval '1 minute'")
    sweep(connection)
    assert one(connection, "select straggler_run_at from slotkeeper.lane") is not None
    assert parts(number(connection)) == (50, 0, 0, 3)
    worker.claim(20)
    assert parts(number(connection)) == (30, 20, 0, 3)
    sweep(connection)
    for run in worker.claim(20):
        worker.finish(run, "failed", reason="ValueError")
    due_now(connection)
    assert parts(number(connection)) == (30, 20, 0, 3)


@contextmanager
def reads_at_most(connection: Connection, most: int) -> Iterator[None]:
    """No sequential scan of `run`, and no more index entries of it than this."""

    def look() -> tuple[int, int]:
        connection.execute("select pg_stat_force_next_flush()")
        connection.execute("select pg_stat_clear_snapshot()")
        (row,) = rows(
            connection,
            "select seq_scan, (select sum(idx_tup_read)::int from pg_stat_user_indexes where relname = 'run') as read"
            " from pg_stat_user_tables where relname = 'run'",
        )  # fmt: skip
        return row.seq_scan, row.read

    before = look()
    yield
    after = look()
    assert after[0] == before[0], "a sequential scan"
    assert after[1] - before[1] <= most


@pytest.mark.parametrize("statistics", ["of empty tables", "a million rows", "true"])
def test_whatever_statistics_say_it_reads_what_it_counts(connection: Connection, statistics: str) -> None:
    if statistics == "of empty tables":
        connection.execute("analyze")
    worker = add_worker(connection, concurrency=10)
    for _ in range(20):
        add_schedule(connection, next_due=in_seconds(connection, 20))
    enqueue_many(connection, 20_000, queue="other")
    enqueue_many(connection, 1000)
    assert len(worker.claim(100)) == 100
    if statistics == "true":
        connection.execute("analyze")
    elif statistics == "a million rows":
        connection.execute(
            "update pg_class set reltuples = 1000000, relpages = 20000 where relnamespace = 'slotkeeper'::regnamespace"
            " and relname in ('run', 'schedule', 'schedule_version', 'claim_batch')"
        )
    query = "select * from slotkeeper.pools_v1(60, 30, 20)"
    # 200 that are counted, 100 running ones twice, the edges.
    with reads_at_most(connection, 500):
        (found,) = rows(connection, query)
    assert (found.claimable, found.running, found.due_soon, found.wanted) == (200, 100, 20, 32)


def test_history_is_never_read(connection: Connection) -> None:
    add_worker(connection)
    enqueue(connection)
    with scenario.connect(connection.info.dsn) as other, other.transaction():
        for table in HISTORY:
            other.execute(sql.SQL("lock slotkeeper.{} in access exclusive mode").format(sql.Identifier(table)))
        connection.execute("set lock_timeout = '1s'")
        assert rows(connection, "select * from slotkeeper.pools_v1(60, 30, 1000)")[0].wanted == 1


# --- the law: a constant backlog never makes the number run away


def hpa(wanted: int, replicas: int, most: int) -> int:
    """What an HPA makes of an External metric with AverageValue 1: its ratio with a tolerance of a tenth."""
    if replicas and abs(wanted / replicas - 1) <= 0.1:
        return replicas
    return max(1, min(wanted, most))


@pytest.mark.parametrize("seed", range(2))
def test_a_constant_backlog_never_makes_the_number_run_away(connection: Connection, seed: int) -> None:
    chance = random.Random(seed)
    backlog, concurrency = 90, 4
    workers = [add_worker(connection, concurrency=concurrency)]
    held: dict[int, list[Any]] = {workers[0].id: []}
    enqueue_many(connection, backlog)
    bound = math.ceil(backlog / concurrency)
    for _ in range(12):
        for worker in workers:
            mine = held[worker.id]
            ended = [run for run in mine if chance.random() < 0.4]
            for run in ended:
                worker.finish(run)
            held[worker.id] = [run for run in mine if run not in ended]
            enqueue_many(connection, len(ended))  # as much comes as goes
            held[worker.id] += worker.claim(concurrency - len(held[worker.id]))
        connection.execute("update slotkeeper.claim_batch set claimed_at = claimed_at - interval '15 seconds'")
        found = number(connection)
        assert found.claimable + found.running == backlog
        assert found.wanted == bound
        for _ in range(hpa(found.wanted, len(workers), 100) - len(workers)):
            workers.append(add_worker(connection, concurrency=concurrency))
            held[workers[-1].id] = []
    assert len(workers) == bound


# --- a plain reading of the tables, along random histories


def expected(connection: Connection, horizon: timedelta = timedelta(seconds=60)) -> tuple[int, int, int, int]:
    """The number of the pool `default` by the words of the definition, run by run."""
    now = in_seconds(connection, 0)
    live = rows(connection, "select * from slotkeeper.run")
    started = {run.owner for run in live if run.owner is not None and run.exclusive and run.state != 0}

    def could_start(run: Any, until: datetime) -> bool:
        late = run.start_by is not None and run.start_by < max(now, run.run_at) and run.first_started_at is None
        return run.state == 0 and not run.behind and run.run_at <= until and not late and run.owner not in started

    claimable = [run for run in live if could_start(run, now)]
    soon = [run for run in live if could_start(run, now + horizon) and run not in claimable]
    for runs in (claimable, soon):
        owners = [run.owner for run in runs if run.exclusive]
        assert len(owners) == len(set(owners))
    running = sum(run.state != 0 for run in live)
    due_soon = len(soon)
    for schedule in rows(
        connection,
        "select s.*, v.overlap, v.catch_up from slotkeeper.schedule s join slotkeeper.schedule_version v"
        " on v.schedule = s.id and v.version = s.version where s.next_due is not null and not s.held",
    ):
        mine = [run for run in live if run.owner == schedule.owner]
        waiting = [run for run in mine if run.first_started_at is None and run.trigger in (0, 1)]
        takes_a_place = mine if schedule.overlap != 3 else waiting if schedule.catch_up == 0 else []
        due_soon += schedule.next_due <= now + horizon and not takes_a_place
    concurrency = one(connection, "select concurrency from slotkeeper.pool")
    wanted = math.ceil((len(claimable) + running + due_soon) / concurrency)
    return len(claimable), running, due_soon, max(wanted, number(connection).holding)


@pytest.mark.parametrize("seed", range(3))
def test_along_random_histories_it_is_what_the_definition_says(connection: Connection, seed: int) -> None:
    chance = random.Random(seed)
    connection.execute("select slotkeeper.declare_pool_v1('default', 'default', '{default}', '{default}', 3)")
    workers = [add_worker(connection) for _ in range(3)]
    schedules = [
        add_schedule(connection, overlap=overlap, catch_up=catch_up, max_attempts=3, late_reason="Late")
        for overlap in ("Skip", "Queue", "Replace", "Allow") for catch_up in ("RunOnce", "RunAll", "Skip")
    ]  # fmt: skip
    clock = SLOT
    held: list[tuple[Worker, Any]] = []
    for _ in range(50):
        match chance.randrange(9):
            case 0:
                enqueue(connection, run_at=in_seconds(connection, chance.choice((-1, 30, 300))))
            case 1 | 2:
                clock += MINUTE
                start_by = in_seconds(connection, chance.choice((-10, 600))) if chance.random() < 0.3 else None
                schedule = chance.choice(schedules)
                schedule.materialise([clock + timedelta(seconds=n) for n in range(3)], start_by=start_by)
                clock += MINUTE
            case 3:
                worker = chance.choice(workers)
                held += [(worker, run) for run in worker.claim(chance.randint(1, 4))]
            case 4 | 5 if held:
                worker, run = held.pop(chance.randrange(len(held)))
                worker.finish(run, chance.choice(("done", "failed", "fatal", "released")), reason="E")
            case 6:
                connection.execute(
                    "update slotkeeper.schedule set next_due = %s where id = %s",
                    (in_seconds(connection, chance.choice((10, 300))), chance.choice(schedules).id),
                )
            case 7:
                ids = [row.id for row in rows(connection, "select id from slotkeeper.run order by id")]
                cancel(connection, *chance.sample(ids, min(len(ids), 2)))
                requeue(connection, *(row.id for row in rows(connection, "select id from slotkeeper.run_dead limit 1")))
            case 8:
                if chance.random() < 0.5:
                    due_now(connection)
                elif chance.random() < 0.3:
                    edit(connection, chance.choice(schedules), overlap=chance.choice(("Skip", "Allow")))
                else:
                    chance.choice(workers).expire()
                    reap(connection)
                    workers = [add_worker(connection) for _ in range(3)]
        sweep(connection)
        found = number(connection)
        assert parts(found) == expected(connection)

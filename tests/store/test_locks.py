"""Two connections racing: who waits for whom, who never waits, and that no order of steps is a deadlock."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import scenario
from scenario import Schedule, add_schedule, add_worker, cancel, due_now, enqueue, fold, one, reap, requeue, rows, sweep

Connection = psycopg.Connection[Any]
MINUTE = timedelta(minutes=1)
SLOT = datetime(2020, 1, 1, 12, tzinfo=UTC)


@contextmanager
def never_waiting(connection: Connection) -> Iterator[None]:
    """A wait for a lock is an error."""
    connection.execute("set lock_timeout = '100ms'")
    yield
    connection.execute("reset lock_timeout")


def wait_until_blocked(connection: Connection, other: Connection) -> None:
    """Until ``other`` waits for a lock."""
    for _ in range(1000):
        if one(connection, "select cardinality(pg_blocking_pids(%s)) > 0", other.info.backend_pid):
            return
        time.sleep(0.01)
    pytest.fail("nobody waits")


def test_an_open_complete_stalls_its_own_schedule_only(connection: Connection, other: Connection) -> None:
    busy, free = add_schedule(connection, overlap="Queue"), add_schedule(connection, overlap="Queue")
    for schedule in (busy, free):
        schedule.materialise([SLOT])
    run = next(run for run in add_worker(connection).claim() if run.owner == busy.owner)
    with other.transaction():
        assert one(other, "select slotkeeper.complete_v1(%s, %s)", run.id, run.token)
        with never_waiting(connection):
            assert not busy.materialise([SLOT + MINUTE]), "decided on a state that is about to change"
            assert free.materialise([SLOT + MINUTE])
            assert reap(connection).skipped == 0
            sweep(connection)
            fold(connection)
        assert one(connection, "select watermark from slotkeeper.schedule where id = %s", busy.id) == SLOT
    assert busy.materialise([SLOT + MINUTE])
    assert busy.job() == [(SLOT, "done", None), (SLOT + MINUTE, "ready", None)]


def test_a_finish_does_not_wait_for_the_schedule_and_the_sweep_promotes(
    connection: Connection, other: Connection
) -> None:
    schedule = add_schedule(connection, overlap="Queue", catch_up="RunAll")
    schedule.materialise([SLOT, SLOT + MINUTE])
    worker = add_worker(connection)
    with other.transaction():
        other.execute("select from slotkeeper.schedule where id = %s for update", (schedule.id,))
        with never_waiting(connection):
            (run,) = worker.claim()
            worker.finish_batch([run])
            assert worker.claim() == [], "promoted without the schedule"
            assert sweep(connection).promoted == 0
    assert sweep(connection).promoted == 1
    assert [run.slot for run in worker.claim()] == [SLOT + MINUTE]


def test_a_finish_waits_for_a_row_that_the_ticker_holds_and_then_it_is_recorded(
    connection: Connection, other: Connection
) -> None:
    """The ticker replaces the run that is just being finished: whichever comes first, one of them is told."""
    schedule = add_schedule(connection, overlap="Replace")
    schedule.materialise([SLOT])
    worker = add_worker(other)
    (run,) = worker.claim()
    with ThreadPoolExecutor(1) as pool, connection.transaction():
        assert schedule.materialise([SLOT + MINUTE])
        finishing = pool.submit(worker.finish, run, "failed")
        wait_until_blocked(connection, other)
    assert finishing.result().became == "cancelled"
    assert [claimed.slot for claimed in worker.claim()] == [SLOT + MINUTE]


def test_two_reapers_at_once_give_a_run_back_once(connection: Connection, other: Connection) -> None:
    for _ in range(50):
        enqueue(connection)
    worker = add_worker(connection)
    worker.claim()
    reap(connection)  # the first one of a server notes its start
    worker.expire()
    with connection.transaction():
        first = reap(connection).given_back
        with never_waiting(other):
            second = reap(other).given_back
    assert (first, second, reap(other).given_back) == (50, 0, 0)
    assert one(connection, "select count(*) from slotkeeper.run where lost = 1") == 50


def test_a_reaper_leaves_a_run_that_is_just_being_completed(connection: Connection, other: Connection) -> None:
    for _ in range(2):
        enqueue(connection)
    worker = add_worker(connection)
    run, _ = worker.claim()
    worker.expire()
    with other.transaction():
        assert one(other, "select slotkeeper.complete_v1(%s, %s)", run.id, run.token)
        with never_waiting(connection):
            assert reap(connection).given_back == 1
        assert one(connection, "select count(*) from slotkeeper.worker") == 1, "it still holds a run"
    assert reap(connection).given_back == 0
    assert one(connection, "select count(*) from slotkeeper.worker") == 0
    assert one(connection, "select count(*) from slotkeeper.run_done") == 1


def test_a_reaper_leaves_a_worker_whose_beat_is_under_way(connection: Connection, other: Connection) -> None:
    enqueue(connection)
    worker = add_worker(connection)
    worker.claim()
    worker.expire()
    with other.transaction():
        assert rows(other, "select * from slotkeeper.beat_v1(%s)", worker.id) != []
        assert reap(connection).given_back == 0
    assert reap(connection).given_back == 0


def test_a_tick_decides_on_what_a_claim_has_just_committed(connection: Connection, other: Connection) -> None:
    """It locks first and decides in a following statement: else it supersedes a run that has just started."""
    schedule = add_schedule(connection)
    schedule.materialise([SLOT])
    with other.transaction():
        add_worker(other).claim()
        assert not schedule.materialise([SLOT + MINUTE])
    assert schedule.materialise([SLOT + MINUTE])
    assert schedule.job() == [(SLOT, "running", None), (SLOT + MINUTE, "skipped", "Overlap")]


def test_partitions_are_made_without_a_deadlock_with_a_sweep(connection: Connection, other: Connection) -> None:
    """A sweep holds the row of the fleet and then writes history; who makes partitions must take them in that order."""
    with ThreadPoolExecutor(1) as pool, connection.transaction():
        connection.execute("update slotkeeper.fleet set swept_at = clock_timestamp()")
        making = pool.submit(one, other, "select slotkeeper.ensure_partitions_v1(current_date + 30)")
        wait_until_blocked(connection, other)
        with never_waiting(connection):
            connection.execute("lock table slotkeeper.run_done in row exclusive mode")
    making.result()


def test_partitions_do_not_wait_long_for_a_reader_nor_fail(connection: Connection, other: Connection) -> None:
    with other.transaction():
        other.execute("select count(*) from slotkeeper.job")
        connection.execute("update slotkeeper.fleet set retention_at = 'epoch'")
        assert one(connection, "select slotkeeper.ensure_partitions_v1(current_date + 8)") == 0
        connection.execute("select slotkeeper.retain_v1(100)")
    assert one(connection, "select slotkeeper.ensure_partitions_v1(current_date + 8)") > 0


def race(dsn: str, steps: list[Callable[[Connection, random.Random], object]]) -> None:
    """Each step on a connection and thread of its own; raises what any of them raised, a deadlock above all."""
    begin = threading.Barrier(len(steps))

    def repeat(number: int) -> None:
        with scenario.connect(dsn) as own:
            own.execute("set deadlock_timeout = '20ms'")
            begin.wait()
            steps[number](own, random.Random(number))

    with ThreadPoolExecutor(len(steps)) as pool:
        for done in [pool.submit(repeat, number) for number in range(len(steps))]:
            done.result()


def ticking(schedules: list[Schedule], first: int) -> Callable[[Connection, random.Random], None]:
    """Slots for schedules in random order, several in one transaction."""

    def tick(own: Connection, dice: random.Random) -> None:
        for number in range(first, first + 40):
            with own.transaction():
                for schedule in dice.sample(schedules, 3):
                    moved = one(own, "select watermark from slotkeeper.schedule where id = %s", schedule.id)
                    slot = max(SLOT + number * MINUTE, moved + MINUTE)
                    mine = Schedule(own, schedule.id, schedule.owner, watermark=moved)
                    mine.materialise([slot])

    return tick


def working(own: Connection, dice: random.Random) -> None:
    worker = add_worker(own)
    for _ in range(60):
        runs = worker.claim(free=dice.randint(1, 8))
        dice.shuffle(runs)
        for run in runs:
            worker.finish(run, dice.choice(["done", "failed", "fatal", "snoozed", "unstarted"]))


def keeping(own: Connection, _: random.Random) -> None:
    for _ in range(60):
        reap(own)
        fold(own)
        sweep(own)
        own.execute("update slotkeeper.fleet set retention_at = 'epoch'")
        own.execute("select slotkeeper.retain_v1(100)")


def operating(own: Connection, dice: random.Random) -> None:
    """People cancel, requeue and trigger; workers die."""
    for number in range(60):
        live = [row.id for row in rows(own, "select id from slotkeeper.run limit 20")]
        cancel(own, *dice.sample(live, min(2, len(live))))
        requeue(own, *[row.id for row in rows(own, "select id from slotkeeper.run_dead limit 3")])
        if number % 10 == 0:
            own.execute(
                "update slotkeeper.worker set lease_until = clock_timestamp() - interval '1 s' where id % 2 = 0"
            )
        due_now_without_waiting(own)


def due_now_without_waiting(own: Connection) -> None:
    own.execute(
        "update slotkeeper.run set run_at = clock_timestamp() where id in"
        " (select id from slotkeeper.run where state = 0 and run_at > clock_timestamp() for update skip locked)"
    )


@pytest.mark.parametrize("overlap", ["Skip", "Replace"])
def test_everybody_at_once_is_no_deadlock(connection: Connection, dsn: str, overlap: str) -> None:
    """Ticker, ticker, workers, keepers and people on five schedules; afterwards every slot is on record once."""
    schedules = [
        add_schedule(connection, overlap=overlap, catch_up=catch_up, max_runs=3, max_attempts=3, backoff=(0, 0))
        for catch_up in ("RunOnce", "RunAll", "RunOnce", "RunAll", "Skip")
    ]
    race(
        dsn,
        [
            ticking(schedules, 0),
            ticking(schedules[::-1], 0),
            _forgiving(working),
            _forgiving(working),
            keeping,
            keeping,
            operating,
        ],
    )
    doubled = rows(
        connection,
        "select idempotency_key from slotkeeper.job where slots = 1 group by 1 having count(*) > 1",
    )  # fmt: skip
    assert doubled == []
    _drain(connection)
    assert one(connection, "select count(*) from slotkeeper.run") == 0


def _forgiving(step: Callable[[Connection, random.Random], None]) -> Callable[[Connection, random.Random], None]:
    def again(own: Connection, dice: random.Random) -> None:
        for _ in range(3):
            try:
                step(own, dice)
            except psycopg.DatabaseError as error:  # its lease was taken: a new worker takes over
                if error.sqlstate != "SK002":
                    raise

    return again


def test_four_workers_run_every_run_once(connection: Connection, dsn: str) -> None:
    """600 ad-hoc runs claimed, finished and swept by four at once: executions and rows are equal in number."""
    ids = {enqueue(connection).id for _ in range(600)}
    executed: list[int] = []

    def work(own: Connection, dice: random.Random) -> None:
        worker = add_worker(own)
        while runs := worker.claim(free=dice.randint(1, 20)):
            executed.extend(run.id for run in runs)
            worker.finish_batch(runs)

    race(dsn, [work, work, work, work, keeping])
    assert sorted(executed) == sorted(ids)
    assert one(connection, "select count(*) from slotkeeper.run_done") == 600


def _drain(connection: Connection) -> None:
    worker = add_worker(connection)
    connection.execute(
        "update slotkeeper.worker set lease_until = clock_timestamp() - interval '1 s' where id <> %s", (worker.id,)
    )
    for _ in range(300):
        reap(connection)
        due_now(connection)
        sweep(connection)
        for run in worker.claim(free=500):
            worker.finish(run)
        if not one(connection, "select count(*) from slotkeeper.run"):
            return

"""Partitions ahead and behind, and what retention takes away: history, dead runs, keys; and what outlives it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from scenario import add_schedule, add_worker, enqueue, fold, health, one, records, requeue, rows
from slotkeeper.errors import DatabaseBusy
from slotkeeper.keeper import Keeper

Connection = psycopg.Connection[Any]
SLOT = datetime(2020, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def retain(connection: Connection, limit: int = 1000) -> bool:
    connection.execute("update slotkeeper.fleet set retention_at = 'epoch'")
    return bool(one(connection, "select slotkeeper.retain_v1(%s)", limit))


def partitions(connection: Connection, parent: str) -> set[str]:
    found = rows(
        connection,
        "select inhrelid::regclass::text as child from pg_inherits"
        " where inhparent = ('slotkeeper.' || %s)::regclass", parent,
    )  # fmt: skip
    return {row.child.removeprefix("slotkeeper.") for row in found} - {f"{parent}_default"}


def add_partition(connection: Connection, day: date) -> str:
    """One of run_done, as it would have been made on its day."""
    name = f"run_done_{day:%Y%m%d}"
    connection.execute(
        f"create table slotkeeper.{name} partition of slotkeeper.run_done"
        f" for values from ('{day} 00:00:00+00') to ('{day + timedelta(days=1)} 00:00:00+00')"
    )
    connection.execute(f"alter table slotkeeper.{name} owner to slotkeeper_owner")
    return name


def today(connection: Connection) -> date:
    day: date = one(connection, "select (clock_timestamp() at time zone 'UTC')::date")
    return day


def aged(connection: Connection, table: str, column: str, days: float) -> None:
    connection.execute(
        f"update slotkeeper.{table} set {column} = {column} - make_interval(hours => %s)", (int(days * 24),)
    )


def test_migrate_makes_the_partitions_of_the_week_ahead(connection: Connection) -> None:
    day = today(connection)
    ahead = {f"run_done_{day + timedelta(days=number):%Y%m%d}" for number in range(8)}
    assert partitions(connection, "run_done") == ahead
    for parent in ("run_error", "slot_skip"):
        assert partitions(connection, parent) >= {f"{parent}_{day:%Y%m}"}


def test_making_partitions_twice_makes_nothing(connection: Connection) -> None:
    day = today(connection)
    assert one(connection, "select slotkeeper.ensure_partitions_v1(%s)", day + timedelta(days=7)) == 0
    assert one(connection, "select slotkeeper.ensure_partitions_v1(%s)", day + timedelta(days=9)) >= 2
    assert one(connection, "select slotkeeper.ensure_partitions_v1(%s)", day + timedelta(days=9)) == 0
    connection.execute("update slotkeeper.fleet set partitions_until = 'epoch'")
    assert one(connection, "select slotkeeper.ensure_partitions_v1(%s)", day + timedelta(days=9)) == 0


def test_rows_land_in_their_partitions(connection: Connection) -> None:
    schedule = add_schedule(connection, late_reason="Late", backoff=(0, 0))
    worker = add_worker(connection)
    schedule.materialise([SLOT])
    for kind in ("failed", "done"):
        worker.finish(worker.claim()[0], kind)
    schedule.materialise([SLOT + MINUTE], start_by=SLOT)
    connection.execute("select slotkeeper.reap_v1(null, false)")
    for parent in ("run_done", "run_error", "slot_skip"):
        assert one(connection, f"select count(*) from slotkeeper.{parent}") == 1
        assert one(connection, f"select count(*) from only slotkeeper.{parent}_default") == 0


def test_a_partition_that_nobody_made_in_time_does_not_stop_the_others(connection: Connection) -> None:
    """The keeper was away longer than its partitions reached; its rows went to the default partition."""
    later = today(connection) + timedelta(days=20)
    connection.execute(
        "insert into slotkeeper.run_done (id, created_at, run_at, lane, max_attempts, trigger, outcome, attempt,"
        " charged, finished_at) values (1, now(), now(), 1, 1, 5, 0, 1, 1, %s)",
        (datetime(later.year, later.month, later.day, tzinfo=UTC),),
    )  # fmt: skip
    assert one(connection, "select slotkeeper.ensure_partitions_v1(%s)", later + timedelta(days=1)) > 10
    made = partitions(connection, "run_done")
    assert f"run_done_{later:%Y%m%d}" not in made
    assert f"run_done_{later + timedelta(days=1):%Y%m%d}" in made
    assert one(connection, "select slotkeeper.ensure_partitions_v1(%s)", later + timedelta(days=1)) == 0


def test_old_partitions_go_and_state_stays(connection: Connection) -> None:
    schedule = add_schedule(connection)
    schedule.materialise([SLOT])
    add_worker(connection).finish_batch(add_worker(connection).claim())
    fold(connection)
    before = health(connection)
    days = {age: add_partition(connection, today(connection) - timedelta(days=age)) for age in (30, 31, 32)}
    aged(connection, "run_done", "finished_at", 31)
    assert one(connection, f"select count(*) from slotkeeper.{days[31]}") == 1
    retain(connection)
    assert partitions(connection, "run_done") & set(days.values()) == {days[30]}
    assert schedule.job() == []
    assert health(connection) == before
    assert one(connection, "select done_count from slotkeeper.schedule_state") == 1


def test_rows_in_the_default_partitions_are_not_kept_for_ever(connection: Connection) -> None:
    schedule = add_schedule(connection, backoff=(0, 0))
    worker = add_worker(connection)
    schedule.materialise([SLOT])
    for kind in ("failed", "done"):
        worker.finish(worker.claim()[0], kind)
    schedule.materialise([SLOT + MINUTE], start_by=SLOT)
    connection.execute("select slotkeeper.reap_v1(null, false)")
    for table, column in (("run_done", "finished_at"), ("run_error", "at"), ("slot_skip", "at")):
        aged(connection, table, column, 100)
        assert one(connection, f"select count(*) from slotkeeper.{table}_default") == 1
    retain(connection)
    for table in ("run_done", "run_error", "slot_skip"):
        assert one(connection, f"select count(*) from slotkeeper.{table}") == 0


def test_dead_runs_go_after_their_days_and_are_counted_again(connection: Connection) -> None:
    schedule = add_schedule(connection)
    worker = add_worker(connection)
    for number in range(3):
        schedule.materialise([SLOT + number * MINUTE])
        worker.finish(worker.claim()[0], "fatal")
    fold(connection)
    connection.execute(
        "update slotkeeper.run_dead set died_at = died_at - interval '91 days' where slot < %s", (SLOT + 2 * MINUTE,)
    )
    assert retain(connection, limit=1), "there is one more"
    retain(connection)
    assert [row.slot for row in rows(connection, "select slot from slotkeeper.run_dead")] == [SLOT + 2 * MINUTE]
    fold(connection)
    stored = records(connection, "select dead, consecutive_dead, dead_count from slotkeeper.schedule_state")[0]
    assert stored == {"dead": 1, "consecutive_dead": 1, "dead_count": 3}


def test_retention_runs_once_an_hour(connection: Connection) -> None:
    retain(connection)
    enqueue(connection)
    worker = add_worker(connection)
    worker.finish(worker.claim()[0], "fatal")
    aged(connection, "run_dead", "died_at", 91)
    assert not one(connection, "select slotkeeper.retain_v1(100)")
    assert one(connection, "select count(*) from slotkeeper.run_dead") == 1


@pytest.mark.parametrize(
    ("state", "days_since_the_end", "freed"),
    [("live", None, False), ("dead", 8, False), ("done", 6.9, False), ("done", 7.1, True), ("cancelled", 7.1, True)],
)
def test_a_key_is_free_seven_days_after_the_end(
    connection: Connection, state: str, days_since_the_end: float | None, freed: bool
) -> None:
    run = enqueue(connection, key="k")
    aged(connection, "idempotency", "created_at", 60)
    worker = add_worker(connection)
    match state:
        case "dead":
            worker.finish(worker.claim()[0], "fatal")
            aged(connection, "run_dead", "died_at", days_since_the_end or 0)
        case "done":
            worker.finish(worker.claim()[0])
            aged(connection, "run_done", "finished_at", days_since_the_end or 0)
        case "cancelled":
            connection.execute("select slotkeeper.cancel_v1(array[%s::bigint])", (run.id,))
            aged(connection, "run_done", "finished_at", days_since_the_end or 0)
    retain(connection)
    assert enqueue(connection, key="k").created == freed


def test_keys_that_stay_neither_keep_others_nor_make_a_step_longer(connection: Connection) -> None:
    """Keys of dead runs are the oldest ones: each step looks at no more keys than it may, and the next one goes on."""
    worker = add_worker(connection)
    connection.execute("select setval('slotkeeper.run_id', 1000)")
    for key in range(6):
        enqueue(connection, key=str(key))
        worker.finish(worker.claim()[0], "fatal" if key < 3 else "done")
    aged(connection, "idempotency", "created_at", 60)
    connection.execute(
        "insert into slotkeeper.idempotency (namespace, key, run) select 'young', g::text, 2000 + g"
        " from generate_series(1, 2000) g"
    )
    aged(connection, "run_done", "finished_at", 8)
    connection.execute("update slotkeeper.fleet set retention_at = 'epoch'")
    steps: list[Any] = [None]
    while not steps[-1] or steps[-1].more:
        before = keys_read(connection)
        after = steps[-1] and steps[-1].keys_after
        steps += rows(connection, "select * from slotkeeper.retain_v2(2, %s)", after)
        assert keys_read(connection) - before <= 2
    assert [step.keys_after for step in steps[1:]] == [1002, 1004, 1006, None]
    kept = rows(connection, "select key from slotkeeper.idempotency where namespace <> 'young' order by key")
    assert [row.key for row in kept] == ["0", "1", "2"]


def keys_read(connection: Connection) -> int:
    """Rows of `idempotency` that any scan by its table or its indexes has read."""
    connection.execute("select pg_stat_force_next_flush()")
    connection.execute("select pg_stat_clear_snapshot()")
    read: int = one(
        connection,
        "select t.seq_tup_read + (select sum(i.idx_tup_read) from pg_stat_user_indexes i where i.relid = t.relid)::int"
        " from pg_stat_user_tables t where t.relname = 'idempotency'",
    )
    return read


def test_a_key_outlives_a_short_retention_of_history(connection: Connection) -> None:
    """With history kept for a day, the end of its run must still be known for seven."""
    connection.execute("update slotkeeper.fleet set done_days = 1")
    enqueue(connection, key="k")
    worker = add_worker(connection)
    worker.finish(worker.claim()[0])
    add_partition(connection, today(connection) - timedelta(days=5))
    aged(connection, "run_done", "finished_at", 5)
    aged(connection, "idempotency", "created_at", 60)
    retain(connection)
    assert not enqueue(connection, key="k").created


def made_owner(connection: Connection, schedule: Any, label: str, *, kind: int = 1, days: int = 60) -> int:
    owner: int = one(
        connection,
        "insert into slotkeeper.owner (schedule, kind, label, made_at)"
        " values (%s, %s, %s, now() - make_interval(days => %s)) returning id", schedule.id, kind, label, days,
    )  # fmt: skip
    return owner


def labels(connection: Connection) -> set[str]:
    return {row.label for row in rows(connection, "select label from slotkeeper.owner where kind <> 0")}


def test_owners_of_which_nothing_is_left_go_and_no_others(connection: Connection) -> None:
    schedule = add_schedule(connection)
    for name in ("live", "dead", "done"):
        connection.execute("select slotkeeper.trigger_v1(%s, %s)", (schedule.id, name))
    worker = add_worker(connection)
    live, dead, done = worker.claim()
    for run, kind in ((dead, "fatal"), (done, "done")):
        worker.finish(run, kind)
    fold(connection)
    connection.execute("update slotkeeper.owner set made_at = made_at - interval '60 days'")
    for label, kind, days in (
        ("seen", 1, 60),
        ("1", 2, 60),
        ("recent", 1, 29),
        ("carried", 1, 60),
        ("unfolded", 1, 60),
    ):
        owner = made_owner(connection, schedule, label, kind=kind, days=days)
        if label == "unfolded":
            connection.execute(
                "insert into slotkeeper.state_delta (owner, outcome, slot, at) values (%s, 5, now(), now())", (owner,)
            )
    connection.execute("update slotkeeper.schedule set trigger_key = 'carried'")
    assert retain(connection, limit=1), "there is one more"
    retain(connection)
    assert labels(connection) == {"live", "dead", "done", "recent", "carried", "unfolded"}
    worker.finish(live)
    fold(connection)
    aged(connection, "run_done", "finished_at", 31)
    aged(connection, "run_dead", "died_at", 91)
    retain(connection)
    assert "dead" in labels(connection), "the fold has still to count again"
    fold(connection)
    retain(connection)
    assert labels(connection) == {"recent", "carried"}
    assert one(connection, "select dead from slotkeeper.schedule_state") == 0
    assert one(connection, "select count(*) from slotkeeper.owner where kind = 0") == 1


def test_a_requeued_dead_run_keeps_its_key(connection: Connection) -> None:
    first = enqueue(connection, key="k")
    worker = add_worker(connection)
    worker.finish(worker.claim()[0], "fatal")
    assert requeue(connection, first.id) == {first.id: "ready"}
    assert enqueue(connection, key="k") == (first.id, False)


@pytest.fixture
def hasty_keeper(dsn: str) -> Iterator[Keeper]:
    """A keeper whose login has a statement_timeout that is far too short for a whole chunk."""
    keeper = Keeper(make_conninfo(dsn, options="-c statement_timeout=200ms"), house_pause=0)
    yield keeper
    for actor in keeper.actors:
        actor._close()


def keep(keeper: Keeper) -> str | None:
    """One step; the code of the error that it ended with."""
    try:
        keeper.keep()
    except DatabaseBusy as error:
        return error.sqlstate
    return None


def slow_deletes(connection: Connection, table: str, *, seconds: float = 0.001) -> None:
    """Each deleted row takes so long: a chunk takes as long as its rows say, on any machine."""
    connection.execute(
        "create function dawdle() returns trigger language plpgsql as"
        f" $$ begin perform pg_sleep({seconds}); return old; end $$"
    )
    connection.execute(
        f"create trigger dawdle before delete on slotkeeper.{table} for each row execute function dawdle()"
    )


def test_c102_a_statement_timeout_makes_chunks_smaller_until_retention_is_done(
    connection: Connection, hasty_keeper: Keeper
) -> None:
    """Meanwhile runs are claimed and finished, and wait for no lock."""
    connection.execute("set lock_timeout = '1s'")
    gone = add_partition(connection, today(connection) - timedelta(days=40))
    connection.execute(
        "insert into slotkeeper.run_done (id, created_at, run_at, lane, max_attempts, trigger, outcome, attempt,"
        " charged, finished_at) select -g, now(), now(), 1, 1, 5, 0, 1, 1, current_date - 40 + interval '1 hour'"
        " from generate_series(1, 20000) g"
    )
    connection.execute(
        "insert into slotkeeper.run_dead (id, created_at, run_at, lane, max_attempts, trigger, attempt, charged, lost,"
        " reason, died_at) select -g, now(), now(), 1, 1, 5, 1, 1, 0, 'Test', now() - interval '100 days'"
        " from generate_series(1, 600) g"
    )
    slow_deletes(connection, "run_dead")
    worker, ended = add_worker(connection), []
    while hasty_keeper.retained_at is None:
        ended.append(keep(hasty_keeper))
        enqueue(connection)
        worker.finish(worker.claim()[0])
    assert ended.count("57014") >= 2, "chunks of 5000, of 1250 …"
    assert ended[-1] is None
    assert gone not in partitions(connection, "run_done")
    assert one(connection, "select count(*) from slotkeeper.run_dead") == 0
    assert one(connection, "select count(*) from slotkeeper.run_done") == len(ended)


def test_c102_partitions_are_dropped_though_the_chunk_after_them_is_cancelled(
    connection: Connection, hasty_keeper: Keeper
) -> None:
    gone = add_partition(connection, today(connection) - timedelta(days=40))
    enqueue(connection)
    worker = add_worker(connection)
    worker.finish(worker.claim()[0], "fatal")
    aged(connection, "run_dead", "died_at", 100)
    slow_deletes(connection, "run_dead", seconds=9)
    assert keep(hasty_keeper) == "57014"
    assert gone not in partitions(connection, "run_done")


def test_after_a_chunk_that_was_cancelled_the_others_have_the_keeper_to_themselves(
    connection: Connection, dsn: str
) -> None:
    keeper = Keeper(make_conninfo(dsn, options="-c statement_timeout=200ms"))
    enqueue(connection)
    worker = add_worker(connection)
    worker.finish(worker.claim()[0], "fatal")
    aged(connection, "run_dead", "died_at", 100)
    slow_deletes(connection, "run_dead", seconds=9)
    assert [keep(keeper) for _ in range(3)] == ["57014", None, None]
    assert keeper.retained_at is None
    for actor in keeper.actors:
        actor._close()


def test_chunks_grow_again_when_the_database_is_quick_again(connection: Connection, hasty_keeper: Keeper) -> None:
    sizes = hasty_keeper._rows
    at_first = dict(sizes)
    connection.execute("insert into slotkeeper.state_delta (owner, outcome, slot, at) values (1, 0, now(), now())")
    slow_deletes(connection, "state_delta", seconds=9)
    for _ in range(3):
        keep(hasty_keeper)
    assert sizes["fold"] == at_first["fold"] // 64
    connection.execute("drop function dawdle() cascade")
    while sizes["fold"] < at_first["fold"]:
        before = sizes["fold"]
        keep(hasty_keeper)
        assert sizes["fold"] in (before, 2 * before, at_first["fold"])


def test_a_retention_that_somebody_else_is_at_is_no_success(
    connection: Connection, other: Connection, hasty_keeper: Keeper
) -> None:
    with other.transaction():
        other.execute("update slotkeeper.fleet set retention_at = 'epoch'")
        keep(hasty_keeper)
        assert hasty_keeper.retained_at is None
    other.execute("update slotkeeper.fleet set retention_at = clock_timestamp() - interval '10 minutes'")
    keep(hasty_keeper)
    told = one(connection, "select extract(epoch from retention_at)::float8 from slotkeeper.fleet")
    assert hasty_keeper.retained_at == pytest.approx(told, abs=0.001), "what another replica has found counts"


def test_a_chore_that_is_cancelled_keeps_none_of_the_others(connection: Connection, hasty_keeper: Keeper) -> None:
    """The sweep cannot have its turn: outcomes are folded and retention is done all the same."""
    schedule = add_schedule(connection)
    schedule.materialise([SLOT])
    worker = add_worker(connection)
    worker.finish(worker.claim()[0])
    connection.execute(
        "create function dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep(9); return new; end $$"
    )
    connection.execute(
        "create trigger dawdle before update of swept_at on slotkeeper.fleet for each row execute function dawdle()"
    )
    assert keep(hasty_keeper) == "57014"
    assert one(connection, "select done_count from slotkeeper.schedule_state") == 1
    assert hasty_keeper.retained_at is not None


def test_a_fold_that_is_cancelled_takes_fewer(connection: Connection, hasty_keeper: Keeper) -> None:
    schedule = add_schedule(connection)
    connection.execute(
        "insert into slotkeeper.state_delta (owner, outcome, slot, at) select %s, 0, now(), now()"
        " from generate_series(1, 2000)", (schedule.owner,),
    )  # fmt: skip
    slow_deletes(connection, "state_delta")
    while one(connection, "select count(*) from slotkeeper.state_delta"):
        keep(hasty_keeper)
    assert one(connection, "select done_count from slotkeeper.schedule_state") == 2000

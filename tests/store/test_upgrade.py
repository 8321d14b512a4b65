"""A database of the first schema (tests/store/fixtures/schema-0.1.0) becomes this one, while its worker goes on."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import scenario
from scenario import EPOCH, add_schedule, add_worker, one, records, rows
from slotkeeper.cli.embedded_postgres import EmbeddedPostgres
from slotkeeper.store import migrate as migrating
from slotkeeper.store.migrate import migrate

FIRST = Path(__file__).parent / "fixtures" / "schema-0.1.0"
SLOT = EPOCH + timedelta(hours=1)
MINUTE = timedelta(minutes=1)
Connection = psycopg.Connection[Any]


@pytest.fixture
def old_dsn(postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The DSN of a database that the first version migrated."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with scenario.connect(postgres.dsn) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    dsn = make_conninfo(postgres.dsn, dbname=name)
    with monkeypatch.context() as patch:
        patch.setattr(migrating, "resource_folder", lambda _: FIRST)
        assert migrate(dsn).migrations == ("0001_tables.sql",)
    yield dsn
    with scenario.connect(postgres.dsn) as connection:
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def old(old_dsn: str) -> Iterator[Connection]:
    with scenario.connect(old_dsn) as connection:
        yield connection


#: All that a database consists of, by kind; the names of partitions without their dates.
CATALOGUE = {
    "relations": """
        select c.relname, c.relkind, c.relpersistence, c.reloptions, pg_get_userbyid(c.relowner),
               coalesce(c.relacl, acldefault('r', c.relowner))::text,
               obj_description(c.oid, 'pg_class'), pg_get_partkeydef(c.oid), pg_get_viewdef(c.oid)
          from pg_class c where c.relnamespace = 'slotkeeper'::regnamespace and c.relkind <> 'i'""",
    "columns": """
        select c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
               a.attstorage, a.attcompression, a.attacl::text, pg_get_expr(d.adbin, d.adrelid),
               col_description(c.oid, a.attnum)
          from pg_attribute a join pg_class c on c.oid = a.attrelid
          left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
         where c.relnamespace = 'slotkeeper'::regnamespace and c.relkind <> 'i' and a.attnum > 0""",
    "constraints": """
        select n.conname, n.conrelid::regclass::text, n.convalidated, pg_get_constraintdef(n.oid)
          from pg_constraint n where n.connamespace = 'slotkeeper'::regnamespace""",
    "indexes": """
        select c.relname, i.indisvalid, i.indisready, pg_get_indexdef(c.oid), c.reloptions
          from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace = 'slotkeeper'::regnamespace""",
    "functions": """
        select p.oid::regprocedure::text, pg_get_functiondef(p.oid), pg_get_userbyid(p.proowner),
               coalesce(p.proacl, acldefault('f', p.proowner))::text
          from pg_proc p where p.pronamespace = 'slotkeeper'::regnamespace""",
    "types": """
        select t.typname, t.typtype, t.typacl::text, obj_description(t.oid, 'pg_type'),
               obj_description(t.typrelid, 'pg_class')
          from pg_type t where t.typnamespace = 'slotkeeper'::regnamespace""",
    "sequences": "select * from pg_sequences where schemaname = 'slotkeeper'",
    "schema": "select nspname, pg_get_userbyid(nspowner), nspacl::text from pg_namespace where nspname = 'slotkeeper'",
    "migrations": "select name, checksum from slotkeeper.migration",
}


def catalogue(connection: Connection) -> dict[str, list[str]]:
    """What the database consists of, as text that can be compared; where a sequence stands does not count."""
    found = {}
    for kind, query in CATALOGUE.items():
        facts = [{**fact, "last_value": None} for fact in records(connection, query)]
        found[kind] = sorted({re.sub(r"(?<=[a-z])_?\d{6,8}(?=\D|$)", "_DATE", str(fact)) for fact in facts})
    return found


def stored(connection: Connection, columns: dict[str, list[str]]) -> dict[str, list[Any]]:
    """The rows of these columns, by table."""
    return {
        table: rows(
            connection,
            f"select row({', '.join(names)})::text from slotkeeper.{table} order by 1",
        )
        for table, names in columns.items()
    }


def columns_of(connection: Connection) -> dict[str, list[str]]:
    """Names of the columns of every table that holds data of users."""
    found: dict[str, list[str]] = {}
    for row in rows(
        connection,
        "select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid"
        " where c.relnamespace = 'slotkeeper'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition"
        " and a.attnum > 0 and not a.attisdropped and c.relname not in ('migration', 'hold') order by 1, a.attnum",
    ):
        found.setdefault(row.relname, []).append(row.attname)
    return found


def live(connection: Connection) -> tuple[scenario.Worker, list[Any], scenario.Schedule]:
    """Runs in every state, history, a worker and what it holds."""
    queued = add_schedule(connection, "queued", overlap="Queue", catch_up="RunAll")
    queued.materialise([SLOT, SLOT + MINUTE, SLOT + 2 * MINUTE])
    newest = add_schedule(connection, "newest")
    newest.materialise([SLOT])
    newest.materialise([SLOT + MINUTE])  # supersedes the one before
    scenario.add_schedule(connection, "far", queue="reports", priority=1).materialise([SLOT])
    fatal = add_schedule(connection, "fatal")
    fatal.materialise([SLOT])
    late = add_schedule(connection, "late", catch_up="Skip", late_reason="Late")
    late.materialise([SLOT], start_by=SLOT)
    connection.execute("select slotkeeper.trigger_v1(%s, 'by-hand')", (newest.id,))
    worker = add_worker(connection, lease_seconds=600, pool="pool", namespace="apps", concurrency=3)
    scenario.enqueue(connection, key="kept")
    scenario.reap(connection)
    held = worker.claim()
    by_owner = {run.owner: run for run in held}
    assert worker.finish(by_owner[fatal.owner], "fatal", reason="NonRetryable", message="no").became == "dead"
    done = scenario.enqueue(connection).id
    worker.finish_batch([run for run in worker.claim() if run.id == done])
    return worker, [run for run in held if run.owner != fatal.owner], queued


def test_the_first_schema_becomes_that_of_a_new_database(old: Connection, old_dsn: str, dsn: str) -> None:
    report = migrate(old_dsn)
    assert report.migrations[0].startswith("0002")
    assert "functions/worker_session.sql" in report.functions
    with scenario.connect(dsn) as new:
        expected, found = catalogue(new), catalogue(old)
    for kind, facts in expected.items():
        assert len(facts) > 1 or kind == "schema"
        assert found[kind] == facts, kind
    assert migrate(old_dsn).functions == ()


def test_what_is_stored_outlives_the_upgrade_and_goes_on(old: Connection, old_dsn: str) -> None:
    worker, held, queued = live(old)
    columns = columns_of(old)
    assert {"run", "run_done", "run_dead", "slot_skip", "state_delta", "idempotency", "claim_batch"} <= set(columns)
    before = stored(old, columns)
    assert all(before[table] for table in columns if table != "cluster")
    jobs = rows(old, "select id, schedule, slot, status, reason, attempts from slotkeeper.job order by 1, 3")
    assert {job.status for job in jobs} == {"ready", "running", "done", "dead", "superseded", "skipped"}
    started = one(old, "select clock_timestamp()")

    migrate(old_dsn)

    after = stored(old, columns)
    for table in columns:
        assert after[table] == before[table], table
    assert rows(old, "select id, schedule, slot, status, reason, attempts from slotkeeper.job order by 1, 3") == jobs
    assert one(old, "select min(made_at) >= %s from slotkeeper.owner", started), "keys of manual runs count from now"
    # Its pool is known though the worker never registers again.
    pool = rows(old, "select * from slotkeeper.pools_v1(0, 600, 100)")
    assert [(row.namespace, row.pool, row.workers, row.running) for row in pool] == [("apps", "pool", 1, len(held))]
    # What it held ends, and what waited behind it is claimed.
    assert {worker.finish(run).became for run in held} == {"done"}
    following = worker.claim()
    assert queued.owner in {run.owner for run in following}
    assert {worker.finish(run).answer for run in following} == {"recorded"}
    assert len([job for job in queued.job() if job[1] == "done"]) == 2


def test_a_worker_of_before_works_on_while_it_is_migrated(old: Connection, old_dsn: str) -> None:
    """After each step of the migration, functions of before and after meet the tables as they are then."""
    worker = add_worker(old, pool="pool", namespace="apps")
    schedule = add_schedule(old, overlap="Allow", catch_up="RunAll")
    steps: list[str] = []

    def work(said: str) -> None:
        steps.append(said)
        run = scenario.enqueue(old, key=said)
        assert run.created
        schedule.materialise([EPOCH + len(steps) * MINUTE])
        claimed = worker.claim()
        assert {run.id, *(row["id"] for row in schedule.runs())} == {found.id for found in claimed}
        assert {worker.finish(found).answer for found in claimed} == {"recorded"}
        assert rows(old, "select * from slotkeeper.beat_v1(%s)", worker.id)
        newcomer = add_worker(old, pool=f"pool-{len(steps)}", namespace="apps")
        assert one(old, "select slotkeeper.leave_v1(%s)", newcomer.id)
        lost = add_worker(old, queues=["lost"])
        scenario.enqueue(old, queue="lost")
        held = lost.claim()
        lost.expire()
        assert scenario.reap(old).given_back == len(held) > 0
        assert scenario.fold(old) > 0

    migrate(old_dsn, say=work)
    assert steps[0] == "applied 0002_holds_and_pools.sql"
    assert any(step.startswith("created functions/") for step in steps)
    # A pool that a function of before declared in between serves nothing until its next worker registers.
    assert one(old, "select namespaces from slotkeeper.pool where name = 'pool-1'") == []
    add_worker(old, pool="pool-1", namespace="apps")
    assert one(old, "select namespaces from slotkeeper.pool where name = 'pool-1'") == ["default"]
    assert one(old, "select done_count from slotkeeper.schedule_state where schedule = %s", schedule.id) == len(steps)


def test_what_was_wrong_by_hand_does_not_stop_the_upgrade(old: Connection, old_dsn: str) -> None:
    old.execute(
        "insert into slotkeeper.pool (namespace, name, queues, concurrency, declared_by)"
        " values ('a', 'b', '{}', 0, 'x')"
    )
    for _ in range(2):
        old.execute("insert into slotkeeper.hold (name, held_by, reason) values ('nobody', 'me', 'twice')")
    migrate(old_dsn)
    assert one(old, "select concurrency from slotkeeper.pool") == 1
    assert rows(old, "select * from slotkeeper.hold") == []


def test_functions_and_their_grants_appear_together(old: Connection, old_dsn: str) -> None:
    """A new function may be called by everybody until the grants have taken that away."""
    public: list[int] = []
    query = (
        "select count(*) from pg_proc p where p.pronamespace = 'slotkeeper'::regnamespace"
        " and has_function_privilege('public', p.oid, 'execute')"
    )
    migrate(old_dsn, say=lambda _: public.append(one(old, query)))
    assert len(public) > 3
    assert set(public) == {0}

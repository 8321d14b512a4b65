"""Migrating: again, at once, after a change, and refused."""

from __future__ import annotations

import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import scenario
from scenario import one, rows
from slotkeeper.cli.embedded_postgres import EmbeddedPostgres
from slotkeeper.errors import InvalidField, MigrationConflict
from slotkeeper.resources import resource_folder
from slotkeeper.store import migrate as migrating
from slotkeeper.store.migrate import migrate

Connection = psycopg.Connection[Any]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sql folder that `migrate` reads, to be changed."""
    folder = tmp_path / "sql"
    shutil.copytree(resource_folder("sql"), folder)
    monkeypatch.setattr(migrating, "resource_folder", lambda _: folder)
    return folder


def test_migrating_again_changes_nothing(connection: Connection, dsn: str) -> None:
    before = rows(connection, "select * from slotkeeper.migration order by name")
    assert len(before) > 5
    report = migrate(dsn)
    assert (report.migrations, report.functions, report.grants) == ((), (), ())
    assert rows(connection, "select * from slotkeeper.migration order by name") == before


def test_a_changed_function_is_created_again_and_stays_granted(connection: Connection, dsn: str, files: Path) -> None:
    changed = files / "functions" / "ticker.sql"
    text = changed.read_text()
    assert "order by s.next_due limit p_limit" in text
    changed.write_text(text.replace("order by s.next_due limit p_limit", "order by s.next_due, s.id limit p_limit"))
    said: list[str] = []
    assert migrate(dsn, say=said.append).functions == ("functions/ticker.sql",)
    assert said == ["created functions/ticker.sql"]
    assert "s.next_due, s.id" in one(connection, "select prosrc from pg_proc where proname = 'due_v1'")
    assert one(
        connection, "select has_function_privilege('slotkeeper_controller', 'slotkeeper.due_v1(integer)', 'execute')"
    )
    assert not one(connection, "select has_function_privilege('public', 'slotkeeper.due_v1(integer)', 'execute')")
    assert migrate(dsn).functions == ()


def test_a_new_migration_runs_once(connection: Connection, dsn: str, files: Path) -> None:
    (files / "migrations" / "9999_add.sql").write_text("alter table slotkeeper.cluster add column note text;")
    assert migrate(dsn).migrations == ("9999_add.sql",)
    assert migrate(dsn).migrations == ()
    assert rows(connection, "select note from slotkeeper.cluster") == []


def test_an_older_version_leaves_a_newer_schema_alone(connection: Connection, dsn: str, files: Path) -> None:
    """As after a rollback. Its processes run on the newer functions; the newer ones would not run on its own."""
    newest = max((files / "migrations").glob("*.sql"))
    newest.unlink()
    old = files / "functions" / "ticker.sql"
    old.write_text(old.read_text().replace("order by s.next_due limit p_limit", "order by s.id limit p_limit"))
    grants = files / "grants.sql"
    grants.write_text("revoke execute on all functions in schema slotkeeper from slotkeeper_controller;")
    said: list[str] = []
    login = f"login_{uuid.uuid4().hex[:8]}"
    connection.execute(sql.SQL("create role {} login").format(sql.Identifier(login)))
    report = migrate(dsn, [f"{login}=reader"], say=said.append)
    assert (report.migrations, report.functions, report.grants) == ((), (), (f"{login}=reader",))
    assert newest.name in said[-1]
    assert "order by s.next_due limit" in one(connection, "select prosrc from pg_proc where proname = 'due_v1'")
    assert one(
        connection, "select has_function_privilege('slotkeeper_controller', 'slotkeeper.due_v1(integer)', 'execute')"
    )
    assert one(connection, "select pg_has_role(%s, 'slotkeeper_reader', 'member')", login)
    connection.execute(sql.SQL("drop role {}").format(sql.Identifier(login)))


def test_a_migration_that_fails_leaves_nothing_behind(connection: Connection, dsn: str, files: Path) -> None:
    wrong = files / "migrations" / "9999_add.sql"
    wrong.write_text("alter table slotkeeper.cluster add column note text; select no_such_column;")
    with pytest.raises(Exception, match="no_such_column"):
        migrate(dsn)
    wrong.write_text("alter table slotkeeper.cluster add column note text;")
    assert migrate(dsn).migrations == ("9999_add.sql",)


def test_a_migration_that_was_applied_never_changes(connection: Connection, dsn: str, files: Path) -> None:
    with (files / "migrations" / "0001_tables.sql").open("a") as applied:
        applied.write("\n-- a word more\n")
    (files / "functions" / "ticker.sql").write_text("select 1")
    with pytest.raises(MigrationConflict, match="0001_tables"):
        migrate(dsn)
    assert one(connection, "select count(*) from pg_proc where proname = 'due_v1'") == 1


def test_two_migrate_a_new_database_at_once(postgres: EmbeddedPostgres) -> None:
    name = f"test_{uuid.uuid4().hex[:12]}"
    with scenario.connect(postgres.dsn) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    dsn = make_conninfo(postgres.dsn, dbname=name)
    with ThreadPoolExecutor(3) as pool:
        reports = [done.result() for done in [pool.submit(migrate, dsn) for _ in range(3)]]
    assert sorted(len(report.migrations) for report in reports)[:2] == [0, 0]
    with scenario.connect(dsn) as connection:
        assert scenario.enqueue(connection).created
    with scenario.connect(postgres.dsn) as connection:
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.mark.parametrize("grant", ["", "worker", "=worker", "app=", "app=root", "app=WORKER", "app=worker "])
def test_a_malformed_grant_is_refused_before_anything_happens(grant: str) -> None:
    with pytest.raises(InvalidField, match="LOGIN=ROLE") as caught:
        migrate("host=/nowhere", [grant])
    assert caught.value.field == "--grant"
    assert "enqueuer" in caught.value.instead


def test_a_grant_sets_the_time_outs_of_the_login(connection: Connection, dsn: str) -> None:
    login = f"app=1 {uuid.uuid4().hex[:8]}"  # a login may hold any character
    connection.execute(sql.SQL("create role {} login").format(sql.Identifier(login)))
    try:
        assert migrate(dsn, [f"{login}=enqueuer"]).grants == (f"{login}=enqueuer",)
        settings = one(connection, "select rolconfig from pg_roles where rolname = %s", login)
        assert {"idle_in_transaction_session_timeout=10s", "lock_timeout=2s", "synchronous_commit=on"} <= set(settings)
        assert one(connection, "select pg_has_role(%s, 'slotkeeper_enqueuer', 'member')", login)
    finally:
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(login)))

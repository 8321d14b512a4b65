"""Brings the schema to this version: roles, migrations, functions, grants.

Migrations (``sql/migrations/NNNN_name.sql``) are immutable and run once, each in a transaction of its own.
Functions and views (``sql/functions/*.sql``) are created again whenever their text changes, all of them and the
grants in one transaction: nobody meets half of them, or a new one that anybody may call. Roles and grants are
repeated every time. Any number of processes may migrate at once: an advisory lock lets one through. Changes are
additive within a minor version, so the previous version runs on this schema.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from slotkeeper.errors import DatabaseBusy, InvalidField, MigrationConflict
from slotkeeper.resources import resource_folder
from slotkeeper.store.connection import conninfo, wrapped_errors

ROLES = ("owner", "controller", "worker", "enqueuer", "reader", "operator")

#: Time-outs of a login that a role is granted to; members do not inherit them from the role.
_LOGIN_SETTINGS = {
    "synchronous_commit": "on",
    "idle_in_transaction_session_timeout": "10s",
    "statement_timeout": "15s",
    "lock_timeout": "2s",
    "timezone": "UTC",
}
#: Waiting longer for a lock would make everybody behind us wait too; so it is short and repeated.
_LOCK_TIMEOUT = "500ms"
_LOCK_TRIES = 120
_ADVISORY_LOCK = 1936420971


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What one call did: names of the files that ran, and the grants that were made."""

    migrations: tuple[str, ...]
    functions: tuple[str, ...]
    grants: tuple[str, ...]


def migrate(dsn: str, grants: Sequence[str] = (), *, say: Callable[[str], None] = lambda _: None) -> MigrationReport:
    """Migrates the database of ``dsn`` (a direct one, not through a transaction pooler).

    ``grants`` are ``LOGIN=ROLE`` with a role of ``ROLES``. Raises InvalidField for a malformed grant,
    MigrationConflict when an applied migration differs from its file, DatabaseBusy when a lock could not be had
    for a minute, DatabaseError.
    """
    wanted = [_parse_grant(grant) for grant in grants]
    folder = resource_folder("sql")
    with wrapped_errors(), psycopg.connect(conninfo(dsn, "migrate"), autocommit=True) as connection:
        connection.execute("select pg_advisory_lock(%s, 0)", (_ADVISORY_LOCK,))
        connection.execute("select set_config('lock_timeout', %s, false)", (_LOCK_TIMEOUT,))
        connection.execute("select set_config('client_min_messages', 'warning', false)")
        connection.execute("select set_config('check_function_bodies', 'off', false)")
        _run(connection, [_text(folder / "roles.sql")])
        for login, role in wanted:
            _grant(connection, login, role)
            say(f"granted slotkeeper_{role} to {login}")
        connection.execute("set role slotkeeper_owner")
        applied = _applied(connection)
        newer = _newer(folder, applied)
        if newer:
            # Its functions serve this version too; ours would not serve its processes.
            say(f"a newer version has migrated this database ({newer[-1]}): its schema stays as it is")
            return MigrationReport((), (), tuple(grants))
        migrations = _apply_new(connection, sorted((folder / "migrations").glob("*.sql")), applied, say)
        functions = _apply_changed(connection, folder, applied, say)
        connection.execute("select slotkeeper.ensure_partitions_v1((clock_timestamp() at time zone 'UTC')::date + 7)")
        return MigrationReport(migrations, functions, tuple(grants))


def _applied(connection: psycopg.Connection[Any]) -> dict[str, str]:
    connection.execute(
        "create table if not exists slotkeeper.migration ("
        " name text primary key, checksum text not null, applied_at timestamptz not null default clock_timestamp())"
    )
    return dict(connection.execute("select name, checksum from slotkeeper.migration").fetchall())


def _newer(folder: Path, applied: Mapping[str, str]) -> list[str]:
    """Migrations on record that this version does not have."""
    ours = {file.name for file in (folder / "migrations").glob("*.sql")}
    return sorted(name for name in applied if not name.startswith("functions/") and name not in ours)


def _apply_new(
    connection: psycopg.Connection[Any],
    files: Sequence[Path],
    applied: dict[str, str],
    say: Callable[[str], None],
) -> tuple[str, ...]:
    done = []
    for file in files:
        text, checksum = _text(file), _checksum(file)
        if file.name not in applied:
            _run(connection, [text], {file.name: checksum})
            say(f"applied {file.name}")
            done.append(file.name)
        elif applied[file.name] != checksum:
            raise MigrationConflict(
                f"{file.name} was applied to this database with another text; a migration never changes, so this "
                "database was made by a version that was never released: restore it, or start with a new one"
            )
    return tuple(done)


def _apply_changed(
    connection: psycopg.Connection[Any], folder: Path, applied: dict[str, str], say: Callable[[str], None]
) -> tuple[str, ...]:
    files = {f"functions/{file.name}": file for file in sorted((folder / "functions").glob("*.sql"))}
    checksums = {name: _checksum(file) for name, file in files.items() if applied.get(name) != _checksum(file)}
    _run(connection, [*(_text(files[name]) for name in checksums), _text(folder / "grants.sql")], checksums)
    for name in checksums:
        say(f"created {name}")
    return tuple(checksums)


def _run(
    connection: psycopg.Connection[Any],
    texts: Sequence[LiteralString],
    checksums: Mapping[str, str] | None = None,
) -> None:
    """The texts in one transaction, tried again while a lock cannot be had at once; ``checksums`` by name of file
    go on record.
    """
    for attempt in range(_LOCK_TRIES):
        try:
            with connection.transaction():
                for text in texts:
                    connection.execute(text)
                for name, checksum in (checksums or {}).items():
                    connection.execute(
                        "insert into slotkeeper.migration (name, checksum) values (%s, %s)"
                        " on conflict (name) do update"
                        " set checksum = excluded.checksum, applied_at = clock_timestamp()",
                        (name, checksum),
                    )
            return
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            if attempt == _LOCK_TRIES - 1:
                what = ", ".join(checksums or ()) or "roles and grants"
                raise DatabaseBusy(f"{what}: a lock could not be had: {error}") from error
            time.sleep(0.5)


def _grant(connection: psycopg.Connection[Any], login: str, role: str) -> None:
    connection.execute(sql.SQL("grant {} to {}").format(sql.Identifier(f"slotkeeper_{role}"), sql.Identifier(login)))
    for setting, value in _LOGIN_SETTINGS.items():
        connection.execute(
            sql.SQL("alter role {} set {} = {}").format(
                sql.Identifier(login), sql.Identifier(setting), sql.Literal(value)
            )
        )


def _parse_grant(grant: str) -> tuple[str, str]:
    login, equals, role = grant.rpartition("=")
    if not equals or not login or role not in ROLES:
        raise InvalidField("--grant", f"{grant!r} is not LOGIN=ROLE", instead=f"ROLE is one of {', '.join(ROLES)}")
    return login, role


def _text(file: Path) -> LiteralString:
    # The files are part of the program, so their text is as literal as a string in it.
    return file.read_text(encoding="utf-8")


def _checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()

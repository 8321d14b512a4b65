"""Connections to Postgres that notice a lost server soon, and the one place where driver errors become ours.

A ``Session`` is one connection of one thread that is opened when first needed and again after it broke. There
is no pool: every actor needs one connection, the worker a few, and a statement is one function call in a
transaction of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors as driver
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import namedtuple_row

from slotkeeper.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    FinishRefused,
    InvalidField,
    LeaseLost,
    PermissionMissing,
    SchemaMissing,
)
from slotkeeper.store.queries import queries

#: A dead peer is noticed within about 25 s when idle and 10 s when waiting; both are shorter than any default lease
#: allows.
CONNECTION_PARAMETERS: Mapping[str, str] = {
    "connect_timeout": "5",
    "tcp_user_timeout": "10000",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    # After a failover a kept host name may lead to a standby: it accepts no writes, so it is not our server.
    "target_session_attrs": "read-write",
}


_WRITE_INSTEAD = (
    "postgresql://user@host/database, with odd characters of a password percent-encoded (@ %40, / %2F, % %25, "
    "blank %20), or the password in PGPASSWORD as it is"
)


def conninfo(dsn: str, name: str) -> str:
    """``dsn`` with our parameters where it names none, and ``name`` as the application name.

    Raises InvalidField when it is neither a libpq URL nor a keyword string, or a URL that a character of its password
    has broken.
    """
    _refuse_broken(dsn)
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error as error:
        # What libpq quotes may be a part of the password; so may be what a traceback shows.
        said = re.sub(r'".*"', '"…"', str(error).strip(), flags=re.DOTALL)
        raise InvalidField("--dsn", said, instead=_WRITE_INSTEAD) from None
    return make_conninfo("", **{**CONNECTION_PARAMETERS, "application_name": f"slotkeeper {name}", **given})


def _refuse_broken(dsn: str) -> None:
    """A password with ``@`` or ``/`` in a URL would be sent to the name server, as a part of the host."""
    scheme, found, rest = dsn.partition("://")
    authority, _, path = rest.partition("/")
    # A ? may stand in a password; behind the host it begins the parameters, whose values may hold an @.
    user, at, host = authority.partition("@")
    if at and "?" in host:
        authority, path = user + at + host.partition("?")[0], ""
    misplaced = authority.count("@") > 1 or "@" in path.partition("?")[0]
    if found and scheme in ("postgresql", "postgres") and misplaced:
        raise InvalidField("--dsn", "an @ stands where a URL has none", instead=_WRITE_INSTEAD)


@contextmanager
def wrapped_errors() -> Iterator[None]:
    """Turns what the driver raises into our errors, once; the cause is kept."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error


def translate(error: psycopg.Error) -> DatabaseError | SchemaMissing:
    """Our error for one of the driver's."""
    state = error.sqlstate or ""
    text = str(error).strip() or type(error).__name__
    if state == "SK001":
        return FinishRefused(text, sqlstate=state)
    if state == "SK002":
        return LeaseLost(text, sqlstate=state)
    if state == "SK003" or isinstance(error, driver.InsufficientPrivilege):
        return PermissionMissing(text, sqlstate=state)
    if isinstance(error, (driver.InvalidSchemaName, driver.UndefinedFunction, driver.UndefinedTable)):
        return SchemaMissing(f"the database lacks what this version needs ({text}): run 'slotkeeper migrate'")
    if state[:2] in ("40", "55") or isinstance(error, driver.QueryCanceled):
        return DatabaseBusy(text, sqlstate=state)
    # 08 connection, 57P server shutdown, 53 out of resources, 25006 a server that accepts no writes, none: no answer
    # at all
    if not state or state[:2] in ("08", "53") or state[:3] == "57P" or state in ("25006", "25P03", "25P04"):
        return DatabaseUnavailable(text, sqlstate=state)
    return DatabaseError(text, sqlstate=state)


class Session:
    """One connection of one thread, opened when needed.

    ``prepare_threshold`` stays off, so that it works through PgBouncer in transaction mode: a statement here is
    a call of a function, whose plans live in the server anyway.

    ``statement_seconds``: a statement of ``call`` that takes longer is ended by the server (DatabaseBusy), whatever the
    login's own time-out; set for its transaction alone, because a pooler gives the next one to others.
    """

    def __init__(self, dsn: str, name: str, *, statement_seconds: float | None = None) -> None:
        self._conninfo = conninfo(dsn, name)
        self._statement_seconds = statement_seconds
        self._connection: psycopg.Connection[Any] | None = None

    def call(self, query: str, /, **parameters: object) -> list[Any]:
        """Runs the named statement in a transaction of its own and returns its rows as named tuples.

        Raises DatabaseUnavailable (and opens a new connection next time), DatabaseBusy, or another DatabaseError.
        """
        with self.connection() as connection:
            if self._statement_seconds is None:
                return execute(connection, query, parameters)
            with connection.transaction():
                milliseconds = str(round(self._statement_seconds * 1000))
                execute(connection, "session.statement_timeout", {"milliseconds": milliseconds})
                return execute(connection, query, parameters)

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """Several statements in one transaction; for ``execute``."""
        with self.connection() as connection, connection.transaction():
            yield connection

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """The connection, opened if need be; a broken one is dropped when the block ends."""
        try:
            with wrapped_errors():
                if self._connection is None or self._connection.closed:
                    self._connection = psycopg.connect(
                        self._conninfo, autocommit=True, prepare_threshold=None, row_factory=namedtuple_row
                    )
                yield self._connection
        except DatabaseUnavailable:
            self.close()
            raise

    def close(self) -> None:
        """Closes the connection, if there is one; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def execute(connection: psycopg.Connection[Any], query: str, parameters: Mapping[str, object]) -> list[Any]:
    """Runs the named statement on ``connection`` and returns its rows."""
    cursor = connection.cursor(binary=True)
    cursor.execute(queries()[query].text, parameters)
    return cursor.fetchall() if cursor.description else []

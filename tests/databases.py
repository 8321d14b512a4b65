"""Databases of the tests' own, as copies of a migrated one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from slotkeeper.cli.embedded_postgres import EmbeddedPostgres


@contextmanager
def new_database(postgres: EmbeddedPostgres, template: str) -> Iterator[str]:
    """The DSN of a copy of ``template`` that goes when the block ends."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        create = sql.SQL("create database {} template {}")
        connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
    yield make_conninfo(postgres.dsn, dbname=name)
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))

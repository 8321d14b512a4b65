"""Fixtures that every room of the tests may use: one real Postgres per session, one migrated database per test."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from databases import new_database
from slotkeeper.cli.embedded_postgres import EmbeddedPostgres
from slotkeeper.store.migrate import migrate

#: Settings that the tests lean on: a crash of the machine may lose them all, and nobody minds.
_FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "shared_buffers": "256MB"}


#: Folders in memory are six times as fast here; a small one (containers have 64 MB) is left alone.
_MEMORY = Path("/dev/shm")


def _fast_folder() -> str | None:
    roomy = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 1 << 30
    return str(_MEMORY) if roomy and "TMPDIR" not in os.environ else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """A running server. SLOTKEEPER_TEST_POSTGRES names a folder with the programs of another version."""
    programs = os.environ.get("SLOTKEEPER_TEST_POSTGRES")
    folder = Path(tempfile.mkdtemp(prefix="slotkeeper-test-", dir=_fast_folder()))
    folder.chmod(0o755)
    server = EmbeddedPostgres(folder, programs=Path(programs) if programs else None, settings=_FAST)
    try:
        server.start()
        yield server
    finally:
        server.stop(immediately=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def template_database(postgres: EmbeddedPostgres) -> str:
    """A migrated database that the tests' own are copied from."""
    name = "slotkeeper_template"
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    migrate(make_conninfo(postgres.dsn, dbname=name))
    return name


@pytest.fixture
def dsn(postgres: EmbeddedPostgres, template_database: str) -> Iterator[str]:
    """The DSN of a migrated database of this test's own."""
    with new_database(postgres, template_database) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def shared_dsn(postgres: EmbeddedPostgres, template_database: str) -> Iterator[str]:
    """The DSN of a migrated database that the tests of a module share; each keeps to schedules of its own."""
    with new_database(postgres, template_database) as dsn:
        yield dsn

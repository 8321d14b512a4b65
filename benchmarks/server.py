"""The Postgres that the benchmarks run on: the embedded one, durable, with the settings of the recorded runs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from slotkeeper.cli.embedded_postgres import EmbeddedPostgres, packaged_programs
from slotkeeper.store.migrate import migrate

#: Defaults but for these; fsync and synchronous commit are on.
SETTINGS = {
    "shared_buffers": "2GB",
    "max_wal_size": "8GB",
    "min_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "max_connections": "200",
}


@dataclass
class Server:
    """``dsn`` is the benchmark's own migrated database; ``other_dsn`` one beside it, for the yardstick."""

    base_dsn: str
    programs: Path

    @property
    def dsn(self) -> str:
        return make_conninfo(self.base_dsn, dbname="bench")

    @property
    def other_dsn(self) -> str:
        return make_conninfo(self.base_dsn, dbname="postgres")

    def recreate(self) -> None:
        """A new, migrated database."""
        with psycopg.connect(self.base_dsn, autocommit=True) as connection:
            connection.execute("drop database if exists bench with (force)")
            connection.execute("create database bench")
        migrate(self.dsn)


@contextmanager
def benchmark_server() -> Iterator[Server]:
    """A running server in a folder of its own, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="slotkeeper-bench-"))
    folder.chmod(0o755)
    server = EmbeddedPostgres(folder, settings=SETTINGS)
    try:
        yield Server(server.start(), packaged_programs())
    finally:
        server.stop(immediately=True)
        shutil.rmtree(folder, ignore_errors=True)

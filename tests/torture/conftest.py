"""A database of a test's own with the settings of production: commits survive the server's crash."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# The modules of the operator's room are found by their own names, as they find each other.
sys.path.insert(0, str(Path(__file__).parents[1] / "operator"))

from api_server import ApiServer, own_api_server

import scenario
from applied_schedules import AppliedSchedules
from processes import own_processes
from slotkeeper.cli.embedded_postgres import EmbeddedPostgres
from slotkeeper.store.migrate import migrate
from worker_place import Place

HANDLERS = Path(__file__).parent / "handlers.py"


@pytest.fixture(scope="session")
def torture_seconds() -> float:
    """How long the long one lasts: SLOTKEEPER_TORTURE_SECONDS, 30 in CI, 120 and more for a night."""
    return float(os.environ.get("SLOTKEEPER_TORTURE_SECONDS", "30"))


@pytest.fixture
def durable_postgres() -> Iterator[EmbeddedPostgres]:
    """A server of the test's own, to be stopped and started."""
    folder = Path(tempfile.mkdtemp(prefix="slotkeeper-torture-"))
    folder.chmod(0o755)
    programs = os.environ.get("SLOTKEEPER_TEST_POSTGRES")
    server = EmbeddedPostgres(folder, programs=Path(programs) if programs else None)
    try:
        yield server
    finally:
        server.stop(immediately=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_api() -> Iterator[ApiServer]:
    """A control plane of the test's own, to be killed."""
    with own_api_server() as server:
        yield server


@pytest.fixture
def place(dsn: str, tmp_path: Path) -> Iterator[Place]:
    with own_processes(tmp_path) as processes, scenario.connect(dsn) as connection:
        place = Place(dsn, connection, processes, AppliedSchedules(dsn, connection), HANDLERS)
        yield place
        place.schedules.close()


@pytest.fixture
def durable_place(durable_postgres: EmbeddedPostgres, tmp_path: Path) -> Iterator[Place]:
    """On ``durable_postgres``, which its tests restart."""
    dsn = durable_postgres.start()
    migrate(dsn)
    with own_processes(tmp_path) as processes, scenario.connect(dsn) as connection:
        place = Place(dsn, connection, processes, AppliedSchedules(dsn, connection), HANDLERS)
        yield place
        place.schedules.close()

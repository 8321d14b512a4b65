"""A real worker process on a database that the tests of this room share, and databases of a test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import scenario
from applied_schedules import AppliedSchedules
from databases import new_database
from processes import eventually, own_processes
from slotkeeper.cli.embedded_postgres import EmbeddedPostgres
from worker_place import HANDLERS, Place


@pytest.fixture(scope="session")
def shared(
    postgres: EmbeddedPostgres, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A database with one worker that is never stopped: for runs that end by themselves."""
    folder = tmp_path_factory.mktemp("shared-worker")
    with (
        new_database(postgres, template_database) as dsn,
        own_processes(folder) as processes,
        scenario.connect(dsn) as connection,
    ):
        connection.execute("create table effect (run bigint, attempt int)")
        place = Place(dsn, connection, processes, AppliedSchedules(dsn, connection))
        worker = processes.worker(dsn, HANDLERS, name="shared-worker", EFFECTS_DSN=dsn)
        yield place
        place.schedules.close()
        assert worker.running, f"a run ended the shared worker:\n{worker.text()[-3000:]}"


@pytest.fixture
def place(dsn: str, tmp_path: Path) -> Iterator[Place]:
    """A database of the test's own; the test starts its workers."""
    with own_processes(tmp_path) as processes, scenario.connect(dsn) as connection:
        connection.execute("create table effect (run bigint, attempt int)")
        place = Place(dsn, connection, processes, AppliedSchedules(dsn, connection))
        yield place
        place.schedules.close()


@pytest.fixture
def finished(shared: Place) -> Callable[[str, str], Any]:
    """Enqueues one run on the shared worker and waits until it is done or dead."""

    def run(task: str, payload: str = "{}", **more: Any) -> Any:
        id_ = shared.enqueue(task, payload, **more)
        return eventually(lambda: (row := shared.job(id_)).status in ("done", "dead") and row, f"{task} ended")

    return run

"""Databases with real worker processes that serve their metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import scenario
from applied_schedules import AppliedSchedules
from processes import own_processes
from worker_place import Place


@pytest.fixture
def place(dsn: str, tmp_path: Path) -> Iterator[Place]:
    """A database of the test's own; the test starts its workers."""
    with own_processes(tmp_path) as processes, scenario.connect(dsn) as connection:
        place = Place(dsn, connection, processes, AppliedSchedules(dsn, connection))
        yield place
        place.schedules.close()

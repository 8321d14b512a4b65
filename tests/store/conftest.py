"""A connection to a migrated database of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import scenario
from timeline import Timeline


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with scenario.connect(dsn) as opened:
        yield opened


@pytest.fixture
def other(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A second connection, to race the first."""
    with scenario.connect(dsn) as opened:
        yield opened


@pytest.fixture
def timeline(
    shared_dsn: str, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Timeline]:
    """For modules that test time on one database; their ``connection`` leads to it."""
    timeline = Timeline(shared_dsn, connection, monkeypatch)
    yield timeline
    timeline.close()

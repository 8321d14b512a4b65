"""A connection to a migrated database of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import scenario


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with scenario.connect(dsn) as opened:
        yield opened


@pytest.fixture
def other(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A second connection, to race the first."""
    with scenario.connect(dsn) as opened:
        yield opened

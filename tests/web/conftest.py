"""A dashboard over a real database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import scenario
from slotkeeper.web.listen import ListenAddress
from slotkeeper.web.server import Dashboard
from web_browser import Browser


def served(dsn: str) -> Iterator[Browser]:
    dashboard = Dashboard(dsn, ListenAddress("127.0.0.1", 0))
    url = dashboard.start()
    assert url is not None
    yield Browser(urlsplit(url).netloc)
    dashboard.stop()


@pytest.fixture
def browser(dsn: str) -> Iterator[Browser]:
    yield from served(dsn)


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with scenario.connect(dsn) as opened:
        yield opened

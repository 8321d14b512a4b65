"""A scrape does not wait for a database that does not answer, and many scrapes are one question."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from scraping import scrape
from slotkeeper.errors import DatabaseUnavailable
from slotkeeper.metrics.address import Address
from slotkeeper.metrics.exposition import metrics_routes
from slotkeeper.metrics.reading import DatabaseReader
from slotkeeper.metrics.server import HttpServer, turns
from slotkeeper.metrics.worker import WorkerMetrics
from slotkeeper.store.connection import Session
from slotkeeper.store.metrics import schema
from slotkeeper.worker.counts import OUTCOMES, AttemptCounts


class _Facts:
    """A worker that has done nothing yet."""

    worker_id, ready, held = 0, False, 0

    def __init__(self) -> None:
        self.counts = AttemptCounts()


@pytest.fixture
def silent_server() -> Any:
    """The DSN of something that takes connections and never says a word; nobody gives up for a minute."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        yield f"host=127.0.0.1 port={port} dbname=x user=x connect_timeout=60"


def test_a_scrape_answers_while_the_database_does_not(silent_server: str) -> None:
    """The question is still open when the answer is there: it is open for a minute."""
    reader = DatabaseReader(silent_server, "test")
    metrics = WorkerMetrics(_Facts(), reader, pool="p", concurrency=3, outcomes=OUTCOMES)
    server = HttpServer(Address("127.0.0.1", 0), [metrics_routes(metrics.families)])
    server.start()
    try:
        for _ in range(2):
            shown = scrape(server.port)
            assert shown.value("slotkeeper_database_up") == 0
            assert shown.value("slotkeeper_database_last_contact_timestamp_seconds") is None
            assert shown.value("slotkeeper_worker_concurrency_runs") == 3
    finally:
        server.stop()
        reader.close()


def test_many_scrapes_are_one_question(dsn: str) -> None:
    asked = []

    def read(session: Session) -> int:
        asked.append(schema(session))
        return len(asked)

    async def ask() -> list[int | None]:
        reader = DatabaseReader(dsn, "test")
        lasting, fleeting = reader.reading(read, seconds=3600), reader.reading(read, seconds=0)
        found = [known.value for known in await asyncio.gather(*(lasting.known(30) for _ in range(5)))]
        found.append((await lasting.known(30)).value)
        found.append((await fleeting.known(30)).value)
        reader.close()
        return found

    assert asyncio.run(ask()) == [1] * 6 + [2]


def test_a_failure_is_told_and_the_last_value_kept(dsn: str) -> None:
    broken = False

    def read(session: Session) -> int:
        if broken:
            raise DatabaseUnavailable("away")
        return schema(session).version

    async def ask() -> None:
        nonlocal broken
        reader = DatabaseReader(dsn, "test")
        reading = reader.reading(read, seconds=0)
        assert await reading.known(30) == await reading.known(30) or True
        good = await reading.known(30)
        broken = True
        bad = await reading.known(30)
        reader.close()
        assert (good.value, good.answered) == (1, True)
        assert (bad.value, bad.answered, bad.recent) == (1, False, 1)

    asyncio.run(ask())


def test_a_slow_answer_is_none_only_when_it_is_late(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    go_on.set()

    def read(session: Session) -> int:
        assert go_on.wait(50)
        return schema(session).version

    async def ask() -> None:
        reader = DatabaseReader(dsn, "test")
        reading = reader.reading(read, seconds=0)
        try:
            assert (await reading.known(30)).answered
            go_on.clear()
            monkeypatch.setattr("slotkeeper.metrics.reading.LATE", 3600.0)
            slow = await reading.known(0.01)
            assert (slow.value, slow.answered) == (1, True)
            monkeypatch.setattr("slotkeeper.metrics.reading.LATE", 0.0)
            assert not (await reading.known(0.01)).answered
            go_on.set()
            assert (await reading.known(30)).answered
        finally:
            go_on.set()
            reader.close()

    asyncio.run(ask())


def test_a_loop_that_does_not_turn_is_noticed() -> None:
    release = threading.Event()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        assert asyncio.run(turns(loop, 30))
        loop.call_soon_threadsafe(release.wait)
        assert not asyncio.run(turns(loop, 0.05))
        release.set()
        assert asyncio.run(turns(loop, 30))
    finally:
        release.set()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

"""A scrape does not wait for a database that does not answer, and many scrapes are one question."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import scenario
from scraping import scrape
from slotkeeper.errors import DatabaseUnavailable
from slotkeeper.metrics.address import Address
from slotkeeper.metrics.exposition import metrics_routes
from slotkeeper.metrics.reading import DatabaseReader
from slotkeeper.metrics.server import HttpServer, turns
from slotkeeper.metrics.worker import WorkerMetrics
from slotkeeper.store.connection import Session
from slotkeeper.store.metrics import needed_schema, queues, schema
from slotkeeper.worker.counts import OUTCOMES, AttemptCounts

Connection = psycopg.Connection[Any]


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    with scenario.connect(dsn) as opened:
        yield opened


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
        assert (good.value, good.answered) == (needed_schema(), True)
        assert (bad.value, bad.answered, bad.recent) == (good.value, False, good.value)

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
            assert (slow.value, slow.answered) == (needed_schema(), True)
            monkeypatch.setattr("slotkeeper.metrics.reading.LATE", 0.0)
            assert not (await reading.known(0.01)).answered
            go_on.set()
            assert (await reading.known(30)).answered
        finally:
            go_on.set()
            reader.close()

    asyncio.run(ask())


def test_c131_a_question_has_a_time_out_of_its_own(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the login's is, and for that question alone."""
    monkeypatch.setattr("slotkeeper.metrics.reading.STATEMENT_SECONDS", 0.2)

    async def ask() -> None:
        reader = DatabaseReader(dsn, "test")
        reading = reader.reading(lambda session: len(queues(session, 1)), seconds=0)
        try:
            with connection.transaction():
                connection.execute("lock slotkeeper.lane in access exclusive mode")
                late = await reading.known(3600)  # an answer, though nobody lets go of the table
                assert (late.value, late.answered) == (None, False)
            assert (await reading.known(30)).answered
            left = await reader.ask(lambda session: session.connection().__enter__().execute("show statement_timeout"))
            assert left.fetchone()[0] == "0"
        finally:
            reader.close()

    asyncio.run(ask())


def test_what_was_read_is_not_kept_for_long_though_reading_took_long(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slotkeeper.metrics.reading._SHARE", 1e-9)

    async def ask() -> float:
        reader = DatabaseReader(dsn, "test")
        kept = (await reader.reading(schema, seconds=5).known(30)).kept
        reader.close()
        return kept

    assert asyncio.run(ask()) == 25


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

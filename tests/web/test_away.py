"""The database away, slow or without a schema: a page that says so, and the dashboard is back when it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from processes import eventually
from scenario import connect, one
from slotkeeper.errors import DatabaseBusy
from slotkeeper.store.connection import Session
from slotkeeper.store.web import reading
from slotkeeper.web.listen import ListenAddress
from slotkeeper.web.server import Dashboard
from web_browser import Browser


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[Browser]:
    """A dashboard whose database is not there."""
    dashboard = Dashboard(f"postgresql://nobody@/nothing?host={tmp_path}", ListenAddress("127.0.0.1", 0))
    url = dashboard.start()
    assert url is not None
    yield Browser(urlsplit(url).netloc)
    dashboard.stop()


def test_without_a_database_a_page_says_so(lost: Browser, tmp_path: Path) -> None:
    for path in ("/", "/runs", "/queues", "/dead", "/schedules/a/b/c"):
        answer = lost.get(path)
        assert answer.status == 503
        assert "The database cannot be read at the moment." in answer.text
        assert "Traceback" not in answer.text
        assert str(tmp_path) not in answer.text
    answer = lost.get("/api/v1/runs")
    assert (answer.status, answer.json) == (
        503,
        {"error": "The database cannot be read at the moment. The log says why."},
    )
    assert lost.get("/static/dashboard.css").status == 200


def test_a_lost_connection_is_opened_again(dsn: str, browser: Browser) -> None:
    assert browser.get("/").status == 200
    with connect(dsn) as connection:
        ended = one(
            connection,
            "select count(pg_terminate_backend(pid)) from pg_stat_activity"
            " where application_name = 'slotkeeper dashboard' and datname = current_database()",
        )
    assert ended == 1
    assert browser.get("/").status == 200


def test_a_database_without_our_schema(dsn: str, browser: Browser) -> None:
    with connect(dsn) as connection:
        connection.execute("drop schema slotkeeper cascade")
    answer = browser.get("/")
    assert answer.status == 503
    assert "run &#39;slotkeeper migrate&#39;" in answer.text


def test_a_statement_that_takes_too_long_is_given_up(dsn: str) -> None:
    with connect(dsn) as other, other.transaction():
        other.execute("lock table slotkeeper.lane in access exclusive mode")
        session = Session(dsn, "test dashboard")
        with pytest.raises(DatabaseBusy, match="statement timeout"), reading(session, 50) as slow:
            slow.lanes(1)
    with reading(session, 5_000) as again:
        assert again.lanes(1) == []
    session.close()


def test_a_slow_database_is_a_page_and_stops_nobody(
    dsn: str, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slotkeeper.web.reader.STATEMENT_MILLISECONDS", 300)
    with connect(dsn) as other, other.transaction():
        other.execute("lock table slotkeeper.lane in access exclusive mode")
        answers: list[int] = []
        slow = threading.Thread(target=lambda: answers.append(browser.get("/queues").status))
        slow.start()
        eventually(
            lambda: one(
                other, "select count(*) from pg_locks where not granted and relation = 'slotkeeper.lane'::regclass"
            ),
            "the page waits for the lock",
        )
        assert browser.get("/static/dashboard.css").status == 200
        slow.join(30)
        assert answers == [503]
        assert "gave no answer within" in browser.get("/queues").text
    assert browser.get("/queues").status == 200


def test_nothing_is_ever_written(dsn: str) -> None:
    session = Session(dsn, "test dashboard")
    with pytest.raises(Exception, match="read-only transaction"), reading(session, 5_000) as opened:
        opened.connection.execute("insert into slotkeeper.lane (namespace, queue, priority) values ('a', 'b', 0)")
    session.close()


def test_the_role_of_the_controller_is_enough(dsn: str) -> None:
    session = Session(dsn, "test dashboard")
    with connect(dsn) as connection:
        connection.execute("create role dashboard_login login in role slotkeeper_controller")
    try:
        with reading(session, 5_000) as opened:
            opened.connection.execute("set local role dashboard_login")
            assert opened.lanes(1) == []
            assert opened.workers(1) == []
            assert opened.schedule_counts() == {}
            assert opened.live_until(0, 1) is None
            moment = opened.moment
            assert (
                opened.schedules(namespace=None, name=None, state=None, health=None, after=("", "", ""), limit=1) == []
            )
            assert opened.schedule("a", "b", "c") is None
            assert opened.live(0, 1, status=None, namespace=None, limit=1) == []
            assert opened.ended(opened.kept_since(), moment, before_id=None, status=None, namespace=None, limit=1) == []
            assert opened.ended_count(opened.kept_since(), moment, 1) == 0
            assert opened.runs(1, moment, moment, before_id=None, status=None, limit=1) == []
            assert opened.runs_count(1, moment, moment, 1) == 0
            assert opened.slots(1, moment) == []
            assert opened.first_slot(1) is None
            with pytest.raises(psycopg.errors.InsufficientPrivilege), opened.connection.transaction():
                opened.connection.execute("select from slotkeeper.dashboard_run")
    finally:
        session.close()
        with connect(dsn) as connection:
            connection.execute(sql.SQL("drop role dashboard_login"))

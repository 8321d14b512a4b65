"""However much history there is, and whatever statistics say: a page reads a bounded part of it, through indexes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

import scenario
from databases import new_database
from scenario import add_schedule, one
from slotkeeper.cli.embedded_postgres import EmbeddedPostgres
from slotkeeper.store.connection import Session
from slotkeeper.store.web import Reading, reading
from slotkeeper.web.history import MOST_READ
from slotkeeper.web.pages import dead_page, queues_page, runs_page, schedule_page
from slotkeeper.web.parameters import RunFilter, run_filter

MANY = 80_000
#: Every second row is the first schedule's, the others are those of the rest.
_WHICH = "case when g %% 2 = 0 then 1 else 2 + g %% 199 end"
_FILL = {
    "run_done": "insert into slotkeeper.run_done (id, owner, slot, created_at, run_at, version, lane, max_attempts,"
    " trigger, outcome, attempt, charged, first_started_at, finished_at)"
    " select g, (%(owners)s::bigint[])["
    + _WHICH
    + "], x, x, x, 1, %(lane)s, 6, 0, 0, 1, 1, x, x from generate_series(1, %(many)s) g,"
    " lateral (select %(start)s::timestamptz + g * interval '1 second' as x) x",
    "run_dead": "insert into slotkeeper.run_dead (id, owner, slot, created_at, run_at, version, lane, max_attempts,"
    " trigger, attempt, charged, lost, first_started_at, died_at, reason)"
    " select 10000000 + g, (%(owners)s::bigint[])["
    + _WHICH
    + "], x, x, x, 1, %(lane)s, 6, 0, 1, 1, 0, x, x, 'NonRetryable'"
    " from generate_series(1, %(many)s / 10) g,"
    " lateral (select %(start)s::timestamptz + g * interval '10 seconds' + interval '1 microsecond' as x) x",
    "slot_skip": "insert into slotkeeper.slot_skip (schedule, first_slot, last_slot, slots, outcome, reason, version,"
    " at) select (%(schedules)s::bigint[])["
    + _WHICH
    + "], x, x, 1, 3, 'Overlap', 1, x from generate_series(1, %(many)s / 10) g,"
    " lateral (select %(start)s::timestamptz + g * interval '10 seconds' + interval '2 microseconds' as x) x",
    "run": "insert into slotkeeper.run (run_at, lane, max_attempts, trigger, task, payload)"
    " select clock_timestamp(), %(lane)s, 6, 5, 't', '{}' from generate_series(1, %(many)s / 4)",
}


@pytest.fixture(scope="module", params=["of empty tables", "true"])
def crowd(
    request: pytest.FixtureRequest, postgres: EmbeddedPostgres, template_database: str
) -> Iterator[tuple[Session, bool]]:
    """A day of history of 200 schedules, the first with half of it, and one beside them that has none. Whether
    statistics are true comes with it.
    """
    true = request.param == "true"
    with new_database(postgres, template_database) as dsn:
        with scenario.connect(dsn) as connection:
            connection.execute("analyze")
            add_schedule(connection, "quiet", namespace="calm")
            owners = [add_schedule(connection, "busy"), *(add_schedule(connection) for _ in range(199))]
            values = {
                "owners": [schedule.owner for schedule in owners], "schedules": [schedule.id for schedule in owners],
                "lane": one(connection, "select id from slotkeeper.lane where namespace = 'default'"),
                "start": one(connection, "select clock_timestamp() - interval '24 hours'"), "many": MANY,
            }  # fmt: skip
            for statement in _FILL.values():
                connection.execute(statement, values)
            connection.execute(
                "select brin_summarize_new_values(i.indexrelid) from pg_index i join pg_class c on c.oid = i.indexrelid"
                " where c.relkind = 'i' and c.relam = (select oid from pg_am where amname = 'brin')"
            )
            if true:
                connection.execute("analyze")
        session = Session(dsn, "test dashboard")
        yield session, true
        session.close()


def read_rows(opened: Reading) -> tuple[int, int]:
    """Rows of the large tables that this transaction has read: by scans of whole tables, and through indexes."""
    row = opened.connection.execute(
        "select coalesce(sum(seq_tup_read), 0)::bigint as whole, coalesce(sum(idx_tup_fetch), 0)::bigint as indexed"
        " from pg_stat_xact_user_tables where relname ~ '^(run|run_done.*|run_dead|slot_skip.*)$'"
    ).fetchone()
    assert row is not None
    return row.whole, row.indexed


def bounded(crowd: tuple[Session, bool], page: Any, most: int | None = None) -> Any:
    """Never a whole table; and where statistics are about true, no more than ``most`` rows."""
    with reading(crowd[0], 30_000) as opened:
        whole_before, indexed_before = read_rows(opened)  # of earlier transactions, not yet counted by the server
        found = page(opened)
        whole, indexed = read_rows(opened)
        whole, indexed = whole - whole_before, indexed - indexed_before
    assert whole == 0, f"{whole} rows by scans of whole tables"
    assert most is None or indexed <= most or not crowd[1], f"{indexed} rows"
    return found


def wanted(**query: str) -> RunFilter:
    return run_filter(query)


@pytest.mark.parametrize(
    "query",
    [{}, {"status": "done"}, {"status": "cancelled"}, {"namespace": "calm"}, {"status": "dead", "namespace": "calm"},
     {"status": "running"}, {"status": "skipped"}],
    ids=str,
)  # fmt: skip
def test_a_page_of_runs(crowd: tuple[Session, bool], query: dict[str, str]) -> None:
    # A page that searches asks for several ranges: how many, test_history says; how much of each is read, a test below.
    full = query in ({}, {"status": "done"}, {"status": "skipped"})
    page = bounded(crowd, lambda opened: runs_page(opened, wanted(**query)), 12 * MOST_READ if full else None)
    if full:
        assert page.ended is not None
        assert len(page.ended.rows) == 50
    elif query.get("status") != "running":
        assert page.ended is not None
        assert page.ended.searched_to is not None
    else:
        assert page.live == []
        assert page.live_next is not None


def test_a_filter_that_matches_nothing_goes_on_where_it_stopped(crowd: tuple[Session, bool]) -> None:
    place: datetime | None = None
    for _ in range(3):
        query = wanted(status="cancelled", **({} if place is None else {"before": place.isoformat()}))
        page = bounded(crowd, lambda opened, query=query: runs_page(opened, query))
        assert page.ended is not None
        assert page.ended.next is not None
        assert place is None or page.ended.next.moment < place
        place = page.ended.next.moment


def test_the_page_of_the_dead(crowd: tuple[Session, bool]) -> None:
    page = bounded(crowd, lambda opened: dead_page(opened, wanted()), 12 * MOST_READ)
    assert page.ended is not None
    assert len(page.ended.rows) == 50


def test_the_page_of_a_schedule(crowd: tuple[Session, bool]) -> None:
    page = bounded(crowd, lambda opened: schedule_page(opened, "default", "default", "busy", wanted()))
    assert page is not None
    assert len(page.runs.rows) == 50
    assert len(page.heat) == 14
    quiet = bounded(crowd, lambda opened: schedule_page(opened, "default", "calm", "quiet", wanted()), 10)
    assert quiet is not None
    assert list(quiet.runs.rows) == []


def test_the_page_of_queues(crowd: tuple[Session, bool]) -> None:
    page = bounded(crowd, queues_page, 3 * MOST_READ)
    lane = next(lane for lane in page.lanes if lane.namespace == "default")
    assert lane.more
    assert lane.ready >= MOST_READ


def test_a_range_of_time_reads_little_beside_it(crowd: tuple[Session, bool]) -> None:
    """One minute: of run_done and slot_skip the block ranges that it touches, of run_dead its own rows."""

    def minute(opened: Reading) -> Any:
        until = opened.moment - timedelta(hours=12)
        after = until - timedelta(minutes=1)
        return opened.ended(after, until, before_id=None, status=None, namespace=None, limit=1000)

    assert len(bounded(crowd, minute, 25_000)) == 60 + 6 + 6


def test_a_dense_heat_map_covers_fewer_days(crowd: tuple[Session, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slotkeeper.web.pages._HEAT_SLOTS", 1_000)
    page = bounded(crowd, lambda opened: schedule_page(opened, "default", "default", "busy", wanted()))
    assert page is not None
    assert len(page.heat) == 1

"""``/metrics/schedules``: what `health` says of each schedule, up to a bound, and nothing of what is deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import sql

import scenario
from applied_schedules import AppliedSchedules, jobschedule
from processes import eventually
from scenario import add_schedule, add_worker, fold, one
from scraping import Scrape, get, scrape
from slotkeeper.keeper.success_due import refresh_success_due
from slotkeeper.metrics.address import Address
from slotkeeper.metrics.reading import DatabaseReader
from slotkeeper.metrics.schedules import ScheduleMetrics
from slotkeeper.metrics.server import HttpServer
from slotkeeper.store.connection import Session

Connection = psycopg.Connection[Any]
PATH = "/metrics/schedules"


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    with scenario.connect(dsn) as opened:
        yield opened


@pytest.fixture
def schedules(dsn: str, connection: Connection) -> Iterator[AppliedSchedules]:
    applied = AppliedSchedules(dsn, connection)
    yield applied
    applied.close()


@pytest.fixture
def session(dsn: str) -> Iterator[Session]:
    opened = Session(dsn, "test keeper")
    yield opened
    opened.close()


@contextmanager
def serving(dsn: str, *, limit: int = 10_000) -> Iterator[int]:
    """The port of a server that asks the database at each scrape."""
    reader = DatabaseReader(dsn, "test")
    server = HttpServer(Address("127.0.0.1", 0), [ScheduleMetrics(reader, "default", limit, seconds=0.0).register])
    server.start()
    try:
        yield server.port
    finally:
        server.stop()
        reader.close()


def values(shown: Scrape, schedule: str) -> dict[str, float | None]:
    names = (
        "last_success_timestamp_seconds", "last_failure_timestamp_seconds", "success_due_timestamp_seconds",
        "next_slot_timestamp_seconds", "oldest_pending_timestamp_seconds", "dead_runs", "consecutive_dead_runs",
        "missed_slots", "suspended", "held", "created_timestamp_seconds", "never_succeeded",
    )  # fmt: skip
    return {name: shown.value(f"slotkeeper_schedule_{name}", schedule=schedule) for name in names}


def epoch(connection: Connection, column: str, name: str) -> Decimal | None:
    """An instant of `health` in whole Unix seconds."""
    return one(connection, f"select floor(extract(epoch from {column})) from slotkeeper.health where name = %s", name)


def test_a_schedule_with_a_history(
    dsn: str, connection: Connection, schedules: AppliedSchedules, session: Session
) -> None:
    """One success, then a dead run, then slots that did not run; all of it before the fold and after it."""
    schedules.apply(jobschedule("story", "shop", task="t", every={"periodSeconds": 60}))
    worker = add_worker(connection, namespaces=["shop"])
    schedules.fire("story", back=timedelta(minutes=1))
    worker.finish_batch(worker.claim())
    fold(connection)
    schedules.fire("story", back=timedelta(minutes=1))
    worker.finish(worker.claim()[0], "fatal", reason="No")
    schedules.fire("story", back=timedelta(minutes=4))
    skipped = one(connection, "select sum(slots) from slotkeeper.slot_skip")
    with serving(dsn) as port:
        before = values(scrape(port, PATH), "story")
        fold(connection)
        refresh_success_due(session)
        after = values(scrape(port, PATH), "story")
    moving = (
        "oldest_pending_timestamp_seconds",
        "success_due_timestamp_seconds",
    )  # from two looks at the clock; the keeper's
    assert before | dict.fromkeys(moving) == after | dict.fromkeys(moving)
    assert after["last_success_timestamp_seconds"] == epoch(connection, "last_success_at", "story")
    assert after["last_failure_timestamp_seconds"] == epoch(connection, "last_failure_at", "story")
    assert after["success_due_timestamp_seconds"] == epoch(connection, "success_due", "story") is not None
    assert after["next_slot_timestamp_seconds"] == epoch(connection, "next_slot", "story")
    assert after["dead_runs"] == after["consecutive_dead_runs"] == 1
    assert after["missed_slots"] == skipped >= 2
    assert after["suspended"] == after["held"] == after["never_succeeded"] == 0
    assert after["created_timestamp_seconds"] == epoch(connection, "created_at", "story")
    pending = one(connection, "select extract(epoch from min(run_at))::float8 from slotkeeper.run where not behind")
    assert after["oldest_pending_timestamp_seconds"] == pytest.approx(pending, abs=1.1)


def test_what_has_not_happened_is_absent(dsn: str, schedules: AppliedSchedules, session: Session) -> None:
    """A new schedule, and a suspended one, of which no success is expected."""
    every = {"periodSeconds": 60}
    schedules.apply(
        jobschedule("new", task="t", every=every, queue="mail"),
        jobschedule("rests", task="t", every=every, suspend=True),
    )
    refresh_success_due(session)
    with serving(dsn) as port:
        shown = scrape(port, PATH)
    absent = {name for name, value in values(shown, "new").items() if value is None}
    assert absent == {
        "last_success_timestamp_seconds", "last_failure_timestamp_seconds", "oldest_pending_timestamp_seconds",
    }  # fmt: skip
    rests = values(shown, "rests")
    assert rests["suspended"] == 1
    assert rests["success_due_timestamp_seconds"] is rests["next_slot_timestamp_seconds"] is None
    assert shown.value("slotkeeper_schedule_info", schedule="new", queue="mail") == 1


def test_a_deleted_schedule_vanishes(dsn: str, connection: Connection) -> None:
    add_schedule(connection, "stays")
    goes = add_schedule(connection, "goes")
    with serving(dsn) as port:
        assert scrape(port, PATH).labels("slotkeeper_schedule_dead_runs", "schedule") == {"stays", "goes"}
        connection.execute("select slotkeeper.retire_schedule_v1(%s, 'uid', clock_timestamp())", (goes.id,))
        answer = get(port, PATH)
    assert "stays" in answer.text
    assert "goes" not in answer.text


def test_c126_a_schedule_that_is_deleted_and_created_anew_begins_anew(
    dsn: str, connection: Connection, schedules: AppliedSchedules, session: Session
) -> None:
    """It is overdue when it is deleted: then it has no series, and a day later the age of the new one is its own."""
    every = {"periodSeconds": 60}
    schedules.apply(jobschedule("report", task="t", every=every))
    worker = add_worker(connection)
    schedules.fire("report", back=timedelta(minutes=1))
    worker.finish_batch(worker.claim())
    fold(connection)
    connection.execute(
        "update slotkeeper.schedule set created_at = created_at - interval '3 days',"
        " timing_since = timing_since - interval '3 days'"
    )
    connection.execute(
        "update slotkeeper.schedule_state set last_success_at = last_success_at - interval '2 days', due_since = null"
    )
    refresh_success_due(session)
    with serving(dsn) as port:
        firing = scrape(port, PATH)
        now = one(connection, "select extract(epoch from clock_timestamp())::float8")
        assert firing.value("slotkeeper_schedule_success_due_timestamp_seconds", schedule="report") < now
        assert firing.value("slotkeeper_schedule_never_succeeded", schedule="report") == 0

        assert schedules.retire("report")
        assert "report" not in get(port, PATH).text

        connection.execute("update slotkeeper.schedule set retired_at = retired_at - interval '1 day'")
        schedules.apply(_of_another_uid(jobschedule("report", task="t", every=every)))
        schedules.apply(jobschedule("renamed", task="t", every=every))
        refresh_success_due(session)
        anew = scrape(port, PATH)
    for name in ("report", "renamed"):
        assert (anew.value("slotkeeper_schedule_created_timestamp_seconds", schedule=name) or 0) >= int(now)
        assert anew.value("slotkeeper_schedule_never_succeeded", schedule=name) == 1
        assert (anew.value("slotkeeper_schedule_success_due_timestamp_seconds", schedule=name) or 0) > now
    since = one(connection, "select since_last_success from slotkeeper.health where name = 'report'")
    assert since < timedelta(hours=1), "not since what its predecessor did"


def _of_another_uid(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "uid": "another"}}


def test_c127_a_schedule_that_has_never_succeeded_has_an_age_and_says_so(
    dsn: str, connection: Connection, schedules: AppliedSchedules, session: Session
) -> None:
    """One has failed for two days; the other's first slot is in twenty days, and it is not overdue before that."""
    schedules.apply(jobschedule("fails", task="t", every={"periodSeconds": 3600}))
    first = one(connection, "select date_trunc('second', clock_timestamp()) + interval '20 days'")
    schedules.apply(jobschedule("later", task="t", at=[first.strftime("%Y-%m-%dT%H:%M:%SZ")]))
    connection.execute(
        "update slotkeeper.schedule set created_at = clock_timestamp() - interval '2 days',"
        " timing_since = clock_timestamp() - interval '2 days'"
    )
    schedules.fire("fails")
    worker = add_worker(connection)
    assert worker.finish(worker.claim()[0], "failed").became == "ready"
    refresh_success_due(session)
    with serving(dsn) as port:
        shown = scrape(port, PATH)
    now = one(connection, "select extract(epoch from clock_timestamp())::float8")
    for name in ("fails", "later"):
        since = one(connection, "select since_last_success from slotkeeper.health where name = %s", name)
        assert since.total_seconds() == pytest.approx(172_800, abs=60)
        assert now - (shown.value("slotkeeper_schedule_created_timestamp_seconds", schedule=name) or 0) == (
            pytest.approx(172_800, abs=60)
        )
        assert shown.value("slotkeeper_schedule_never_succeeded", schedule=name) == 1
        assert shown.value("slotkeeper_schedule_last_success_timestamp_seconds", schedule=name) is None
    due = {
        name: shown.value("slotkeeper_schedule_success_due_timestamp_seconds", schedule=name)
        for name in ("fails", "later")
    }
    assert due["fails"] is not None
    assert due["later"] is not None
    assert due["fails"] < now < first.timestamp() < due["later"]


def test_more_than_the_bound_are_left_out_and_it_is_said(dsn: str, connection: Connection) -> None:
    for name in ("a", "b", "c"):
        add_schedule(connection, name)
    with serving(dsn, limit=2) as port:
        shown = scrape(port, PATH)
        assert shown.labels("slotkeeper_schedule_info", "schedule") == {"a", "b"}
        assert shown.value("slotkeeper_schedules_left_out") == 1
    with serving(dsn, limit=3) as port:
        assert scrape(port, PATH).value("slotkeeper_schedules_left_out") == 0
    with serving(dsn, limit=0) as port:
        shown = scrape(port, PATH)
        assert shown.labels("slotkeeper_schedule_info", "schedule") == set()
        assert shown.value("slotkeeper_schedules_left_out") == 3


def test_labels_are_escaped(dsn: str, connection: Connection) -> None:
    """Kubernetes allows no such name; a row that holds one must not make the page unreadable."""
    name = 'quo"te\\back\nline'
    add_schedule(connection, name)
    with serving(dsn) as port:
        assert scrape(port, PATH).labels("slotkeeper_schedule_info", "schedule") == {name}


def test_compressed_and_plain_say_the_same(dsn: str, connection: Connection) -> None:
    add_schedule(connection, "one")
    with serving(dsn) as port:
        plain, compressed = get(port, PATH), get(port, PATH, Accept_Encoding="gzip")
    assert (plain.encoding, compressed.encoding) == ("", "gzip")
    moving = "slotkeeper_schedules_read_timestamp_seconds "
    assert [line for line in plain.text.splitlines() if not line.startswith(moving)] == [
        line for line in compressed.text.splitlines() if not line.startswith(moving)
    ]


def test_what_was_known_stays_while_the_database_is_away(dsn: str, connection: Connection) -> None:
    """Instants do not age: a schedule that became overdue meanwhile is overdue."""
    add_schedule(connection, "known")
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    other = psycopg.conninfo.make_conninfo(dsn, dbname="postgres")
    with serving(dsn) as port:
        before = scrape(port, PATH)
        with psycopg.connect(other, autocommit=True) as server:
            server.execute(sql.SQL("alter database {} allow_connections false").format(sql.Identifier(str(name))))
            server.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))
        after = eventually(
            lambda: (now := scrape(port, PATH)).value("slotkeeper_database_up") == 0 and now, "the scrape says so"
        )
    assert before.value("slotkeeper_database_up") == 1
    assert values(after, "known") == values(before, "known")
    read = "slotkeeper_schedules_read_timestamp_seconds"
    assert (after.value(read) or 0) >= (before.value(read) or 0) > 0

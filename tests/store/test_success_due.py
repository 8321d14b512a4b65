"""`health.success_due`: by when a schedule should have succeeded again, kept true by the keeper."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from scenario import Schedule, add_schedule, add_worker, fold, one, rows
from slotkeeper.keeper import success_due as refreshing
from slotkeeper.keeper.success_due import refresh_success_due
from slotkeeper.store.connection import Session

Connection = psycopg.Connection[Any]
HOURLY = '{"cron": ["0 * * * *"], "task": "t"}'


@pytest.fixture
def session(dsn: str) -> Iterator[Session]:
    opened = Session(dsn, "test")
    yield opened
    opened.close()


def success_due(connection: Connection) -> datetime | None:
    due: datetime | None = one(connection, "select success_due from slotkeeper.health")
    return due


def hourly(connection: Connection) -> tuple[Schedule, datetime]:
    """A schedule that came to be at half past some hour, and that half hour."""
    schedule = add_schedule(connection, spec=HOURLY)
    since = one(connection, "select date_trunc('hour', clock_timestamp()) - interval '90 minutes'")
    connection.execute("update slotkeeper.schedule set created_at = %s, timing_since = %s", (since, since))
    return schedule, since


def test_it_is_the_grace_after_the_second_slot_that_follows(session: Session, connection: Connection) -> None:
    _, since = hourly(connection)
    assert success_due(connection) is None, "nothing has computed it yet"
    refresh_success_due(session)
    assert success_due(connection) == since + timedelta(minutes=90, seconds=60)


def test_a_success_moves_it_and_an_unmoved_one_is_not_computed_again(session: Session, connection: Connection) -> None:
    schedule, since = hourly(connection)
    refresh_success_due(session)
    schedule.materialise([since + timedelta(minutes=30)])
    worker = add_worker(connection)
    worker.finish(worker.claim()[0])
    fold(connection)
    refresh_success_due(session)
    last = one(connection, "select last_success_at from slotkeeper.health")
    next_hour = last.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    assert success_due(connection) == next_hour + timedelta(hours=1, seconds=60)
    connection.execute("update slotkeeper.schedule_state set success_due = 'epoch'")
    refresh_success_due(session)
    assert one(connection, "select extract(epoch from success_due) from slotkeeper.health") == 0


def test_a_suspended_schedule_owes_no_success(session: Session, connection: Connection) -> None:
    hourly(connection)
    refresh_success_due(session)
    connection.execute("update slotkeeper.schedule set suspended = true")
    assert success_due(connection) is None


def test_schedules_that_cannot_be_read_keep_no_other_from_its_turn(
    session: Session, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of two, and the first three schedules were written by another version."""
    monkeypatch.setattr(refreshing, "CHUNK", 2)
    for _ in range(3):
        add_schedule(connection, spec='{"cron": ["0 * * * *"], "task": "t", "unheard": "of"}')
    readable, _ = hourly(connection)
    after, steps = refresh_success_due(session), 1
    while after is not None:
        after, steps = refresh_success_due(session, after), steps + 1
    assert steps == 3
    computed = rows(connection, "select schedule from slotkeeper.schedule_state where success_due is not null")
    assert [row.schedule for row in computed] == [readable.id]

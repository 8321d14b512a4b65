"""A release of the tz database that moves slots: stored next slots are mended, and what a release said is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from scenario import Schedule, add_schedule, one
from slotkeeper.errors import DatabaseBusy
from slotkeeper.store.connection import Session
from slotkeeper.store.zones import correct_next_slots, kept_rules, note_rules
from slotkeeper.ticker import Ticker
from slotkeeper.timetable import cron_timetable, zone_rules

Connection = psycopg.Connection[Any]
HOUR = timedelta(hours=1)


@pytest.fixture
def session(dsn: str) -> Iterator[Session]:
    session = Session(dsn, "test")
    yield session
    session.close()


def zoned(connection: Connection, zone: str = "Europe/Berlin", **spec: object) -> Schedule:
    """Every noon; decided up to now, and its next slot stored as if the zone's clock went an hour behind."""
    document = {"cron": ["0 12 * * *"], "timeZone": zone, "task": "t", **spec}
    schedule = add_schedule(connection, spec=json.dumps(document))
    connection.execute(
        "update slotkeeper.schedule set watermark = date_trunc('second', clock_timestamp()),"
        " watermark_highest = date_trunc('second', clock_timestamp()) where id = %s",
        (schedule.id,),
    )
    store_next(connection, schedule, true_next(connection, schedule, zone) + HOUR)
    return schedule


def true_next(connection: Connection, schedule: Schedule, zone: str = "Europe/Berlin") -> datetime:
    watermark = one(connection, "select watermark from slotkeeper.schedule where id = %s", schedule.id)
    slot = cron_timetable(["0 12 * * *"], zone).next(watermark)
    assert slot is not None
    return slot


def store_next(connection: Connection, schedule: Schedule, slot: datetime | None) -> None:
    connection.execute(
        "update slotkeeper.schedule set next_slot = %s, next_due = %s where id = %s", (slot, slot, schedule.id)
    )


def next_slot(connection: Connection, schedule: Schedule) -> datetime | None:
    slot: datetime | None = one(connection, "select next_slot from slotkeeper.schedule where id = %s", schedule.id)
    assert slot == one(connection, "select next_due from slotkeeper.schedule where id = %s", schedule.id)
    return slot


def look(dsn: str) -> None:
    """What a ticker does after it began, until it has nothing more to do at once."""
    ticker = Ticker(dsn)
    for _ in range(20):
        if ticker.tick() > 0:
            break
    ticker._session.close()


def test_a_next_slot_that_has_moved_is_mended(connection: Connection, dsn: str) -> None:
    later, never = zoned(connection), zoned(connection)
    store_next(connection, never, None)
    look(dsn)
    assert next_slot(connection, later) == true_next(connection, later)
    assert next_slot(connection, never) == true_next(connection, never)


def test_more_schedules_than_are_read_at_once(
    connection: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slotkeeper.store.zones._PAGE", 2)
    schedules = [zoned(connection) for _ in range(5)]
    look(dsn)
    assert [next_slot(connection, s) for s in schedules] == [true_next(connection, s) for s in schedules]


def test_after_an_error_the_look_begins_again(
    connection: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule, broken = zoned(connection), [True]

    def correct(*arguments: Any) -> int:
        if broken.pop():
            raise DatabaseBusy("cancelled")
        return correct_next_slots(*arguments)

    monkeypatch.setattr("slotkeeper.ticker.moved_slots.correct_next_slots", correct)
    ticker = Ticker(dsn)
    broken.insert(0, False)
    with pytest.raises(DatabaseBusy):
        ticker.tick()
    ticker.tick()
    ticker._session.close()
    assert next_slot(connection, schedule) == true_next(connection, schedule)


def test_a_slot_that_came_to_lie_in_the_past_runs_once(connection: Connection, dsn: str) -> None:
    """By the former rules it was an hour from now; by those in use it was due twenty minutes ago."""
    past = (datetime.now(UTC) - timedelta(minutes=20)).replace(second=0, microsecond=0)
    schedule = add_schedule(
        connection,
        spec=json.dumps({"cron": [f"{past.minute} {past.hour} * * *"], "timeZone": "Africa/Abidjan", "task": "t"}),
    )
    connection.execute(
        "update slotkeeper.schedule set watermark = %s, watermark_highest = %s where id = %s",
        (past - timedelta(minutes=30), past - timedelta(minutes=30), schedule.id),
    )
    store_next(connection, schedule, past + HOUR + timedelta(minutes=30))
    look(dsn)
    look(dsn)
    assert schedule.job() == [(past, "ready", None)]
    assert next_slot(connection, schedule) == past + timedelta(days=1)


@pytest.mark.parametrize("state", ["suspended = true", "held = true", "unwatched = true", "retired_at = now()"])
def test_what_makes_no_slots_is_left(connection: Connection, dsn: str, state: str) -> None:
    schedule = zoned(connection)
    # Of a held one, the due time is the end of its hold.
    slot = datetime(2090, 1, 1, tzinfo=UTC)
    store_next(connection, schedule, slot)
    connection.execute(f"update slotkeeper.schedule set {state} where id = %s", (schedule.id,))
    look(dsn)
    # Nobody holds the held one, so the ticker releases it.
    expected = true_next(connection, schedule) if state == "held = true" else slot
    assert next_slot(connection, schedule) == expected


def test_utc_is_not_looked_at(connection: Connection, dsn: str) -> None:
    schedule = zoned(connection, zone="Etc/UTC")
    stored = next_slot(connection, schedule)
    look(dsn)
    assert next_slot(connection, schedule) == stored, "UTC has no rules that could change"


def test_a_schedule_that_moved_meanwhile_keeps_what_was_decided(connection: Connection, dsn: str) -> None:
    schedule = zoned(connection)
    stored, moment = next_slot(connection, schedule), one(connection, "select watermark from slotkeeper.schedule")
    arguments = ([schedule.id], [1], [moment - HOUR], [stored - HOUR], [stored - HOUR])
    query = "select slotkeeper.correct_next_slots_v1(%s, %s, %s, %s, %s)"
    assert one(connection, query, *arguments) == 0
    assert next_slot(connection, schedule) == stored
    assert one(connection, query, [schedule.id], [1], [moment], [stored - HOUR], [stored - HOUR]) == 1


def test_what_a_release_says_is_kept_once(session: Session) -> None:
    now = datetime(2026, 12, 1, 12, tzinfo=UTC)
    rules = zone_rules("Europe/Berlin", now)
    note_rules(session, "2026f", rules)
    note_rules(session, "2026f", replace(rules, changes=rules.changes[:1]))
    assert kept_rules(session, "Europe/Berlin", "2026f") == rules
    assert kept_rules(session, "Europe/Berlin", "2026g") is None
    assert kept_rules(session, "Europe/Paris", "2026f") is None

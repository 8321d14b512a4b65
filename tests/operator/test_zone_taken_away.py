"""A zone that an update of the tz database takes away: its schedules stand still, say so, and can be mended or deleted.

On a real Postgres; the update is a shorter list of names in this process, as another image would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from jobschedule_objects import Object, edited, jobschedule

from scenario import connect, one, rows
from slotkeeper.keeper.success_due import refresh_success_due
from slotkeeper.operator import Applied, Applier, Outcome
from slotkeeper.operator.conditions import status_of
from slotkeeper.store.connection import Session
from slotkeeper.store.metrics import vital_signs
from slotkeeper.ticker import Ticker
from slotkeeper.timetable import zone

BERLIN = jobschedule("berlin", uid="uid-1", timeZone="Europe/Berlin")
OTHER = jobschedule("other", uid="uid-2", timeZone="Europe/Paris")


class Release:
    """One controller's code on the database, from its start to its end."""

    def __init__(self, dsn: str, connection: psycopg.Connection[Any]) -> None:
        self.session = Session(dsn, "test")
        self._applier = Applier(self.session, "default", lambda *_: True)
        self._ticker = Ticker(dsn)
        self._connection = connection

    def apply(self, obj: Object) -> Applied:
        [applied] = self._applier.apply([obj])
        return applied

    def retire(self, name: str) -> bool:
        return self._applier.retire("billing", name)

    def tick_after(self, minutes: int) -> None:
        """As if nobody had ticked for so long; the tick may leave behind what it cannot decide."""
        self._connection.execute(
            "update slotkeeper.schedule set"
            " watermark = date_trunc('minute', clock_timestamp()) - make_interval(mins => %s),"
            " watermark_highest = watermark, next_slot = clock_timestamp() - interval '1 minute',"
            " next_due = clock_timestamp() - interval '2 minutes' where retired_at is null",
            (minutes,),
        )
        self._ticker.tick()

    def close(self) -> None:
        self.session.close()
        self._ticker._session.close()


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(dsn) as connection:
        yield connection


@pytest.fixture
def updated(dsn: str, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Release]:
    """Two schedules with a row each, and a controller that has no Europe/Berlin any more."""
    before = Release(dsn, connection)
    for obj in (BERLIN, OTHER):
        assert before.apply(obj).outcome is Outcome.STORED
    before.tick_after(minutes=3)
    assert [job.status for job in jobs(connection, "berlin")] == ["superseded", "ready"]
    before.close()
    names = zone._zone_names() - {"Europe/Berlin"}
    monkeypatch.setattr(zone, "_zone_names", lambda: names)
    zone._names_by_lower_case.cache_clear()
    after = Release(dsn, connection)
    yield after
    after.close()
    # The suggestions that were made of fewer names are not those of other tests.
    zone._names_by_lower_case.cache_clear()


def jobs(connection: psycopg.Connection[Any], name: str) -> list[Any]:
    return rows(
        connection,
        "select slot, status, trigger from slotkeeper.job where schedule = %s order by slot, status desc", name,
    )  # fmt: skip


def test_c033_it_stands_still_says_so_and_stops_nobody(
    updated: Release, connection: psycopg.Connection[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    rows_before = jobs(connection, "berlin")
    refused, other = updated.apply(BERLIN), updated.apply(OTHER)
    assert other.outcome is Outcome.UNCHANGED
    assert refused.outcome is Outcome.REFUSED
    assert refused.refusal is not None
    assert (refused.refusal.reason, refused.refusal.field) == ("UnknownTimeZone", "spec.timeZone")
    assert refused.accepted_generation is None

    status: Any = status_of(refused, None, datetime.now(UTC), {"nextScheduleTime": "2026-01-01T00:00:00Z"})
    told = {entry["type"]: (entry["status"], entry["reason"]) for entry in status["conditions"]}
    assert told == {"Ready": ("False", "UnknownTimeZone"), "Stalled": ("True", "UnknownTimeZone")}
    assert "nextScheduleTime" not in status

    updated.tick_after(minutes=2)
    assert jobs(connection, "berlin") == rows_before
    watermarks = rows(connection, "select name, watermark from slotkeeper.schedule order by watermark")
    assert [row.name for row in watermarks] == ["berlin", "other"], "the other one is decided up to now"
    assert "'Europe/Berlin' is not a zone" in capsys.readouterr().out
    # Its slot is due and undecided: that is what slotkeeper_ticker_lag_seconds shows.
    assert vital_signs(updated.session).ticker_lag > 100
    assert not refresh_success_due(updated.session)
    due = rows(connection, "select name from slotkeeper.health where success_due is not null")
    assert [row.name for row in due] == ["other"]

    manual = updated.apply(edited(BERLIN, trigger="by-hand"))
    assert manual.triggered == "by-hand"
    assert [job.trigger for job in jobs(connection, "berlin")].count("Manual") == 1


@pytest.mark.parametrize("suspend", [False, True])
def test_c033_an_edit_mends_it_and_fires_nothing(
    updated: Release, connection: psycopg.Connection[Any], suspend: bool
) -> None:
    updated.apply(BERLIN)
    updated.tick_after(minutes=2)
    before = jobs(connection, "berlin")
    mended = updated.apply(edited(BERLIN, timeZone="Europe/Paris", suspend=suspend))
    assert mended.outcome is Outcome.STORED
    assert (mended.accepted_generation, mended.suspended) == (2, suspend)
    stored = rows(connection, "select * from slotkeeper.schedule where name = 'berlin'")[0]
    assert suspend or stored.next_slot > stored.watermark
    updated._ticker.tick()
    assert jobs(connection, "berlin") == before


def test_c033_it_can_be_deleted(updated: Release, connection: psycopg.Connection[Any]) -> None:
    updated.tick_after(minutes=2)
    assert updated.retire("berlin")
    assert [job.status for job in jobs(connection, "berlin")] == ["superseded", "cancelled"]
    assert one(connection, "select retired_at is not null from slotkeeper.schedule where name = 'berlin'")


def test_c033_the_zones_return_is_enough(
    updated: Release, dsn: str, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    updated.apply(BERLIN)
    updated.tick_after(minutes=2)
    decided = (
        "select name from slotkeeper.schedule where next_slot > clock_timestamp() - interval '10 seconds' order by name"
    )
    assert [row.name for row in rows(connection, decided)] == ["other"]
    monkeypatch.undo()
    again = Release(dsn, connection)
    try:
        assert again.apply(BERLIN).outcome is Outcome.UNCHANGED
        again._ticker.tick()
    finally:
        again.close()
    assert [row.name for row in rows(connection, decided)] == ["berlin", "other"]

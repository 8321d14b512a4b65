"""The public views are a contract: their columns and types, and what they say of a job in every state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from scenario import Schedule, Worker, add_schedule, add_worker, cancel, enqueue, one, reap, records, requeue, rows
from slotkeeper.store.ticker import DecidedSchedule, materialise
from slotkeeper.timetable import Plan, SkippedSlots

Connection = psycopg.Connection[Any]
SLOT = datetime(2020, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TEXT, TIME, INTEGER, LONG = "text", "timestamp with time zone", "integer", "bigint"

JOB = {
    "id": TEXT, "namespace": TEXT, "schedule": TEXT, "slot": TIME, "type": TEXT, "queue": TEXT, "priority": INTEGER,
    "trigger": TEXT, "status": TEXT, "reason": TEXT, "payload": "jsonb", "idempotency_key": TEXT, "run_at": TIME,
    "attempts": INTEGER, "charged": INTEGER, "max_attempts": INTEGER, "locked_by": TEXT, "locked_until": TIME,
    "last_error": TEXT, "created_at": TIME, "started_at": TIME, "finished_at": TIME, "slots": LONG, "generation": LONG,
}  # fmt: skip
HEALTH = {
    "cluster": TEXT, "namespace": TEXT, "name": TEXT, "queue": TEXT, "suspended": "boolean", "held": "boolean",
    "since_last_success": "interval", "last_success_slot": TIME, "dead_runs": LONG, "consecutive_dead": LONG,
    "oldest_pending_age": "interval", "missed": LONG, "next_slot": TIME, "success_due": TIME,
}  # fmt: skip


@pytest.mark.parametrize(("view", "columns"), [("job", JOB), ("health", HEALTH)])
def test_the_columns_of_a_view_never_change(connection: Connection, view: str, columns: dict[str, str]) -> None:
    """Columns may be added at the end; these keep their names, order and types."""
    found = rows(
        connection,
        "select attname, format_type(atttypid, atttypmod) as type from pg_attribute"
        " where attrelid = ('slotkeeper.' || %s)::regclass and attnum > 0 order by attnum", view,
    )  # fmt: skip
    assert [(row.attname, row.type) for row in found][: len(columns)] == list(columns.items())


def job(connection: Connection) -> dict[str, Any]:
    found = records(connection, "select * from slotkeeper.job")
    assert len(found) == 1, found
    return found[0]


def test_a_run_of_a_schedule_through_its_life(connection: Connection) -> None:
    schedule = add_schedule(
        connection, "report", namespace="shop", queue="slow", priority=1, payload='{"a": 1}', action="sales.report",
        max_attempts=2, backoff=(0, 0),
    )  # fmt: skip
    schedule.materialise([SLOT], trigger=1)
    ready = job(connection)
    assert (ready["namespace"], ready["schedule"], ready["slot"], ready["type"]) == (
        "shop",
        "report",
        SLOT,
        "sales.report",
    )
    assert (ready["queue"], ready["priority"], ready["payload"], ready["trigger"]) == ("slow", 1, {"a": 1}, "CatchUp")
    assert (ready["status"], ready["attempts"], ready["charged"], ready["max_attempts"]) == ("ready", 0, 0, 2)
    assert ready["idempotency_key"] == "shop/report@2020-01-01T12:00:00Z"
    assert (ready["slots"], ready["generation"]) == (1, 1)
    assert {ready[name] for name in ("started_at", "finished_at", "locked_by", "locked_until", "last_error")} == {None}

    worker = add_worker(connection, namespaces=["shop"], queues=["slow"])
    (run,) = worker.claim()
    running = job(connection)
    assert (running["status"], running["attempts"], running["charged"]) == ("running", 1, 1)
    assert running["locked_by"] == one(connection, "select name from slotkeeper.worker")
    assert running["locked_until"] == one(connection, "select lease_until from slotkeeper.worker")
    assert running["started_at"] is not None

    worker.finish(run, "failed", reason="ValueError", message="no")
    waiting = job(connection)
    assert (waiting["status"], waiting["locked_by"], waiting["last_error"]) == ("ready", None, "ValueError: no")

    worker.finish(worker.claim()[0], "failed", reason="KeyError", message="'a'")
    dead = job(connection)
    assert (dead["status"], dead["reason"], dead["last_error"]) == ("dead", "RetriesExhausted", "KeyError: 'a'")
    assert (dead["id"], dead["attempts"], dead["charged"]) == (ready["id"], 2, 2)
    assert dead["finished_at"] >= dead["started_at"] >= dead["created_at"]

    requeue(connection, run.id)
    assert (job(connection)["status"], job(connection)["trigger"]) == ("ready", "Requeue")
    worker.finish_batch(worker.claim())
    done = job(connection)
    assert (done["id"], done["status"], done["reason"], done["attempts"]) == (ready["id"], "done", None, 3)
    assert done["idempotency_key"] == ready["idempotency_key"]


def _ready(schedule: Schedule, worker: Worker) -> None:
    schedule.materialise([SLOT])


def _running(schedule: Schedule, worker: Worker) -> None:
    schedule.materialise([SLOT])
    worker.claim()


def _cancelling(schedule: Schedule, worker: Worker) -> None:
    _running(schedule, worker)
    cancel(schedule.connection, schedule.runs()[0]["id"])


def _done(schedule: Schedule, worker: Worker) -> None:
    schedule.materialise([SLOT])
    worker.finish_batch(worker.claim())


def _dead(schedule: Schedule, worker: Worker) -> None:
    schedule.materialise([SLOT])
    worker.finish(worker.claim()[0], "fatal", reason="NonRetryable")


def _late(schedule: Schedule, worker: Worker) -> None:
    schedule.materialise([SLOT], start_by=SLOT)
    reap(schedule.connection)


def _overlap(schedule: Schedule, worker: Worker) -> None:
    schedule.materialise([SLOT - MINUTE])
    worker.claim()
    schedule.materialise([SLOT])
    schedule.connection.execute("delete from slotkeeper.run")


def _superseded(schedule: Schedule, worker: Worker) -> None:
    schedule.materialise([SLOT])
    schedule.materialise([SLOT + MINUTE])
    schedule.connection.execute("delete from slotkeeper.run")


def _cancelled(schedule: Schedule, worker: Worker) -> None:
    schedule.materialise([SLOT])
    cancel(schedule.connection, schedule.runs()[0]["id"])


def _deleted(schedule: Schedule, worker: Worker) -> None:
    schedule.materialise([SLOT])
    schedule.connection.execute("select slotkeeper.retire_schedule_v1(%s, 'uid', now())", (schedule.id,))


@pytest.mark.parametrize(
    ("live", "status", "reason"),
    [
        (_ready, "ready", None),
        (_running, "running", None),
        (_cancelling, "running", "Cancelled"),
        (_done, "done", None),
        (_dead, "dead", "NonRetryable"),
        (_late, "skipped", "StartDeadlineExceeded"),
        (_overlap, "skipped", "Overlap"),
        (_superseded, "superseded", "Superseded"),
        (_cancelled, "cancelled", "Cancelled"),
        (_deleted, "cancelled", "ScheduleDeleted"),
    ],
)
@pytest.mark.parametrize("cluster", ["default", "north"])
def test_every_status_has_slot_reason_and_key(
    connection: Connection, live: Any, status: str, reason: str | None, cluster: str
) -> None:
    live(add_schedule(connection, "report", cluster=cluster, action="a.b"), add_worker(connection))
    shown = job(connection)
    assert (shown["slot"], shown["status"], shown["reason"]) == (SLOT, status, reason)
    prefix = "" if cluster == "default" else "north/"
    assert shown["idempotency_key"] == f"{prefix}default/report@2020-01-01T12:00:00Z"
    assert (shown["schedule"], shown["type"], shown["payload"], shown["slots"]) == ("report", "a.b", {}, 1)
    assert (shown["finished_at"] is None) == (status in ("ready", "running"))


def test_a_row_that_waits_behind_another_shows_as_ready(connection: Connection) -> None:
    schedule = add_schedule(connection, catch_up="RunAll")
    schedule.materialise([SLOT, SLOT + MINUTE])
    assert [status for _, status, _ in schedule.job()] == ["ready", "ready"]


def test_a_range_that_did_not_run_is_one_row(connection: Connection) -> None:
    schedule = add_schedule(connection, "report", action="a.b")
    skipped = SkippedSlots(SLOT, SLOT + 9 * MINUTE, 10, "Late")
    decided = DecidedSchedule(schedule.id, 1, schedule.watermark, skipped.last, None, None, Plan((), (skipped,)))
    assert materialise(connection, [decided]) == set()
    shown = job(connection)
    assert (shown["id"], shown["slot"], shown["slots"]) == (f"{schedule.id}@20200101T120000Z", SLOT, 10)
    assert (shown["status"], shown["reason"], shown["attempts"], shown["type"]) == ("skipped", "Late", 0, "a.b")


@pytest.mark.parametrize("cluster", ["default", "north"])
def test_a_manual_run_has_the_key_of_its_trigger(connection: Connection, cluster: str) -> None:
    schedule = add_schedule(connection, "report", namespace="shop", cluster=cluster, payload='{"a": 1}')
    connection.execute("select slotkeeper.trigger_v1(%s, 'today')", (schedule.id,))
    shown = job(connection)
    assert shown["idempotency_key"] == ("" if cluster == "default" else "north/") + "shop/report#today"
    assert (shown["trigger"], shown["schedule"], shown["payload"]) == ("Manual", "report", {"a": 1})
    add_worker(connection, namespaces=["shop"]).finish_batch(add_worker(connection, namespaces=["shop"]).claim())
    assert job(connection)["idempotency_key"] == shown["idempotency_key"]


def test_an_ad_hoc_run_shows_its_own_key_in_every_state(connection: Connection) -> None:
    enqueue(connection, "mail.send", key="order-1", payload='{"to": 1}')
    worker = add_worker(connection)
    for kind, status in ((None, "ready"), ("fatal", "dead")):
        if kind:
            worker.finish(worker.claim()[0], kind)
        shown = job(connection)
        assert (shown["idempotency_key"], shown["type"], shown["payload"]) == ("order-1", "mail.send", {"to": 1})
        assert (shown["status"], shown["schedule"], shown["slot"], shown["generation"]) == (status, None, None, None)
    requeue(connection, int(shown["id"]))
    worker.finish_batch(worker.claim())
    assert (job(connection)["status"], job(connection)["idempotency_key"]) == ("done", "order-1")


def test_a_run_shows_the_generation_that_made_it(connection: Connection) -> None:
    schedule = add_schedule(connection)
    schedule.materialise([SLOT])
    connection.execute(
        "insert into slotkeeper.schedule_version"
        ' select (jsonb_populate_record(v, \'{"version": 2, "generation": 5, "action": "new"}\')).*'
        " from slotkeeper.schedule_version v"
    )
    connection.execute("update slotkeeper.schedule set version = 2, generation = 5")
    schedule.version = 2
    schedule.materialise([SLOT + MINUTE])
    shown = rows(connection, "select slot, status, type, generation from slotkeeper.job order by slot")
    assert [tuple(row) for row in shown] == [(SLOT, "superseded", "t", 1), (SLOT + MINUTE, "ready", "new", 5)]


def test_health_of_a_new_a_waiting_and_a_retired_schedule(connection: Connection) -> None:
    schedule = add_schedule(connection, "report", next_due=SLOT)
    connection.execute("update slotkeeper.schedule set created_at = created_at - interval '1 hour'")
    new = records(connection, "select * from slotkeeper.health")[0]
    assert timedelta(hours=1) <= new["since_last_success"] < timedelta(hours=2)
    assert (new["next_slot"], new["oldest_pending_age"], new["dead_runs"], new["missed"]) == (SLOT, None, 0, 0)
    schedule.materialise([SLOT])
    connection.execute("update slotkeeper.run set run_at = run_at - interval '1 hour'")
    waiting = records(connection, "select * from slotkeeper.health")[0]
    assert timedelta(hours=1) <= waiting["oldest_pending_age"] < timedelta(hours=2)
    add_worker(connection).claim()
    assert records(connection, "select * from slotkeeper.health")[0]["oldest_pending_age"] is None
    connection.execute("update slotkeeper.schedule set retired_at = now()")
    assert records(connection, "select * from slotkeeper.health") == []

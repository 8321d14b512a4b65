"""The attributes of a run as its handler sees them: of a slot, of a manual trigger, of an ad-hoc run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

from processes import eventually
from slotkeeper import enqueue
from slotkeeper.errors import InvalidField
from worker_place import Place


def told(place: Place, run: int) -> dict[str, Any]:
    place.ended(run)
    (line,) = place.noted(run, "told")
    return {**line["told"], "slot": line["slot"], "schedule": line["schedule"], "attempt": line["attempt"]}


def test_a_slot(shared: Place) -> None:
    name = shared.schedules.add(
        cron=["*/30 * * * *"], timeZone="Asia/Kolkata", task="tell", payload={"a": 1}, retry={"maxAttempts": 3}
    )
    shared.schedules.fire(name, back=timedelta(minutes=31))
    job = eventually(lambda: shared.schedules.jobs(name), "a run")[-1]
    seen = told(shared, int(job.id))
    slot = job.slot
    late = seen.pop("late_seconds")
    assert 0 < late < 1800 + 60
    assert datetime.fromisoformat(seen.pop("run_at")) >= slot
    assert seen.pop("trigger") in ("Schedule", "CatchUp")
    assert seen == {
        "namespace": "default", "schedule": f"default/{name}", "slot": slot.isoformat(),
        "idempotency_key": f"default/{name}@{slot:%Y-%m-%dT%H:%M:%SZ}", "payload": {"a": 1},
        "slot_local": slot.astimezone(ZoneInfo("Asia/Kolkata")).isoformat(),
        "previous_slot": (slot - timedelta(minutes=30)).isoformat(),
        "next_slot": (slot + timedelta(minutes=30)).isoformat(),
        "attempt": 1, "charged": 1, "max_attempts": 3,
    }  # fmt: skip
    assert job.idempotency_key == seen["idempotency_key"]


def test_a_manual_run(shared: Place) -> None:
    spec = {"cron": ["0 0 1 1 *"], "task": "tell", "payload": {"by": "hand"}}
    name = shared.schedules.add(**spec)
    shared.schedules.trigger(name, "ticket-42", **spec)
    (job,) = shared.schedules.jobs(name)
    seen = told(shared, int(job.id))
    assert seen["trigger"] == "Manual"
    assert seen["idempotency_key"] == f"default/{name}#ticket-42" == job.idempotency_key
    assert seen["payload"] == {"by": "hand"}
    assert datetime.fromisoformat(seen["slot"]) == job.slot
    assert 0 <= seen["late_seconds"] < 60


def test_an_ad_hoc_run(shared: Place) -> None:
    with psycopg.connect(shared.dsn) as connection:
        made = enqueue(connection, "tell", {"x": [1]}, key="told-once", max_attempts=2)
    seen = told(shared, made.id)
    assert seen["late_seconds"] >= 0
    assert {name: seen[name] for name in seen if name not in ("late_seconds", "run_at")} == {
        "namespace": "", "schedule": None, "slot": None, "slot_local": None, "previous_slot": None, "next_slot": None,
        "idempotency_key": str(made.id), "payload": {"x": [1]}, "trigger": "Enqueue", "attempt": 1, "charged": 1,
        "max_attempts": 2,
    }  # fmt: skip


def test_an_ad_hoc_run_of_later_is_not_late(shared: Place) -> None:
    moment = shared.value("select clock_timestamp() + interval '1 second'")
    with psycopg.connect(shared.dsn) as connection:
        made = enqueue(connection, "tell", run_at=moment)
    seen = told(shared, made.id)
    assert datetime.fromisoformat(seen["run_at"]) == moment
    assert shared.job(made.id).started_at >= moment


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"task": ""}, "task: '' has 0 characters; use 1 to 253"),
        ({"task": "a\0"}, "task: it contains the character U+0000, which Postgres cannot store; leave it out"),
        ({"payload": {"a": {"b": ["\0"]}}}, r"payload.a.b\[0\]: it contains the character U\+0000"),
        ({"payload": {"a\0": 1}}, "payload key 'a\\\\x00': it contains"),
        ({"payload": {"a": "\udc00"}}, "payload.a: it is not valid Unicode"),
        ({"payload": {"a": float("nan")}}, "payload: .*; use JSON values only"),
        ({"payload": {"a": object()}}, "payload: .*; use JSON values only"),
        ({"payload": ["a"]}, "payload: it is a list; use a mapping"),
        ({"payload": {"a": "x" * 1024 * 1024}}, "payload: it has 1048584 bytes; use at most 1048576"),
        ({"key": ""}, "key: it has 0 bytes; use 1 to 255 bytes, or a hash"),
        ({"key": "ü" * 128}, "key: it has 256 bytes"),
        ({"key": "\udc00"}, "key: it is not valid Unicode"),
        ({"queue": "Upper"}, "queue: 'Upper' is not a DNS label"),
        ({"namespace": "a.b"}, "namespace: 'a.b' is not a DNS label"),
        ({"run_at": datetime(2026, 1, 1)}, "run_at: .* has no time zone; use an aware datetime"),  # noqa: DTZ001
        ({"priority": 3}, "priority: 3 is out of range; use -2 to 2"),
        ({"max_attempts": 0}, "max_attempts: 0 is out of range; use 1 to 100"),
    ],
)
def test_enqueue_names_the_argument_and_what_to_write_instead(
    shared: Place, argument: dict[str, Any], message: str
) -> None:
    with psycopg.connect(shared.dsn) as connection:
        with pytest.raises(InvalidField, match=message if "\\" in message or ".*" in message else None) as refused:
            enqueue(connection, **{"task": "tell", **argument})
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    if "\\" not in message and ".*" not in message:
        assert message in str(refused.value)

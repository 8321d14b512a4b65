"""Kubernetes Events on a real API server: dead runs and slots that did not run, each told once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from api_server import ApiServer, condition, eventually
from jobschedule_objects import manifest

from scenario import add_worker, connect
from slotkeeper.operator import Operator
from slotkeeper.operator.conditions import rfc3339
from slotkeeper.operator.events import AWAY_SECONDS, QUIET_SECONDS, EventRecorder
from slotkeeper.reasons import why_no_run
from slotkeeper.ticker import Ticker

MINUTE = timedelta(minutes=1)


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(dsn) as connection:
        yield connection


def events(api_server: ApiServer, namespace: str, reason: str) -> list[dict[str, Any]]:
    found = api_server.kubectl("-n", namespace, "get", "events", f"--field-selector=reason={reason}", "-o", "json")
    items: list[dict[str, Any]] = json.loads(found.stdout)["items"]
    return items


def fire(connection: psycopg.Connection[Any], dsn: str, minutes: int) -> None:
    """So many slots of a minutely schedule fall due now."""
    connection.execute(
        "update slotkeeper.schedule set watermark = watermark - %s, watermark_highest = watermark - %s,"
        " next_due = clock_timestamp()", (minutes * MINUTE, minutes * MINUTE),
    )  # fmt: skip
    ticker = Ticker(dsn)
    ticker.tick()
    ticker._session.close()


def test_a_dead_run_is_told_once(
    api_server: ApiServer, namespace: str, new_operator: Callable[..., Operator], dsn: str,
    connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("slotkeeper.operator.status.FIGURES_SECONDS", 0.5)
    monkeypatch.setattr("slotkeeper.operator.status.READ_SECONDS", 0.2)
    operator = new_operator(namespaces=[namespace])
    operator.start()
    api_server.apply(manifest("report", namespace, overlapPolicy="Allow", catchUp={"policy": "RunAll"}))
    obj = eventually(lambda: condition(found := api_server.get(namespace, "report"), "Healthy") and found)
    fire(connection, dsn, 3)
    worker = add_worker(connection, namespaces=[namespace])
    first, *others = worker.claim()
    worker.finish(first, "fatal", reason="NonRetryable", message="it broke")
    [event] = eventually(lambda: events(api_server, namespace, "RunDead"))
    assert event["involvedObject"]["uid"] == obj["metadata"]["uid"]
    assert (event["type"], event["message"]) == ("Warning", "a run is dead (1 on the dead-letter list)")
    for run in others:
        worker.finish(run, "fatal")
    eventually(
        lambda: (api_server.get(namespace, "report") or {})["status"]["deadRuns"] == 1 + len(others),
        what="status has caught up",
    )
    assert len(events(api_server, namespace, "RunDead")) == 1  # ten minutes have not passed


def test_a_slot_that_did_not_run_is_told_with_its_reason(
    api_server: ApiServer, namespace: str, operator: Operator, dsn: str, connection: psycopg.Connection[Any]
) -> None:
    api_server.apply(manifest("report", namespace))
    eventually(lambda: condition(api_server.get(namespace, "report"), "Healthy"))
    fire(connection, dsn, 2)
    [run] = add_worker(connection, namespaces=[namespace]).claim()
    assert run.slot is not None
    [event] = eventually(lambda: events(api_server, namespace, "SlotSkipped"))
    assert event["message"].endswith(f"did not run: {why_no_run('Superseded')}")


def test_another_process_does_not_tell_it_again_and_later_news_are_told(
    api_server: ApiServer, namespace: str, operator: Operator, connection: psycopg.Connection[Any]
) -> None:
    """Two recorders, as of two leaders, that see the same change."""
    api_server.apply(manifest("report", namespace))
    eventually(lambda: condition(api_server.get(namespace, "report"), "Healthy"))
    [record] = operator.statuses._records.values()
    assert record.figures is not None
    nothing = record.figures.health
    slot = record.figures.created_at
    now = 0.0

    def health(number: int) -> Any:
        at = slot + number * MINUTE
        return type(nothing)(
            **{
                **{name: getattr(nothing, name) for name in nothing.__dataclass_fields__}, "dead_runs": number,
                "last_failure_at": at, "last_skip_slot": at, "last_skip_at": at, "last_skip_reason": "Overlap",
            }
        )  # fmt: skip

    recorders = [EventRecorder(operator.gateway, lambda: now) for _ in range(2)]

    def tell(before: int, after: int) -> list[tuple[int, str]]:
        for recorder in recorders:
            recorder.tell_outcomes(record.applied, health(before), health(after))
        found = [events(api_server, namespace, reason) for reason in ("RunDead", "SlotSkipped")]
        return [(event["count"], event["message"]) for [event] in found]

    def told(count: int, number: int) -> list[tuple[int, str]]:
        skipped = f"the slot {rfc3339(slot + number * MINUTE)} did not run: {why_no_run('Overlap')}"
        return [(count, f"a run is dead ({number} on the dead-letter list)"), (count, skipped)]

    assert tell(0, 1) == told(1, 1)
    assert tell(1, 2) == told(1, 1)  # too soon
    now += QUIET_SECONDS + 1
    assert tell(1, 1) == told(1, 1)  # nothing new
    assert tell(1, 3) == told(2, 3)
    # A restarted leader sees it again.
    recorders = [EventRecorder(operator.gateway, time.monotonic)]
    assert tell(1, 3) == told(2, 3)


def test_an_api_server_that_is_away_is_not_asked_for_each_event(
    api_server: ApiServer, namespace: str, new_operator: Callable[..., Operator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be told is told later."""
    api_server.apply(*(manifest(f"wrong-{number}", namespace, timeZone="No/Where") for number in range(3)))
    operator = new_operator(namespaces=[namespace])
    operator.syncer.step()
    refused = [record.applied for record in operator.statuses._records.values()]
    now, tries = 0.0, 0
    really, recorder = operator.gateway.create_event, EventRecorder(operator.gateway, lambda: now)

    def create_event(*arguments: Any) -> bool:
        nonlocal tries
        tries += 1
        return really(*arguments)

    monkeypatch.setattr(operator.gateway, "create_event", create_event)
    configuration = operator.gateway._client.configuration
    address, configuration.host = configuration.host, "https://127.0.0.1:1"
    operator.gateway.request_stop()  # no second try
    for applied in refused:
        recorder.tell_refusal(applied)
    assert tries == 1
    now += AWAY_SECONDS
    recorder.tell_zone_change(refused[0], "its slots move")
    assert tries == 2
    configuration.host = address
    now += AWAY_SECONDS
    for applied in refused:
        recorder.tell_refusal(applied)
    assert tries == 2 + len(refused)
    assert len(events(api_server, namespace, "UnknownTimeZone")) == len(refused) == 3
    recorder.tell_waiting()
    assert len(events(api_server, namespace, "SlotsMoved")) == 1

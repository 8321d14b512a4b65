"""Status as a real API server keeps it: what is written, what is not written again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from api_server import ApiServer, condition, eventually, settled
from jobschedule_objects import manifest

from scenario import add_worker, connect, one
from slotkeeper.operator import Operator
from slotkeeper.ticker import Ticker


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(dsn) as connection:
        yield connection


def patch(api_server: ApiServer, namespace: str, spec: dict[str, Any]) -> None:
    body = json.dumps({"spec": spec})
    api_server.kubectl("-n", namespace, "patch", "jsched", "report", "--type=merge", "-p", body)


def test_an_invalid_edit_and_its_mending(api_server: ApiServer, namespace: str, operator: Operator) -> None:
    api_server.apply(manifest("report", namespace, cron=["0 0 1 1 *"]))
    good = eventually(lambda: settled(obj := api_server.get(namespace, "report")) and obj)
    patch(api_server, namespace, {"cron": ["0 0 31 2 L"]})
    bad = eventually(lambda: condition(obj := api_server.get(namespace, "report"), "Stalled") and obj)
    assert (bad["status"]["observedGeneration"], bad["status"]["acceptedGeneration"]) == (2, 1)
    assert bad["status"]["resolvedSchedule"] == "0 0 1 1 *"
    assert bad["status"]["nextScheduleTime"] == good["status"]["nextScheduleTime"]
    ready = condition(bad, "Ready")
    assert ready is not None
    assert "spec.cron[0]" in ready["message"]
    events = api_server.kubectl("-n", namespace, "get", "events", "--field-selector=reason=InvalidSpec", "-o", "json")
    [event] = json.loads(events.stdout)["items"]
    assert event["involvedObject"]["uid"] == bad["metadata"]["uid"]
    assert "spec.cron[0]" in event["message"]
    patch(api_server, namespace, {"cron": ["0 0 1 1 *"]})
    mended = eventually(
        lambda: settled(obj := api_server.get(namespace, "report")) and not condition(obj, "Stalled") and obj
    )
    assert mended["status"]["acceptedGeneration"] == 3
    ready = condition(mended, "Ready")
    assert ready is not None
    assert ready["status"] == "True"


def test_what_is_there_is_not_written_again(
    api_server: ApiServer, namespace: str, operator: Operator, connection: psycopg.Connection[Any]
) -> None:
    api_server.apply(manifest("report", namespace, cron=["0 0 1 1 *"]))
    obj = eventually(lambda: condition(found := api_server.get(namespace, "report"), "Healthy") and found)
    writes, version = operator.statuses.writes, obj["metadata"]["resourceVersion"]
    for number in range(3):
        api_server.kubectl("-n", namespace, "label", "--overwrite", "jsched", "report", f"touched=n{number}")
        eventually(lambda: not len(operator.syncer.dirty))
    operator.syncer.resync()
    operator.statuses.step()
    after = api_server.get(namespace, "report")
    assert after is not None
    assert after["metadata"]["resourceVersion"] != version
    assert operator.statuses.writes == writes
    # Somebody else's hand in our fields is put right.
    wrong = '{"status": {"resolvedSchedule": "something else"}}'
    api_server.kubectl(
        "-n", namespace, "patch", "jsched", "report", "--subresource=status", "--type=merge", "-p", wrong
    )
    eventually(lambda: (api_server.get(namespace, "report") or {})["status"]["resolvedSchedule"] == "0 0 1 1 *")


def test_next_follows_the_slots_and_figures_the_outcomes(
    api_server: ApiServer, namespace: str, operator: Operator, dsn: str, connection: psycopg.Connection[Any]
) -> None:
    api_server.apply(manifest("report", namespace, every={"periodSeconds": 86400}))
    first = eventually(lambda: condition(found := api_server.get(namespace, "report"), "Healthy") and found)
    assert first["status"]["deadRuns"] == 0
    next_slot = datetime.fromisoformat(first["status"]["nextScheduleTime"])
    # As if the slot had come a second ago: what is due is due, and the next one is a day later.
    connection.execute(
        "update slotkeeper.schedule set watermark = watermark - interval '1 day',"
        " watermark_highest = watermark - interval '1 day', next_due = clock_timestamp()"
    )
    ticker = Ticker(dsn)
    ticker.tick()
    worker = add_worker(connection, namespaces=[namespace])
    [run] = worker.claim()
    worker.finish(run)
    connection.execute("update slotkeeper.schedule set next_slot = next_slot + interval '1 day'")
    ticker._session.close()
    shown = eventually(
        lambda: (
            (found := api_server.get(namespace, "report"))
            and found["status"]["nextScheduleTime"] != first["status"]["nextScheduleTime"]
            and found
        )
    )
    assert datetime.fromisoformat(shown["status"]["nextScheduleTime"]) == next_slot + timedelta(days=1)
    assert datetime.fromisoformat(shown["status"]["lastScheduleTime"]) == run.slot.astimezone(UTC)
    healthy = condition(shown, "Healthy")
    assert healthy is not None
    assert healthy["reason"] == "Succeeding"
    assert shown["status"]["lastSuccessfulSlot"] == shown["status"]["lastScheduleTime"]
    assert shown["status"]["statisticsTime"] >= first["status"]["statisticsTime"]
    assert one(connection, "select generation from slotkeeper.schedule") == shown["metadata"]["generation"]

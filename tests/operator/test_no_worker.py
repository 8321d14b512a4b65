"""Which queues have no worker: as the database says it, and as the condition NoWorker of a real object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from api_server import ApiServer, condition, eventually
from jobschedule_objects import manifest

from scenario import EPOCH, add_schedule, add_worker, connect, enqueue, one, rows
from slotkeeper.operator import Operator

Connection = psycopg.Connection[Any]
GRACE = 120


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    with connect(dsn) as connection:
        yield connection


def unserved(connection: Connection) -> dict[str, bool]:
    """Queues (namespace default) that are told, and whether runs wait there."""
    found = rows(connection, "select * from slotkeeper.unserved_queues_v1(%s)", GRACE)
    return {row.queue: row.waiting_since is not None for row in found}


def some_time_ago(connection: Connection, seconds: float = GRACE + 1) -> None:
    """Everything that was noted was noted so much earlier."""
    connection.execute(
        "update slotkeeper.lane set unserved_since = unserved_since - make_interval(secs => %s)", (seconds,)
    )
    connection.execute("update slotkeeper.run set run_at = run_at - make_interval(secs => %s)", (seconds,))


def test_a_queue_that_no_pool_is_known_for_is_told_after_the_grace(connection: Connection) -> None:
    add_schedule(connection, queue="typo")
    assert unserved(connection) == {}
    some_time_ago(connection, GRACE - 5)
    assert unserved(connection) == {}
    some_time_ago(connection, 6)
    assert unserved(connection) == {"typo": False}


def test_it_is_written_only_when_it_changes(connection: Connection) -> None:
    add_schedule(connection)
    unserved(connection)
    address = one(connection, "select ctid::text from slotkeeper.lane")
    unserved(connection)
    assert one(connection, "select ctid::text from slotkeeper.lane") == address
    add_worker(connection)
    unserved(connection)
    assert one(connection, "select unserved_since from slotkeeper.lane") is None


@pytest.mark.parametrize(("namespaces", "queues", "serves"), [
    (["default"], ["reports"], True), (["*"], ["*"], True), (["default"], ["a", "reports"], True),
    (["other"], ["reports"], False), (["default"], ["default"], False),
])  # fmt: skip
def test_who_serves_a_queue(connection: Connection, namespaces: list[str], queues: list[str], serves: bool) -> None:
    add_schedule(connection, queue="reports")
    worker = add_worker(connection, namespaces=namespaces, queues=queues)
    unserved(connection)
    some_time_ago(connection)
    assert unserved(connection) == ({} if serves else {"reports": False})
    # Its lease has ended: a new two minutes begin, and its pool is known now.
    enqueue(connection, queue="reports")
    worker.expire()
    unserved(connection)
    some_time_ago(connection)
    assert unserved(connection) == {"reports": True}


def test_a_worker_whose_login_may_not_claim_serves_nothing(connection: Connection) -> None:
    add_schedule(connection)
    add_worker(connection)
    unserved(connection)
    enqueue(connection)
    connection.execute("update slotkeeper.queue_grant set login = 'somebody else'")
    unserved(connection)
    some_time_ago(connection)
    assert unserved(connection) == {"default": True}


def test_a_known_pool_without_workers_is_idle_until_a_run_has_waited(connection: Connection) -> None:
    """Scaled to nothing; and a first worker has as long to start as a restart of all of them takes."""
    schedule = add_schedule(connection)
    add_worker(connection)
    connection.execute("delete from slotkeeper.worker")
    unserved(connection)
    some_time_ago(connection, 10 * GRACE)
    assert unserved(connection) == {}
    schedule.materialise([EPOCH + timedelta(minutes=1)])
    connection.execute("update slotkeeper.run set run_at = clock_timestamp()")
    assert unserved(connection) == {}
    some_time_ago(connection)
    assert unserved(connection) == {"default": True}
    worker = add_worker(connection)
    assert unserved(connection) == {}
    worker.finish(worker.claim()[0])


def test_the_condition_says_it_and_a_worker_mends_it(
    api_server: ApiServer, new_operator: Callable[..., Operator], namespace: str, connection: Connection
) -> None:
    names = {"yearly": {}, "suspended": {"suspend": True}, "never": {"cron": ["0 0 31 2 *"]}}
    api_server.apply(
        *(manifest(name, namespace, queue="reports", **{"cron": ["0 0 1 1 *"], **spec}) for name, spec in names.items())
    )
    first = new_operator(namespaces=[namespace])
    first.start()

    def reasons() -> dict[str, str]:
        return {
            name: (condition(obj, "Healthy") or {}).get("reason", "")
            for name, obj in api_server.list(namespace).items()
        }

    healthy = dict.fromkeys(names, "NotYetDue")
    eventually(lambda: reasons() == healthy)
    eventually(lambda: one(connection, "select unserved_since from slotkeeper.lane"))
    some_time_ago(connection)
    eventually(lambda: reasons() == {**healthy, "yearly": "NoWorker"})
    told = condition(api_server.get(namespace, "yearly"), "Healthy")
    assert told is not None
    assert "'reports'" in told["message"]
    ready = condition(api_server.get(namespace, "yearly"), "Ready")
    assert ready is not None
    assert ready["reason"] == "Accepted"
    # Another leader knows since when, and does not take it back meanwhile.
    first.stop()
    second = new_operator(namespaces=[namespace])
    second.start()
    eventually(lambda: second.leadership.leads)
    eventually(lambda: second.statuses._records and all(r.figures for r in second.statuses._records.values()))
    assert reasons()["yearly"] == "NoWorker"
    again = condition(api_server.get(namespace, "yearly"), "Healthy")
    assert again is not None
    assert again["lastTransitionTime"] == told["lastTransitionTime"]
    add_worker(connection, namespaces=[namespace], queues=["reports"])
    eventually(lambda: reasons() == healthy)

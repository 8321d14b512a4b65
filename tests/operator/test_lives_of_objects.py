"""What became of objects of a real API server in other people's controllers, and what becomes of them here.

Deleted while nobody looks, made again at once, relabelled all day, too large, badly edited, with long names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
import yaml
from api_server import ApiServer, condition, eventually, settled
from jobschedule_objects import manifest

from scenario import add_worker, connect, one, rows
from slotkeeper.operator import Operator
from slotkeeper.ticker import Ticker

NewOperator = Callable[..., Operator]
Connection = psycopg.Connection[Any]


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    with connect(dsn) as connection:
        yield connection


@pytest.fixture
def ticker(dsn: str) -> Iterator[Ticker]:
    ticker = Ticker(dsn)
    yield ticker
    ticker._session.close()


def set_back(connection: Connection, minutes: int) -> None:
    """Nobody has ticked for so long."""
    connection.execute(
        "update slotkeeper.schedule set watermark = date_trunc('minute', clock_timestamp()) - %s,"
        " watermark_highest = date_trunc('minute', clock_timestamp()) - %s,"
        " next_due = clock_timestamp() - %s where retired_at is null",
        (timedelta(minutes=minutes),) * 3,
    )


def patch(api_server: ApiServer, namespace: str, spec: dict[str, Any], *, check: bool = True) -> str:
    """What kubectl said."""
    body = json.dumps({"spec": spec})
    done = api_server.kubectl("-n", namespace, "patch", "jsched", "report", "--type=merge", "-p", body, check=check)
    return done.stderr


def seen(api_server: ApiServer, namespace: str) -> None:
    """Whatever was done before has been seen: a later object has a status."""
    api_server.apply(manifest("later", namespace, cron=["0 0 1 1 *"]))
    eventually(lambda: settled(api_server.get(namespace, "later")))
    api_server.kubectl("-n", namespace, "delete", "jsched", "later")


def ready(obj: dict[str, Any] | None) -> tuple[str, str, str]:
    found = condition(obj, "Ready")
    assert found is not None
    return found["status"], found["reason"], found["message"]


@pytest.mark.parametrize(
    "name",
    [
        "terrifying-grasshopper-monocular-sync-scheduled-incubator",
        ".".join(["terrifying-grasshopper-monocular-sync-scheduled-incubator"] * 4) + ".terrifying-grasshopper",
    ],
    ids=["57", "253"],
)
def test_c062_long_names(
    api_server: ApiServer, namespace: str, operator: Operator, connection: Connection, ticker: Ticker, name: str
) -> None:
    name = name[:253]
    api_server.apply(manifest(name, namespace, task="report"))
    eventually(lambda: settled(api_server.get(namespace, name)))
    assert ready(api_server.get(namespace, name))[:2] == ("True", "Accepted")
    set_back(connection, 1)
    ticker.tick()
    (run,) = add_worker(connection, namespaces=[namespace]).claim()
    key = one(connection, "select idempotency_key from slotkeeper.job where id = %s", str(run.id))
    assert key == f"{namespace}/{name}@{run.slot:%Y-%m-%dT%H:%M:%SZ}"
    broken = {"spec": {"cron": ["61 * * * *"]}}
    api_server.kubectl("-n", namespace, "patch", "jsched", name, "--type=merge", "-p", json.dumps(broken))
    query = ("-n", namespace, "get", "events", "--field-selector=reason=InvalidSpec", "-o", "json")
    (event,) = eventually(lambda: json.loads(api_server.kubectl(*query).stdout)["items"])
    assert event["involvedObject"]["name"] == name
    assert len(event["metadata"]["name"]) <= 253


def test_c107_deleted_while_the_operator_is_down(
    api_server: ApiServer, namespace: str, new_operator: NewOperator, connection: Connection, ticker: Ticker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The only one of its namespace, so its list is empty: that is believed when it says so twice."""
    monkeypatch.setattr("slotkeeper.operator.syncer.BRAKED_SECONDS", 0.5)
    api_server.apply(manifest("report", namespace, overlapPolicy="Queue", catchUp={"policy": "RunAll"}))
    before = new_operator(namespaces=[namespace])
    before.syncer.step()
    set_back(connection, 4)
    ticker.tick()
    worker = add_worker(connection, namespaces=[namespace])
    (leased,) = worker.claim()
    before.stop()
    api_server.kubectl("-n", namespace, "delete", "jsched", "report")
    assert api_server.get(namespace, "report") is None, "no finalizer keeps it"
    assert worker.claim() == [], "workers make no slots"
    new_operator(namespaces=[namespace]).start()
    eventually(lambda: one(connection, "select retired_at is not null from slotkeeper.schedule"), what="retired")
    query = "select status, reason from slotkeeper.job where namespace = %s order by slot"
    first, *others = [tuple(row) for row in rows(connection, query, namespace)]
    assert first == ("running", "ScheduleDeleted")
    assert len(others) >= 3, "and one more if a minute began before the deletion was seen"
    assert set(others) == {("cancelled", "ScheduleDeleted")}
    set_back(connection, 60)
    ticker.tick()
    worker.finish(leased)
    assert [row.status for row in rows(connection, query, namespace)] == ["done", *["cancelled"] * len(others)]


def test_c107_a_list_that_was_not_believed_is_asked_for_again_soon(
    api_server: ApiServer, namespace: str, new_operator: NewOperator
) -> None:
    api_server.apply(manifest("report", namespace, cron=["0 0 1 1 *"]))
    syncer = new_operator(namespaces=[namespace]).syncer
    syncer.step()
    after = syncer._resync_at
    api_server.kubectl("-n", namespace, "delete", "jsched", "report")
    assert syncer.resync().braked == {namespace: 1}
    assert syncer._resync_at - syncer._resynced_at < 60
    assert syncer._resync_at < after


def test_c109_deleted_and_applied_ten_times_while_it_fires(
    api_server: ApiServer, namespace: str, operator: Operator, connection: Connection, ticker: Ticker
) -> None:
    """A slot every second, so that each life of the object could have caught up what an earlier one had."""
    now: datetime = one(connection, "select date_trunc('second', clock_timestamp())")
    at = [f"{now + timedelta(seconds=number):%Y-%m-%dT%H:%M:%SZ}" for number in range(100)]
    obj = yaml.safe_dump(manifest("report", namespace, at=at, overlapPolicy="Allow", catchUp={"policy": "RunAll"}))
    born: dict[str, datetime] = {}
    ticker.actor.start()
    try:
        for life in range(10):
            if life:
                api_server.kubectl("-n", namespace, "delete", "jsched", "report")
            made = json.loads(api_server.kubectl("apply", "-o", "json", "-f", "-", given=obj).stdout)["metadata"]
            born[made["uid"]] = datetime.fromisoformat(made["creationTimestamp"])
        last = made["uid"]
        query = (
            "select r.slot, v.uid from slotkeeper.run r join slotkeeper.schedule s on s.owner = r.owner"
            " join slotkeeper.schedule_version v on v.schedule = s.id and v.version = r.version order by r.slot"
        )
        eventually(lambda: len(rows(connection, query)) >= 2, what="slots of the last one")
    finally:
        ticker.actor.stop()
    active = rows(connection, "select uid from slotkeeper.schedule where retired_at is null")
    assert [row.uid for row in active] == [last]
    runs = rows(connection, query)
    assert {row.uid for row in runs} == {last}, "what is left of the others was cancelled"
    ever = (
        rows(
            connection,
            "select d.slot, v.uid from slotkeeper.run_done d join slotkeeper.schedule s on s.owner = d.owner"
            " join slotkeeper.schedule_version v on v.schedule = s.id and v.version = d.version",
        )
        + runs
    )
    assert all(row.slot > born[row.uid] - timedelta(seconds=1) for row in ever), "nothing of a time before it was made"
    assert len({row.slot for row in ever}) == len(ever), "one row for each slot, whoever made it"
    eventually(lambda: settled(api_server.get(namespace, "report")))


def test_an_object_that_a_finalizer_keeps_while_it_is_deleted_has_no_more_slots(
    api_server: ApiServer, namespace: str, operator: Operator, connection: Connection, ticker: Ticker
) -> None:
    """As for a CronJob: who deletes it expects that nothing starts any more, whoever else has yet to clean up."""
    obj = manifest("report", namespace, catchUp={"policy": "RunAll"})
    obj["metadata"]["finalizers"] = ["example.com/cleans-up"]
    api_server.apply(obj)
    eventually(lambda: settled(api_server.get(namespace, "report")))
    set_back(connection, 2)
    ticker.tick()
    api_server.kubectl("-n", namespace, "delete", "--wait=false", "jsched", "report")
    retired = "select retired_at is not null from slotkeeper.schedule where name = 'report'"
    eventually(lambda: one(connection, retired), what="retired")
    left = api_server.get(namespace, "report")
    assert left is not None
    cancelled = [row.reason for row in rows(connection, "select reason from slotkeeper.job")]
    assert len(cancelled) >= 2, "and one more if a minute began before the deletion was seen"
    assert set(cancelled) == {"ScheduleDeleted"}
    api_server.kubectl("-n", namespace, "label", "jsched", "report", "looked=again")
    seen(api_server, namespace)
    assert one(connection, retired), "another look does not bring it back"
    unkept = '{"metadata": {"finalizers": null}}'
    api_server.kubectl("-n", namespace, "patch", "jsched", "report", "--type=merge", "-p", unkept)
    api_server.apply(manifest("report", namespace))
    eventually(lambda: not one(connection, retired), what="another of the same name")
    assert len(rows(connection, "select from slotkeeper.job")) == len(cancelled), "nothing is caught up"


def test_c111_labels_and_annotations_move_nothing(
    api_server: ApiServer, namespace: str, operator: Operator, connection: Connection
) -> None:
    """Twenty interval schedules, relabelled and annotated ten times each."""
    every = {"periodSeconds": 600}
    api_server.apply(*(manifest(f"report-{number}", namespace, every=every) for number in range(20)))
    objects = eventually(
        lambda: all(map(settled, (found := api_server.list(namespace)).values())) and len(found) == 20 and found
    )
    seen(api_server, namespace)
    stored = "select s.ctid, s.xmin, s.* from slotkeeper.schedule s where name <> 'later' order by id"
    before, patches = rows(connection, stored), operator.statuses.writes
    for number in range(5):
        api_server.kubectl("-n", namespace, "label", "--overwrite", "jsched", "--all", f"tick={number}")
        api_server.kubectl("-n", namespace, "annotate", "--overwrite", "jsched", "--all", f"example.com/tick={number}")
    seen(api_server, namespace)
    assert rows(connection, stored) == before, "not one write to the schedule table"
    assert (
        one(
            connection,
            "select count(*) from slotkeeper.schedule_version where schedule in"
            " (select id from slotkeeper.schedule where name <> 'later')",
        )
        == 20
    )
    assert rows(connection, "select from slotkeeper.job") == []
    # One for each at most, and what the marker object took.
    assert operator.statuses.writes - patches <= 20 + 5
    after = api_server.list(namespace)
    assert {name: obj["metadata"]["generation"] for name, obj in after.items()} == dict.fromkeys(objects, 1)


def test_c113_a_payload_that_is_too_large_is_refused_once(
    api_server: ApiServer, namespace: str, operator: Operator, connection: Connection
) -> None:
    big = manifest("report", namespace, cron=["0 0 1 1 *"], payload={"text": "x" * 300_000})
    api_server.kubectl("apply", "--server-side", "-f", "-", given=yaml.safe_dump(big))
    refused = eventually(lambda: condition(obj := api_server.get(namespace, "report"), "Stalled") and obj)
    status, reason, message = ready(refused)
    assert (status, reason) == ("False", "InvalidSpec")
    assert "spec.payload" in message
    assert "64 KiB" in message or "65536" in message or "65,536" in message, message
    seen(api_server, namespace)
    patches = operator.statuses.writes
    api_server.kubectl("-n", namespace, "annotate", "jsched", "report", "example.com/look=again")
    seen(api_server, namespace)
    assert operator.statuses.writes - patches <= 3, "no loop"
    found = api_server.get(namespace, "report")
    assert found is not None
    assert found["status"] == refused["status"]
    assert "finalizers" not in found["metadata"]
    assert rows(connection, "select from slotkeeper.schedule where name = 'report'") == []
    patch(api_server, namespace, {"payload": {"text": "x" * 60_000}})
    eventually(lambda: (condition(api_server.get(namespace, "report"), "Ready") or {})["status"] == "True")
    assert one(connection, "select max(length(payload)) from slotkeeper.schedule_version") > 60_000


def test_c114_a_bad_edit_of_a_good_schedule(
    api_server: ApiServer, namespace: str, operator: Operator, connection: Connection, ticker: Ticker
) -> None:
    api_server.apply(manifest("report", namespace, cron=["*/5 * * * *"]))
    eventually(lambda: settled(api_server.get(namespace, "report")))
    for wrong in ({"every": {"periodSeconds": 600}}, {"cron": None}):  # both; neither
        assert "one of cron, every, at" in patch(api_server, namespace, wrong, check=False)
    obj = api_server.get(namespace, "report")
    assert obj is not None
    assert obj["metadata"]["generation"] == 1
    patch(api_server, namespace, {"cron": ["61 * * * *"]})
    bad = eventually(lambda: condition(obj := api_server.get(namespace, "report"), "Stalled") and obj)
    status, reason, message = ready(bad)
    assert (status, reason, bad["status"]["observedGeneration"]) == ("False", "InvalidSpec", 2)
    assert "spec.cron[0]" in message
    assert "61" in message
    assert "generation 1 stays in force" in message
    set_back(connection, 30)
    ticker.tick()
    query = "select status, reason, slots, generation from slotkeeper.job order by slot"
    fired = [tuple(row) for row in rows(connection, query)]
    assert [row[0] for row in fired] == ["superseded", "ready"], "the last valid one goes on, under its own policy"
    assert {row[3] for row in fired} == {1}
    patch(api_server, namespace, {"cron": ["*/10 * * * *"]})
    mended = eventually(
        lambda: settled(obj := api_server.get(namespace, "report")) and not condition(obj, "Stalled") and obj
    )
    assert ready(mended)[:2] == ("True", "Accepted")
    assert mended["status"]["resolvedSchedule"] == "*/10 * * * *"
    ticker.tick()
    # The edit may have decided one more slot of the former calendar; of its own it has none yet.
    assert {row.generation for row in rows(connection, query)} == {1}, "nothing is caught up"

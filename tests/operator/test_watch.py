"""What a watch may meet: a history that is gone, a network that loses packets, a resource that is not there yet.

The API server is a real one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from api_server import ApiServer, condition, eventually, install_crd
from jobschedule_objects import manifest
from network import network

from controller_place import controller_place
from processes import own_processes
from scenario import connect, one, rows
from slotkeeper.operator import Operator
from slotkeeper.ticker import Ticker

CRD = "jobschedules.slotkeeper.dev"


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(dsn) as connection:
        yield connection


def stored(connection: psycopg.Connection[Any]) -> set[str]:
    return {row.name for row in rows(connection, "select name from slotkeeper.schedule where retired_at is null")}


@pytest.mark.timeout(180)
def test_c121_a_watch_whose_history_was_compacted_begins_anew(
    api_server: ApiServer, new_operator: Callable[..., Operator], namespace: str,
    connection: psycopg.Connection[Any], tmp_path: Path,
) -> None:  # fmt: skip
    """While no packet arrives, objects change, the API server is restarted and etcd forgets what the watch could
    continue from: its old resourceVersion is answered with 410 Gone. One object vanishes without any trace.
    """
    if api_server.state is None:
        pytest.skip("the API server is not ours to stop")
    calm = {"cron": ["0 0 1 1 *"]}
    before = ("stays", "edited", "deleted", "vanished")
    api_server.apply(*(manifest(name, namespace, **calm) for name in before))
    with network(api_server, tmp_path) as (between, kubeconfig):
        operator = new_operator(namespaces=[namespace], kubeconfig=kubeconfig)
        operator.start()
        eventually(lambda: all(condition(api_server.get(namespace, name), "Healthy") for name in before))
        [pump] = operator.pumps
        old = api_server.get(namespace, "stays")
        row_of_stays = "select xmin::text, version from slotkeeper.schedule where name = 'stays'"
        [row] = rows(connection, row_of_stays)
        between.lose_packets()
        api_server.apply(manifest("created", namespace, **calm))
        api_server.kubectl("-n", namespace, "delete", "jsched", "deleted")
        patch = '{"spec": {"cron": ["0 0 1 2 *"]}}'
        api_server.kubectl("-n", namespace, "patch", "jsched", "edited", "--type=merge", "-p", patch)

        def compact() -> None:
            gone = api_server.etcd("deleterange", key=f"/registry/slotkeeper.dev/jobschedules/{namespace}/vanished")
            assert gone["deleted"] == "1"
            revision = api_server.etcd("put", key="/somebody/else", value="x")["header"]["revision"]
            api_server.etcd("compaction", revision=revision, physical=True)

        api_server.restart(compact)
        between.cut()
        between.pass_packets()
        eventually(lambda: stored(connection) == {"stays", "edited", "created"}, what="all is known", seconds=90)
        versions = "select name, version from slotkeeper.schedule where retired_at is null and name <> 'stays'"
        eventually(lambda: dict(rows(connection, versions)) == {"edited": 2, "created": 1}, what="each once")
        api_server.apply(manifest("comes", namespace, **calm))
        eventually(lambda: "comes" in stored(connection), what="the watch goes on", seconds=60)
        assert rows(connection, row_of_stays) == [row]
        assert api_server.get(namespace, "stays") == old
        assert operator.alive
        assert pump.restarts == 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("heard", ["watch", "list"])
def test_c106_a_network_that_loses_packets_without_a_word(
    api_server: ApiServer, new_operator: Callable[..., Operator], namespace: str, dsn: str,
    connection: psycopg.Connection[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: str,
) -> None:  # fmt: skip
    """What changed meanwhile is applied afterwards: by the watch alone, which gives a silent stream up, and by the
    full resync alone, where the watch stays deaf for ever. Slots fall due all the while, and a metric tells.
    """
    monkeypatch.setattr("slotkeeper.operator.kubernetes_gateway.TIMEOUT", (1, 1))
    monkeypatch.setattr("slotkeeper.operator.syncer.RETRY_SECONDS", 0.5)
    monkeypatch.setattr("slotkeeper.operator.pump.INACTIVITY_SECONDS", 3 if heard == "watch" else 3600)
    before = [f"edited-{number}" for number in range(3)] + ["deleted-0", "deleted-1"]
    api_server.apply(*(manifest(name, namespace) for name in before))
    with network(api_server, tmp_path) as (between, kubeconfig):
        operator = new_operator(
            namespaces=[namespace], kubeconfig=kubeconfig, resync_seconds=3600 if heard == "watch" else 2
        )
        operator.start()
        eventually(lambda: stored(connection) == set(before))
        # Past the resync that follows the beginning of a watch.
        eventually(lambda: operator.syncer._resync_at - time.monotonic() > 1, what="it has settled")
        with controller_place(dsn, operator=operator) as place:
            between.lose_packets()
            api_server.apply(*(manifest(f"created-{number}", namespace) for number in range(5)))
            api_server.kubectl("-n", namespace, "delete", "jsched", "deleted-0", "deleted-1")
            for number in range(3):
                patch = '{"spec": {"queue": "new"}}'
                api_server.kubectl("-n", namespace, "patch", "jsched", f"edited-{number}", "--type=merge", "-p", patch)

            if heard == "list":
                eventually(lambda: place.scrape().value("slotkeeper_resync_failed", watched=namespace) == 1)
            age = place.scrape().value("slotkeeper_resync_age_seconds", watched=namespace)
            connection.execute(
                "update slotkeeper.schedule set watermark = watermark - interval '5 minutes',"
                " watermark_highest = watermark - interval '5 minutes', next_due = clock_timestamp()"
            )
            ticker = Ticker(dsn)
            ticker.tick()
            ticker._session.close()
            assert one(connection, "select count(distinct owner) from slotkeeper.run") == len(before)
            assert stored(connection) == set(before)

            between.pass_packets()
            after = {f"{word}-{number}" for word, count in (("edited", 3), ("created", 5)) for number in range(count)}
            eventually(lambda: stored(connection) == after, what="created and deleted ones", seconds=90)
            query = "select name from slotkeeper.schedule where generation = 2 and retired_at is null"
            eventually(lambda: len(rows(connection, query)) == 3, what="edited ones")
            if heard == "list":
                eventually(lambda: place.scrape().value("slotkeeper_resync_age_seconds", watched=namespace) < age)
                assert place.scrape().value("slotkeeper_resync_failed", watched=namespace) == 0
        assert operator.pumps[0].restarts == 0


@pytest.mark.timeout(180)
def test_a_crd_that_is_installed_after_the_controller(
    api_server: ApiServer, namespace: str, dsn: str, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    if api_server.state is None:
        pytest.skip("the CRD is not ours to remove")
    api_server.kubectl("delete", "crd", CRD, "--wait")
    try:
        with own_processes(tmp_path) as processes:
            controller = processes.controller(
                dsn, "--kubernetes", "--kubeconfig", str(api_server.kubeconfig), "--namespaces", namespace
            )
            [warning] = eventually(lambda: controller.log("crd_missing"))
            assert (warning["level"], warning["resource"]) == ("warning", CRD)
            install_crd(api_server)
            api_server.apply(manifest("report", namespace))
            eventually(lambda: stored(connection) == {"report"}, seconds=90, what="it is synced without a restart")
            eventually(lambda: condition(api_server.get(namespace, "report"), "Ready"), what="its status is written")
            assert controller.log("crd_missing") == [warning]
            assert controller.log("step_crashed") == []
            assert controller.stop() == 0
    finally:
        install_crd(api_server)

"""What a watch may meet: a history that is gone, and a resource that is not there yet. The API server is a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from api_server import ApiServer, condition, eventually, install_crd
from jobschedule_objects import manifest

from processes import own_processes
from scenario import connect, rows
from slotkeeper.operator import Operator

CRD = "jobschedules.slotkeeper.dev"


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(dsn) as connection:
        yield connection


def stored(connection: psycopg.Connection[Any]) -> set[str]:
    return {row.name for row in rows(connection, "select name from slotkeeper.schedule where retired_at is null")}


@pytest.mark.timeout(180)
def test_a_watch_whose_history_was_compacted_begins_anew(
    api_server: ApiServer, new_operator: Callable[..., Operator], namespace: str,
    connection: psycopg.Connection[Any],
) -> None:  # fmt: skip
    """While the API server is away etcd forgets everything that the watch could continue from, and an object too.

    The API server answers 410 Gone, unless the watch has already begun anew because its storage was not ready.
    """
    if api_server.state is None:
        pytest.skip("the API server is not ours to stop")
    api_server.apply(manifest("stays", namespace), manifest("goes", namespace))
    operator = new_operator(namespaces=[namespace])
    operator.start()
    eventually(lambda: stored(connection) == {"stays", "goes"})
    [pump] = operator.pumps

    def compact() -> None:
        gone = api_server.etcd("deleterange", key=f"/registry/slotkeeper.dev/jobschedules/{namespace}/goes")
        assert gone["deleted"] == "1"
        revision = api_server.etcd("put", key="/somebody/else", value="x")["header"]["revision"]
        api_server.etcd("compaction", revision=revision, physical=True)

    api_server.restart(compact)
    eventually(lambda: stored(connection) == {"stays"}, what="what nobody told is found", seconds=120)
    api_server.apply(manifest("comes", namespace))
    eventually(lambda: stored(connection) == {"stays", "comes"}, what="the watch goes on", seconds=60)
    assert (pump.restarts, operator.alive) == (0, True)


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

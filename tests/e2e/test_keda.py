"""KEDA itself scales a pool, by the chart's ScaledObjects: from the controller's endpoint, and from Prometheus.

`make e2e-keda`. Each test runs for both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from burst_pool import (
    CONCURRENCY,
    a_backlog_is_done_by_all_workers,
    at_rest,
    installed,
    replicas,
    unfinished,
    workers,
)
from monitoring import Prometheus
from release import HERE, rendered
from whole_cluster import Database, WholeCluster, eventually, script

from scenario import one
from slotkeeper import enqueue

pytestmark = pytest.mark.keda
#: For so many failures of KEDA the tests look on; after four in a row the chart's fallback holds.
FAILURES = 30
_BURST = "slotkeeper-worker-burst"
_UNKNOWN: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "unknown", "namespace": "slotkeeper"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "unknown"}},
        "template": {
            "metadata": {"labels": {"app": "unknown"}},
            "spec": {
                "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [
                    {
                        "name": "pause",
                        "image": "slotkeeper.test/pause:1",
                        "imagePullPolicy": "Never",
                        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    }
                ],
            },
        },
    },
}


@pytest.fixture(scope="module")
def keda(release: WholeCluster) -> Iterator[None]:
    script("add-keda")
    yield
    script("add-keda", "--remove")


@pytest.fixture(scope="module")
def prometheus(release: WholeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    objects = rendered(release, "-f", str(HERE / "alert-values.yaml"))
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), release, objects)
    yield server
    server.stop()


@pytest.fixture(scope="module", params=["keda", "keda-prometheus"])
def scaled(
    request: pytest.FixtureRequest,
    release: WholeCluster,
    keda: None,
    prometheus: Prometheus,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[WholeCluster]:
    """The release with the pool `burst`, from 0 to 4 workers. Whoever asks the controller needs a token."""
    release.kubectl("-n", "slotkeeper", "create", "secret", "generic", "scaling-token", "--from-literal=token=open")
    autoscaling = {
        "kind": request.param,
        "minReplicas": 0,
        "keda": {"tokenSecret": "scaling-token", "pollingInterval": 2, "cooldownPeriod": 5},
        "prometheus": {"serverAddress": prometheus.url},
    }
    with installed(
        release, tmp_path_factory.mktemp("keda"), autoscaling,
        # KEDA is the cluster's provider of external metrics.
        externalMetrics={"enabled": False},
        scaling={"horizonSeconds": 60, "drainSeconds": 10, "tokenSecret": "scaling-token"},
    ):  # fmt: skip
        prometheus.find_pods()
        yield release
    release.kubectl("-n", "slotkeeper", "delete", "secret", "scaling-token")


def failures(cluster: WholeCluster, name: str) -> int:
    """How often in a row KEDA got no number for a ScaledObject."""
    health = cluster.get("slotkeeper", f"scaledobject/{name}")["status"].get("health", {})
    return max((int(metric.get("numberOfFailures", 0)) for metric in health.values()), default=0)


def stays(cluster: WholeCluster, name: str, sizes: set[int]) -> None:
    """A Deployment has all of these sizes and no other while KEDA gets no number, FAILURES times in a row."""
    seen = set()

    def failed() -> bool:
        seen.add(int(cluster.get("slotkeeper", f"deployment/{name}")["spec"]["replicas"]))
        assert seen <= sizes
        return failures(cluster, name) >= FAILURES

    eventually(failed, f"{FAILURES} failures of KEDA's scaler", seconds=180)
    assert seen == sizes


def test_a_backlog_brings_workers_from_none_and_its_end_sends_them_away(
    scaled: WholeCluster, database: Database
) -> None:
    a_backlog_is_done_by_all_workers(scaled, database, least=0)


def test_a_worker_is_there_before_the_slot(scaled: WholeCluster, database: Database) -> None:
    at_rest(scaled, database, 0)
    instant: datetime = one(database.connection, "select date_trunc('second', clock_timestamp()) + interval '75 s'")
    schedule = {
        "apiVersion": "slotkeeper.dev/v1beta1",
        "kind": "JobSchedule",
        "metadata": {"name": "nightly"},
        "spec": {"at": [instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")], "task": "noted"},
    }
    scaled.kubectl("-n", "burst", "apply", "-f", "-", given=json.dumps(schedule))
    eventually(lambda: workers(database) == 1, "a worker")
    assert one(database.connection, "select clock_timestamp() < %s", instant), "before the instant"
    began = eventually(
        lambda: one(database.connection, "select max(began_at) from e2e.attempt where schedule = 'burst/nightly'"),
        "the run begun",
    )
    assert began - instant < timedelta(seconds=3)
    scaled.kubectl("-n", "burst", "delete", "jobschedule", "nightly")


def test_a_busy_pool_stays_as_it_is_while_the_database_is_away(scaled: WholeCluster, database: Database) -> None:
    at_rest(scaled, database, 0)
    for _ in range(CONCURRENCY + 5):
        # The second attempts, after the first ones' leases have ended, take no time.
        enqueue(database.connection, "noted", {"first_seconds": 600, "seconds": 0}, namespace="burst")
    eventually(lambda: workers(database) == 2, "two workers")
    assert replicas(scaled) == 2
    with database.away():
        stays(scaled, _BURST, {2})
    eventually(lambda: unfinished(database) == 0, "all done", seconds=180)
    at_rest(scaled, database, 0)


def test_an_empty_pool_gets_one_worker_while_the_database_is_away(scaled: WholeCluster, database: Database) -> None:
    """KEDA takes a fallback for activity."""
    at_rest(scaled, database, 0)
    with database.away():
        stays(scaled, _BURST, {0, 1})
    at_rest(scaled, database, 0)


def test_a_pool_that_nobody_knows_stays_as_it_is(scaled: WholeCluster) -> None:
    """The chart's ScaledObject, of another pool."""
    made = scaled.get("slotkeeper", f"scaledobject/{_BURST}")
    told = json.dumps(made["spec"] | {"scaleTargetRef": {"name": "unknown"}})
    told = told.replace("pools/burst", "pools/unknown").replace('pool=\\"burst\\"', 'pool=\\"unknown\\"')
    metadata = {"name": "unknown", "namespace": "slotkeeper"}
    objects = [_UNKNOWN, {"apiVersion": made["apiVersion"], "kind": made["kind"], "metadata": metadata,
                          "spec": json.loads(told)}]  # fmt: skip
    text = "\n---\n".join(json.dumps(item) for item in objects)
    scaled.kubectl("apply", "-f", "-", given=text)
    try:
        stays(scaled, "unknown", {2})
    finally:
        scaled.kubectl("-n", "slotkeeper", "delete", "scaledobject/unknown", "deployment/unknown")

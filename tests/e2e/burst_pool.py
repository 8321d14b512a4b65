"""The pool `burst` of scaling-values.yaml, which an autoscaler scales: its installation, its work and its size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from release import CHART, HERE, VALUES, install
from whole_cluster import Database, WholeCluster, eventually

from scenario import one
from slotkeeper import enqueue

#: Of scaling-values.yaml.
MOST, CONCURRENCY = 4, 10
NAMESPACE = "burst"


@contextmanager
def installed(cluster: WholeCluster, folder: Path, autoscaling: Mapping[str, Any], **more: Any) -> Iterator[None]:
    """The release with the pool; ``autoscaling`` and ``more`` replace values of the file. Then without it again."""
    values = yaml.safe_load(VALUES.read_text())
    added = yaml.safe_load((HERE / "scaling-values.yaml").read_text())
    pool = added.pop("pool")
    values["workers"]["pools"].append(pool | {"autoscaling": pool["autoscaling"] | autoscaling})
    (folder / "values.yaml").write_text(yaml.safe_dump(values | added | more))
    cluster.new_namespace(NAMESPACE)
    install(cluster, CHART, "-f", str(folder / "values.yaml"))
    yield
    cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")
    install(cluster, CHART)


def workers(database: Database) -> int:
    """Workers of the pool whose lease holds."""
    return int(
        one(
            database.connection,
            "select count(*) from slotkeeper.worker where pool = 'burst' and lease_until > clock_timestamp()",
        )
    )


def replicas(cluster: WholeCluster) -> int:
    """What the Deployment is told to have."""
    return int(cluster.get("slotkeeper", "deployment/slotkeeper-worker-burst")["spec"]["replicas"])


def waiting(database: Database) -> int:
    """Runs that nobody has taken yet."""
    return int(
        one(database.connection, "select count(*) from slotkeeper.job where namespace = 'burst' and status = 'ready'")
    )


def unfinished(database: Database) -> int:
    """Runs without an outcome."""
    return int(
        one(
            database.connection,
            "select count(*) from slotkeeper.job where namespace = 'burst' and status in ('ready', 'running')",
        )
    )


def at_rest(cluster: WholeCluster, database: Database, least: int) -> None:
    """Waits until the pool has its least size."""
    eventually(lambda: workers(database) == least and replicas(cluster) == least, f"{least} workers again", seconds=180)


def a_backlog_is_done_by_all_workers(cluster: WholeCluster, database: Database, least: int) -> None:
    """From the least size to all workers while 2000 runs wait, and back when they are done, each once."""
    at_rest(cluster, database, least)
    since = one(database.connection, "select clock_timestamp()")
    with database.connection.transaction():
        for _ in range(2000):
            enqueue(database.connection, "noted", {"seconds": 0.5}, namespace=NAMESPACE)
    eventually(lambda: workers(database) == MOST, "all workers, while there is a backlog", seconds=120)
    assert waiting(database) > 0
    eventually(lambda: waiting(database) == 0, "the backlog done", seconds=240)
    at_rest(cluster, database, least)
    done = one(
        database.connection,
        "select count(*) from slotkeeper.job where namespace = 'burst' and status = 'done' and created_at >= %s", since,
    )  # fmt: skip
    assert done == 2000

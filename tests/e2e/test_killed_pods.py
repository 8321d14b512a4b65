"""Pods that are killed: a run is taken over in time, and slots go on."""

from __future__ import annotations

from datetime import datetime, timedelta

from load import Load, late_slots, slots
from whole_cluster import Database, WholeCluster, eventually

from scenario import one, rows
from slotkeeper import enqueue

#: Of the pool in values.yaml.
LEASE, POLL = timedelta(seconds=10), timedelta(seconds=1)
CONTROLLER = "app.kubernetes.io/component=controller"
#: Between the reap and the handler's first statement, on a machine that is also the cluster.
START = timedelta(seconds=1)


def test_a_deleted_worker_pods_run_is_taken_over(settled: WholeCluster, database: Database) -> None:
    connection = database.connection
    run = enqueue(connection, "noted", {"first_seconds": 600}, namespace="e2e").id
    (first,) = eventually(
        lambda: rows(connection, "select * from e2e.attempt where run = %s", run), "the first attempt begun"
    )
    deleted_at: datetime = one(connection, "select clock_timestamp()")
    settled.kubectl("-n", "slotkeeper", "delete", "pod", first.pod, "--force", "--grace-period=0")

    # The last sign of life is what the lease counts from; the dying process may give one more.
    lease_until: datetime = deleted_at

    def second_attempt() -> list[object]:
        nonlocal lease_until
        seen = one(connection, "select lease_until from slotkeeper.worker where name = %s", first.pod)
        lease_until = max(lease_until, seen or lease_until)
        return rows(connection, "select * from e2e.attempt where run = %s and attempt = 2", run)

    second: list[object] = eventually(second_attempt, "a second attempt begun")
    began_at: datetime = second[0].began_at  # type: ignore[attr-defined]
    assert second[0].pod != first.pod  # type: ignore[attr-defined]
    assert lease_until <= began_at <= lease_until + POLL + START, (deleted_at, lease_until, began_at)
    # What is promised, counted from the death; the kubelet gives the process up to two seconds.
    assert began_at - deleted_at <= LEASE + POLL + timedelta(seconds=2) + START
    assert [
        row.kind for row in rows(connection, "select kind from slotkeeper.run_error where run = %s", run)
    ] == ["LeaseLost"]  # fmt: skip
    eventually(
        lambda: one(connection, "select status = 'done' from slotkeeper.job where id = %s", str(run)), "the run done"
    )


def test_slots_go_on_without_a_controller_pod(settled: WholeCluster, database: Database, load: Load) -> None:
    """Each of the two is deleted by force, the leader with them, once the first one's successor is at work."""
    for pod in settled.pods("slotkeeper", CONTROLLER):
        eventually(lambda: tickers(settled, database) == 2, "two controllers make slots")
        settled.kubectl("-n", "slotkeeper", "delete", "pod", pod, "--force", "--grace-period=0")
    eventually(lambda: tickers(settled, database) == 2, "two controllers again")
    assert load.finished() == []


def tickers(cluster: WholeCluster, database: Database) -> int:
    """How many controller pods have a ticker's connection; a killed one's may stay open for a while."""
    found = rows(
        database.connection,
        "select distinct host(client_addr) as address from pg_stat_activity"
        " where application_name = 'slotkeeper ticker'",
    )
    pods = cluster.get("slotkeeper", "pods", "-l", CONTROLLER)["items"]
    living = {pod["status"].get("podIP") for pod in pods if "deletionTimestamp" not in pod["metadata"]}
    return len({row.address for row in found} & living)


def test_late_slots_would_be_seen(settled: WholeCluster, database: Database) -> None:
    """The question itself: with the pool away for a while, it names the slots that began late."""
    connection = database.connection
    since: datetime = one(connection, "select clock_timestamp()")
    deployment = "deployment/slotkeeper-worker-noted"
    settled.kubectl("-n", "slotkeeper", "scale", deployment, "--replicas=0")
    eventually(
        lambda: one(connection, "select extract(epoch from clock_timestamp() - %s) > 12", since), "12 s have passed"
    )
    settled.kubectl("-n", "slotkeeper", "scale", deployment, "--replicas=2")
    settled.settled("slotkeeper")
    until: datetime = one(connection, "select clock_timestamp()")
    eventually(lambda: late_slots(database, slots(since, until)), "late slots", seconds=30)

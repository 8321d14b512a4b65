"""Alerts that fire: a real Prometheus scrapes the release's pods by the chart's PodMonitors and evaluates its rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from monitoring import Prometheus
from release import HERE, rendered
from whole_cluster import Database, WholeCluster, eventually

from scenario import one

OVERDUE, NEVER = "SlotkeeperScheduleOverdue", "SlotkeeperScheduleNeverSucceeded"
#: Due again 35 s after the slot that succeeded. The controllers tell what they read up to 15 s before.
_SCHEDULE: dict[str, Any] = {
    "apiVersion": "slotkeeper.dev/v1beta1",
    "kind": "JobSchedule",
    "spec": {"every": {"periodSeconds": 10}, "task": "unless_broken", "catchUp": {"graceSeconds": 15}},
}


@pytest.fixture(scope="module")
def prometheus(release: WholeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    release.settled("slotkeeper")
    objects = rendered(release, "-f", str(HERE / "alert-values.yaml"))
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), release, objects)
    try:
        server.scrapes_everything(len(release.pods("slotkeeper", "app.kubernetes.io/name=slotkeeper")))
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def schedules(release: WholeCluster) -> Iterator[None]:
    """``watched/invoices``, which the pool serves, and ``unserved/reports``, which nobody does."""
    for namespace, name in (("watched", "invoices"), ("unserved", "reports")):
        release.new_namespace(namespace)
        schedule = _SCHEDULE | {"metadata": {"name": name}}
        release.kubectl("-n", namespace, "apply", "-f", "-", given=json.dumps(schedule))
    yield
    release.kubectl("delete", "namespace", "watched", "unserved", "--timeout=120s")


def firing(prometheus: Prometheus, name: str, schedule: str) -> Any:
    alert = prometheus.alerts(name).get(schedule)
    return alert if alert and alert["state"] == "firing" else None


def said(alert: Any) -> tuple[Any, Any]:
    """Its labels and links, without the words for people."""
    links = {name: text for name, text in alert["annotations"].items() if name not in ("summary", "description")}
    return alert["labels"], links


def test_a_schedule_that_stops_succeeding_is_told_until_it_succeeds_again(
    prometheus: Prometheus, schedules: None, database: Database
) -> None:
    told = 'slotkeeper:schedule_last_success:timestamp_seconds{namespace="watched",schedule="invoices"}'
    eventually(lambda: prometheus.value(told), "its success is known to Prometheus")
    assert not prometheus.alerts(OVERDUE)

    database.connection.execute("insert into e2e.broken values ('watched/invoices')")
    alert = eventually(lambda: firing(prometheus, OVERDUE, "watched/invoices"), "the alert fires")
    assert said(alert) == (
        {"alertname": OVERDUE, "namespace": "watched", "schedule": "invoices", "severity": "warning", "team": "billing",
         "job": "slotkeeper/slotkeeper-controller"},
        {"runbook_url": f"https://runbooks.example/{OVERDUE}.md"},
    )  # fmt: skip
    assert "watched/invoices" in alert["annotations"]["summary"]
    # None of the ten schedules that went on is told.
    assert set(prometheus.alerts(OVERDUE)) == {"watched/invoices"}
    due: datetime = one(
        database.connection,
        "select success_due from slotkeeper.health where namespace = 'watched' and name = 'invoices'",
    )
    assert due <= datetime.fromisoformat(alert["activeAt"])

    database.connection.execute("delete from e2e.broken")
    eventually(lambda: not prometheus.alerts(OVERDUE), "the alert ends with a success")


def test_a_schedule_that_nobody_serves_is_told_until_it_is_deleted(
    prometheus: Prometheus, schedules: None, release: WholeCluster, database: Database
) -> None:
    """Not one run of it fails: what is told is that no success came."""
    alert = eventually(lambda: firing(prometheus, NEVER, "unserved/reports"), "the alert fires")
    assert said(alert) == (
        {"alertname": NEVER, "namespace": "unserved", "schedule": "reports", "severity": "warning", "team": "billing",
         "job": "slotkeeper/slotkeeper-controller"},
        {"runbook_url": f"https://runbooks.example/{NEVER}.md"},
    )  # fmt: skip
    failed = one(
        database.connection, "select count(*) from slotkeeper.job where namespace = 'unserved' and attempts > 0"
    )
    assert failed == 0
    assert set(prometheus.alerts(NEVER)) == {"unserved/reports"}

    release.kubectl("-n", "unserved", "delete", "jobschedule", "reports")
    eventually(lambda: not prometheus.alerts(NEVER), "the alert ends with the schedule")

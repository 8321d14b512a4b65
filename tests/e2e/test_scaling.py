"""A plain HorizontalPodAutoscaler scales a pool by our own metrics API: for a backlog, and before a burst of slots."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from burst_pool import (
    CONCURRENCY,
    MOST,
    a_backlog_is_done_by_all_workers,
    at_rest,
    installed,
    replicas,
    waiting,
    workers,
)
from whole_cluster import Database, WholeCluster, eventually

from scenario import one
from slotkeeper import enqueue

_METRIC = (
    "/apis/external.metrics.k8s.io/v1beta1/namespaces/slotkeeper/slotkeeper_workers_wanted?labelSelector=pool%3Dburst"
)
_SCHEDULE = """
apiVersion: slotkeeper.dev/v1beta1
kind: JobSchedule
metadata: {{name: {name}}}
spec:
  {when}
  task: noted
  payload: {{seconds: {seconds}}}
  overlapPolicy: {overlap}
  catchUp: {{policy: {catch_up}}}
---
"""


@pytest.fixture(scope="module")
def scaled(release: WholeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeCluster]:
    """The release with the pool `burst`, which has one worker while nothing is to do."""
    with installed(release, tmp_path_factory.mktemp("scaling"), {}):
        release.settled("slotkeeper")
        eventually(lambda: wanted(release) == 0, "the metric is served, and nothing is wanted")
        yield release


def wanted(cluster: WholeCluster) -> int | None:
    """What the HPA reads; None while the API does not answer."""
    answer = cluster.kubectl("get", "--raw", _METRIC, check=False)
    if not answer.startswith("{"):
        return None
    (item,) = json.loads(answer)["items"]
    return int(item["value"])


def test_a_backlog_brings_every_worker_and_its_end_sends_them_away(scaled: WholeCluster, database: Database) -> None:
    a_backlog_is_done_by_all_workers(scaled, database, least=1)


@pytest.mark.long
def test_workers_are_there_before_a_burst_of_slots(scaled: WholeCluster, database: Database) -> None:
    """Forty schedules of one instant, seen by their next slot alone: no run of them exists yet."""
    at_rest(scaled, database, 1)
    instant: datetime = one(database.connection, "select date_trunc('second', clock_timestamp()) + interval '75 s'")
    told = instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    scaled.kubectl(
        "-n", "burst", "apply", "-f", "-",
        given="".join(
            _SCHEDULE.format(name=f"burst-{n}", when=f'at: ["{told}"]', seconds=3, overlap="Skip", catch_up="RunOnce")
            for n in range(MOST * CONCURRENCY)
        ),
    )  # fmt: skip
    eventually(lambda: workers(database) == MOST, "all workers", seconds=120)
    assert one(database.connection, "select clock_timestamp() < %s", instant), "before the instant"
    eventually(
        lambda: waiting(database) == 0 and one(database.connection, "select clock_timestamp() > %s", instant), "done"
    )
    began = one(
        database.connection,
        "select max(a.began_at) from e2e.attempt a where a.schedule like 'burst/burst-%%' and a.slot = %s", instant,
    )  # fmt: skip
    assert began - instant < timedelta(seconds=3), "not one of them had to wait for another's end"
    scaled.kubectl("-n", "burst", "delete", "jobschedules", "--all")


@pytest.mark.long
def test_a_constant_backlog_does_not_run_away(scaled: WholeCluster, database: Database) -> None:
    """Fifteen runs at a time want two workers, for as long as it lasts."""
    at_rest(scaled, database, 1)
    for _ in range(CONCURRENCY + 5):
        enqueue(database.connection, "noted", {"seconds": 45}, namespace="burst")
    eventually(lambda: workers(database) == 2, "two workers")
    seen = set()

    def over() -> bool:
        seen.add(replicas(scaled))
        return bool(one(database.connection, "select not exists (select from slotkeeper.job where namespace = 'burst'"
                        " and status in ('ready', 'running'))"))  # fmt: skip

    eventually(over, "all done", seconds=120)
    assert max(seen) == 2


@pytest.mark.long
def test_a_hundred_waiting_slots_of_one_schedule_want_one_worker(scaled: WholeCluster, database: Database) -> None:
    at_rest(scaled, database, 1)
    scaled.kubectl(
        "-n", "burst", "apply", "-f", "-",
        given=_SCHEDULE.format(
            name="chain", when="every: {periodSeconds: 3600}", seconds=60, overlap="Queue", catch_up="RunAll"
        ),
    )  # fmt: skip
    scaled.kubectl("-n", "burst", "wait", "--for=condition=Ready", "jobschedule/chain", "--timeout=60s")
    # As after five days away.
    database.connection.execute(
        "update slotkeeper.schedule set watermark = watermark - interval '100 hours', next_due = clock_timestamp(),"
        " watermark_highest = watermark_highest - interval '100 hours' where name = 'chain'"
    )
    eventually(lambda: waiting(database) >= 99, "a hundred slots, all but one waiting")
    eventually(lambda: wanted(scaled) == 1, "one worker is wanted", seconds=30)
    assert wanted(scaled) == 1
    assert replicas(scaled) == 1
    scaled.kubectl("-n", "burst", "delete", "jobschedule", "chain")
    eventually(lambda: waiting(database) == 0, "the waiting ones cancelled")

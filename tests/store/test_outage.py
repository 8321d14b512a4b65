"""The outage story: away from :02 to :52 of a quarter-hourly schedule, so that three slots are missed.

The same rule whether the controller or all workers were away: through a real spec, the ticker's decision and
the stored rows, ended at the database's real now.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

import scenario
from scenario import add_worker, one, reap, rows
from slotkeeper.decisions import decide_due
from slotkeeper.operator.accept import Accepted, accept
from slotkeeper.operator.rows import schedule_row
from slotkeeper.store import schedules
from slotkeeper.store.ticker import DueSchedule, materialise

Connection = psycopg.Connection[Any]
MINUTE = timedelta(minutes=1)
POLICIES = ("RunOnce", "RunAll", "Skip")
OVERLAPS = ("Skip", "Queue", "Replace", "Allow")
STARTED = ("nothing", "running", "between")
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def connection(shared_dsn: str) -> Iterator[Connection]:
    with scenario.connect(shared_dsn) as opened:
        yield opened


@dataclass
class Story:
    """A schedule every 15 minutes whose last three slots are 37, 22 and 7 minutes ago."""

    connection: Connection
    namespace: str
    verdict: Accepted
    now: datetime
    id: int
    owner: int
    watermark: datetime

    @property
    def slots(self) -> list[datetime]:
        return [self.now - minutes * MINUTE for minutes in (37, 22, 7)]

    def tick(self, moment: datetime) -> None:
        due = DueSchedule(self.id, self.owner, 1, self.watermark, moment)
        decided = decide_due(due, self.verdict.timing)
        with self.connection.transaction():
            assert materialise(self.connection, [decided]) == set()
        self.watermark = decided.until

    def controller_away(self) -> None:
        self.tick(self.now)

    def workers_away(self) -> None:
        for slot in self.slots:
            self.tick(slot + timedelta(seconds=1))
        reap(self.connection)

    def end(self, away: str) -> None:
        """Whoever was away is back."""
        if away == "workers":
            self.workers_away()
        else:
            self.controller_away()

    def outcomes(self) -> Counter[tuple[str, str | None]]:
        """(status, reason) of the missed slots, counted."""
        found = rows(
            self.connection,
            "select status, reason, sum(slots)::int as slots from slotkeeper.job where namespace = %s and slot > %s"
            " group by 1, 2", self.namespace, self.now - 50 * MINUTE,
        )  # fmt: skip
        return Counter({(row.status, row.reason): row.slots for row in found})


def begin(connection: Connection, policy: str, overlap: str, *, started: str = "nothing", **spec: Any) -> Story:
    now: datetime = one(connection, "select date_trunc('second', clock_timestamp())")
    namespace = f"story-{next(_numbers)}"
    verdict = accept(
        {
            "apiVersion": "slotkeeper.dev/v1beta1", "kind": "JobSchedule",
            "metadata": {"name": "report", "namespace": namespace, "uid": "u", "generation": 1, "resourceVersion": "1"},
            "spec": {
                "every": {"periodSeconds": 900, "anchorTime": (now - timedelta(days=30, minutes=7)).isoformat()},
                "task": "report", "overlapPolicy": overlap,
                **spec, "catchUp": {"policy": policy, **spec.get("catchUp", {})},
            },
        }
    )  # fmt: skip
    assert isinstance(verdict, Accepted), verdict
    watermark = now - 55 * MINUTE
    row = schedule_row("default", verdict, moment=watermark, since=watermark, new_uid=True)
    with connection.transaction():
        schedules.store(connection, [row])
    stored = rows(connection, "select id, owner from slotkeeper.schedule where namespace = %s", namespace)[0]
    story = Story(connection, namespace, verdict, now, stored.id, stored.owner, watermark)
    story.tick(now - 51 * MINUTE)  # the slot of :00, on time
    connection.execute("update slotkeeper.run set start_by = null where owner = %s", (stored.owner,))
    worker = add_worker(connection, namespaces=[namespace])
    (run,) = worker.claim()
    match started:
        case "nothing":
            worker.finish(run)
        case "between":
            worker.finish(run, "failed", reason="ValueError", seconds=3600)
    return story


def expected(policy: str, overlap: str, started: str, away: str) -> dict[tuple[str, str | None], int]:
    if overlap == "Skip" and started != "nothing":
        # On time, each slot met the started run. Later, in one decision, those that no policy would run meet nothing.
        missed = {"RunAll": {"Overlap": 3}, "RunOnce": {"Superseded": 2, "Overlap": 1}, "Skip": {"Late": 3}}
        reasons = {"Overlap": 3} if away == "workers" else missed[policy]
        return {("superseded" if name == "Superseded" else "skipped", name): count for name, count in reasons.items()}
    return {
        "RunOnce": {("superseded", "Superseded"): 2, ("ready", None): 1},
        "RunAll": {("ready", None): 3},
        "Skip": {("skipped", "Late"): 3},
    }[policy]


@pytest.mark.parametrize("away", ["controller", "workers"])
@pytest.mark.parametrize("started", STARTED)
@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_becomes_of_the_missed_slots(
    connection: Connection, policy: str, overlap: str, started: str, away: str
) -> None:
    story = begin(connection, policy, overlap, started=started)
    story.end(away)
    assert story.outcomes() == expected(policy, overlap, started, away)


@pytest.mark.parametrize("away", ["controller", "workers"])
@pytest.mark.parametrize(("policy", "runs"), [("RunOnce", 1), ("RunAll", 3), ("Skip", 0)])
def test_catching_up_runs_the_slots_one_after_another_oldest_first(
    connection: Connection, policy: str, runs: int, away: str
) -> None:
    story = begin(connection, policy, "Skip")
    story.end(away)
    worker = add_worker(connection, namespaces=[story.namespace])
    seen = []
    while claimed := worker.claim():
        assert len(claimed) == 1, "two runs of one schedule at a time"
        seen.append(claimed[0].slot)
        worker.finish_batch(claimed)
    assert seen == story.slots[3 - runs :]


@pytest.mark.parametrize("away", ["controller", "workers"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_starting_deadline_leaves_only_the_slots_in_time(connection: Connection, policy: str, away: str) -> None:
    """20 minutes: of the slots 37, 22 and 7 minutes ago only the last can still start."""
    story = begin(connection, policy, "Skip", startingDeadlineSeconds=1200)
    story.end(away)
    too_late = ("skipped", "StartDeadlineExceeded")
    if policy == "Skip":
        assert story.outcomes() == {("skipped", "Late"): 3}
    elif policy == "RunOnce" and away == "workers":  # each was superseded while it could still start
        assert story.outcomes() == {("superseded", "Superseded"): 2, ("ready", None): 1}
    else:
        assert story.outcomes() == {too_late: 2, ("ready", None): 1}


@pytest.mark.parametrize("away", ["controller", "workers"])
def test_run_all_keeps_the_newest_max_runs(connection: Connection, away: str) -> None:
    story = begin(connection, "RunAll", "Queue", catchUp={"maxRuns": 2})
    story.end(away)
    assert story.outcomes() == {("skipped", "CatchUpLimit"): 1, ("ready", None): 2}
    kept = rows(connection, "select slot from slotkeeper.run where owner = %s order by slot", story.owner)
    assert [row.slot for row in kept] == story.slots[1:]


@pytest.mark.parametrize("away", ["controller", "workers"])
@pytest.mark.parametrize("started", ["running", "between"])
@pytest.mark.parametrize("policy", ["RunOnce", "RunAll"])
def test_replace_ends_the_started_run_once_something_follows(
    connection: Connection, policy: str, started: str, away: str
) -> None:
    story = begin(connection, policy, "Replace", started=started)
    story.end(away)
    old = rows(
        connection,
        "select status, reason from slotkeeper.job where namespace = %s order by slot limit 1",
        story.namespace,
    )[0]
    assert tuple(old) == ("running" if started == "running" else "cancelled", "Replaced")
    claimed = add_worker(connection, namespaces=[story.namespace]).claim()
    assert len(claimed) == (0 if started == "running" else 1)


def test_a_superseding_row_takes_over_the_place_in_the_queue(connection: Connection) -> None:
    """Else a busy queue would starve a schedule whose period is shorter than the wait."""
    story = begin(connection, "RunOnce", "Skip")
    first, second, third = story.slots
    story.tick(first + MINUTE)
    place = one(connection, "select run_at from slotkeeper.run where owner = %s", story.owner)
    story.tick(second + MINUTE)
    story.tick(third + MINUTE)
    waiting = rows(connection, "select slot, run_at from slotkeeper.run where owner = %s", story.owner)
    assert [tuple(row) for row in waiting] == [(third, place)]

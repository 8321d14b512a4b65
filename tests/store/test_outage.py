"""The outage story: away from 10:07 to 10:52 of a quarter-hourly schedule, so that three slots are missed.

Each cell of docs/catch-up.md, through a real spec, the ticker's decision and the stored rows. The story ends at the
database's real now: what would have happened before is decided with an earlier moment.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import scenario
from outages import AWAYS, BEFORE, DEADLINE, GRACE, MAX_RUNS, OVERLAPS, POLICIES, SPREAD, Case, cases, page
from scenario import Worker, add_worker, one, reap, rows
from slotkeeper.decisions import decide_due
from slotkeeper.operator.accept import Accepted, accept
from slotkeeper.operator.rows import schedule_row
from slotkeeper.store import schedules
from slotkeeper.store.ticker import DueSchedule, materialise
from slotkeeper.timetable import spread_offset

Connection = psycopg.Connection[Any]
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
#: Minutes before the end of the outage.
SLOTS = {"A": 52, "B": 37, "C": 22, "D": 7}
CASES = list(cases())
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def connection(shared_dsn: str) -> Iterator[Connection]:
    with scenario.connect(shared_dsn) as opened:
        yield opened


@dataclass
class Story:
    """A schedule, the worker that runs its slot A, and who decides what when."""

    connection: Connection
    namespace: str
    verdict: Accepted
    now: datetime
    id: int
    owner: int
    watermark: datetime
    worker: Worker
    running: list[Any] = field(default_factory=list)

    def slot(self, letter: str) -> datetime:
        return self.now - SLOTS[letter] * MINUTE

    def letters(self, slots: list[datetime]) -> list[str]:
        return sorted(letter for letter in SLOTS if self.slot(letter) in slots)

    def tick(self, moment: datetime) -> None:
        """A ticker looks, if the schedule is due by then."""
        due = DueSchedule(self.id, self.owner, 1, self.watermark, moment)
        decided = decide_due(due, self.verdict.timing)
        with self.connection.transaction():
            assert materialise(self.connection, [decided]) == set()
        self.watermark = decided.until

    def reap(self, moment: datetime) -> None:
        """A reaper looks at an earlier moment: what could still start then is not late."""
        shift = "update slotkeeper.run set start_by = start_by + %s where owner = %s and start_by is not null"
        self.connection.execute(shift, (self.now - moment, self.owner))
        reap(self.connection)
        self.connection.execute(shift, (moment - self.now, self.owner))

    def lose_the_worker(self) -> None:
        self.worker.expire()
        self.running = []

    def workers_away(self) -> None:
        """The controller goes on: each slot is decided when it is due, each second somebody looks for late ones."""
        self.lose_the_worker()
        for letter in "BCD":
            due = self.slot(letter) + self.verdict.timing.offset + SECOND
            self.reap(due)
            self.tick(due)
        self.reap(self.now)

    def all_back(self, away: str, *, reaper_first: bool) -> None:
        if away == "workers":
            self.workers_away()
            return
        if away == "both":
            self.lose_the_worker()
        looks = [lambda: reap(self.connection), lambda: self.tick(self.now)]
        for look in looks if reaper_first else reversed(looks):
            look()
        reap(self.connection)

    def drain(self) -> str:
        """What runs, in order: ``A then C and D``; everything that runs at one time ends before the next look."""
        for run in self.running:  # its worker is told at its next beat, and stops
            if one(self.connection, "select state = 2 from slotkeeper.run where id = %s", run.id):
                assert self.worker.finish(run, "failed", reason="Cancelled").became == "cancelled"
                self.running = []
        fresh, seen = add_worker(self.connection, namespaces=[self.namespace]), []
        while group := [(self.worker, run) for run in self.running] + [(fresh, run) for run in fresh.claim()]:
            seen.append(" and ".join(self.letters([run.slot for _, run in group])))
            for worker, run in group:
                worker.finish(run)
            self.running = []
        return " then ".join(seen) or "none"

    def did_not_run(self) -> list[str]:
        """``B Superseded`` and so on, one for each slot; every slot is on record exactly once."""
        found = rows(
            self.connection,
            "select slot, slots, status, reason from slotkeeper.job where namespace = %s order by slot", self.namespace,
        )  # fmt: skip
        told = []
        for row in found:
            covered = [row.slot + number * 15 * MINUTE for number in range(row.slots)]
            told += [(letter, row.status, row.reason) for letter in self.letters(covered)]
        assert sorted(letter for letter, _, _ in told) == list(SLOTS)
        statuses = {"Superseded": "superseded", "Replaced": "cancelled"}
        assert all(reason is None or status == statuses.get(reason, "skipped") for _, status, reason in told)
        return [f"{letter} {reason}" for letter, _, reason in sorted(told) if reason is not None]

    def missed(self) -> int:
        missed: int = one(self.connection, "select missed from slotkeeper.health where namespace = %s", self.namespace)
        return missed


def begin(
    connection: Connection, policy: str, overlap: str, *, before: str = "ended", spread: bool = False, **spec: Any
) -> Story:
    """The schedule before the outage: A has run, or runs."""
    now: datetime = one(connection, "select date_trunc('second', clock_timestamp())")
    # One whose share of the spread is what the table says.
    namespace = next(
        name for name in (f"story-{number}" for number in _numbers)
        if spread_offset(f"{name}/report", 2 * SPREAD).seconds == SPREAD
    ) if spread else f"story-{next(_numbers)}"  # fmt: skip
    verdict = accept(
        {
            "apiVersion": "slotkeeper.dev/v1beta1", "kind": "JobSchedule",
            "metadata": {"name": "report", "namespace": namespace, "uid": "u", "generation": 1, "resourceVersion": "1"},
            "spec": {
                "every": {"periodSeconds": 900, "anchorTime": (now - timedelta(days=30, minutes=7)).isoformat()},
                "task": "report", "overlapPolicy": overlap, "spreadSeconds": 2 * SPREAD if spread else 0,
                "catchUp": {"policy": policy, "graceSeconds": GRACE, "maxRuns": MAX_RUNS}, **spec,
            },
        }
    )  # fmt: skip
    assert isinstance(verdict, Accepted), verdict
    watermark = now - 55 * MINUTE
    row = schedule_row("default", verdict, moment=watermark, since=watermark, new_uid=True)
    with connection.transaction():
        schedules.store(connection, [row])
    stored = rows(connection, "select id, owner from slotkeeper.schedule where namespace = %s", namespace)[0]
    worker = add_worker(connection, namespaces=[namespace])
    story = Story(connection, namespace, verdict, now, stored.id, stored.owner, watermark, worker)
    story.tick(story.slot("A") + verdict.timing.offset + SECOND)
    connection.execute("update slotkeeper.run set start_by = null where owner = %s", (stored.owner,))
    (run,) = worker.claim()
    if before == "ended":
        worker.finish(run)
    else:
        story.running = [run]
    return story


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_runs_and_what_is_on_record(connection: Connection, case: Case) -> None:
    """Who looks first when both come back, reaper or ticker, must not matter."""
    for reaper_first in (True, False) if case.away == "both" else (True,):
        spec = {"startingDeadlineSeconds": DEADLINE} if case.deadline else {}
        story = begin(connection, case.policy, case.overlap, before=case.before, spread=case.spread, **spec)
        story.all_back(case.away, reaper_first=reaper_first)
        assert story.missed() == len([told for told in case.did_not_run if not told.startswith("A")])
        assert story.drain() == case.runs
        assert story.did_not_run() == case.did_not_run


def test_the_table_has_every_combination_once() -> None:
    told = [(case.policy, case.overlap, case.away, case.before, case.deadline, case.spread) for case in CASES]
    product = itertools.product(POLICIES, OVERLAPS, AWAYS, BEFORE, (False, True), (False, True))
    assert sorted(told) == sorted(product)


def test_the_same_missed_slots_run_whoever_was_away() -> None:
    ran: dict[tuple[object, ...], set[str]] = {}
    for case in CASES:
        key = (case.policy, case.overlap, case.before, case.deadline, case.spread)
        ran.setdefault(key, set()).add(" ".join(letter for letter in case.runs if letter in "BCD"))
    assert all(len(found) == 1 for found in ran.values())


def test_the_page_is_the_table() -> None:
    written = (Path(__file__).parents[2] / "docs" / "catch-up.md").read_text(encoding="utf-8")
    assert written == page(), "run python tests/outages.py > docs/catch-up.md"


def test_a_superseding_row_takes_over_the_place_in_the_queue(connection: Connection) -> None:
    """Else a busy queue would starve a schedule whose period is shorter than the wait."""
    story = begin(connection, "RunOnce", "Skip")
    story.tick(story.slot("B") + MINUTE)
    place = one(connection, "select run_at from slotkeeper.run where owner = %s", story.owner)
    story.tick(story.slot("C") + MINUTE)
    story.tick(story.slot("D") + MINUTE)
    waiting = rows(connection, "select slot, run_at from slotkeeper.run where owner = %s", story.owner)
    assert [tuple(row) for row in waiting] == [(story.slot("D"), place)]


@pytest.mark.parametrize(("away", "trigger"), [("controller", "CatchUp"), ("workers", "Schedule")])
def test_the_trigger_says_whether_the_row_was_made_late(connection: Connection, away: str, trigger: str) -> None:
    story = begin(connection, "RunOnce", "Skip")
    story.all_back(away, reaper_first=True)
    made = "select trigger from slotkeeper.job where namespace = %s and slot = %s"
    assert one(connection, made, story.namespace, story.slot("D")) == trigger

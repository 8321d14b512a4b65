"""The fold of outcomes into schedule_state, and the view `health`, which must say the same before it and after."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import scenario
from scenario import Schedule, Worker, add_schedule, add_worker, fold, health, one, reap, records, requeue, rows
from slotkeeper.store.ticker import DecidedSchedule, materialise
from slotkeeper.timetable import Plan, SkippedSlots

Connection = psycopg.Connection[Any]
MINUTE = timedelta(minutes=1)
START = datetime(2020, 1, 1, 12, tzinfo=UTC)
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def connection(shared_dsn: str) -> Iterator[Connection]:
    with scenario.connect(shared_dsn) as opened:
        yield opened


class History:
    """One schedule that is told step by step: what the tests below say about it is said in these words."""

    def __init__(self, connection: Connection) -> None:
        fold(connection)
        self.connection = connection
        namespace = f"history-{next(_numbers)}"
        self.schedule: Schedule = add_schedule(
            connection, namespace, namespace=namespace, overlap="Queue", backoff=(0, 0)
        )
        self.worker: Worker = add_worker(connection, namespaces=[namespace])
        self.name = namespace
        self.last_slot = START
        self.dead: list[int] = []

    def slot(self) -> None:
        self.last_slot += MINUTE
        assert self.schedule.materialise([self.last_slot])

    def run(self, *kinds: str) -> None:
        self.slot()
        for kind in kinds:
            (run,) = self.worker.claim()
            self.worker.finish(run, kind, reason="ValueError")
            if kind == "fatal":
                self.dead.append(run.id)

    def done(self) -> None:
        self.run("done")

    def died(self) -> None:
        self.run("fatal")

    def retried(self) -> None:
        self.run("failed", "done")

    def skipped(self) -> None:
        first, self.last_slot = self.last_slot + MINUTE, self.last_slot + 3 * MINUTE
        skipped = SkippedSlots(first, self.last_slot, 3, "Late")
        decided = DecidedSchedule(
            self.schedule.id, 1, self.schedule.watermark, self.last_slot, None, None, Plan((), (skipped,))
        )
        assert materialise(self.connection, [decided]) == set()
        self.schedule.watermark = self.last_slot

    def superseded(self) -> None:
        self.slot()
        self.done()

    def too_late(self) -> None:
        self.slot()
        self.connection.execute(
            "update slotkeeper.run set start_by = %s where owner = %s", (START, self.schedule.owner)
        )
        reap(self.connection)

    def requeued(self) -> None:
        assert requeue(self.connection, self.dead.pop()) != {}
        (run,) = self.worker.claim()
        self.worker.finish(run)

    def requeued_and_waiting(self) -> None:
        assert requeue(self.connection, self.dead.pop()) != {}

    def purged(self) -> None:
        self.connection.execute(
            "update slotkeeper.run_dead set died_at = died_at - interval '1 year' where id = %s", (self.dead.pop(),)
        )
        self.connection.execute("update slotkeeper.fleet set retention_at = 'epoch'")
        self.connection.execute("select slotkeeper.retain_v1(1000)")

    def triggered(self, kind: str = "fatal") -> None:
        assert one(self.connection, "select slotkeeper.trigger_v1(%s, %s)", self.schedule.id, f"k{next(_numbers)}")
        (run,) = self.worker.claim()
        self.worker.finish(run, kind)

    def cancelled(self) -> None:
        self.slot()
        scenario.cancel(self.connection, self.schedule.runs()[0]["id"])

    def folded(self) -> None:
        fold(self.connection)

    def health(self) -> dict[str, Any]:
        return health(self.connection)[self.name]


H = History
HISTORIES: dict[str, list[Callable[[History], None]]] = {
    "nothing": [],
    "one success": [H.done],
    "dead after the success": [H.done, H.died, H.died],
    "dead before the success": [H.died, H.died, H.done],
    "dead on both sides": [H.died, H.done, H.died],
    "a retry": [H.retried],
    "skipped before and after": [H.skipped, H.done, H.skipped],
    "skipped, then superseded": [H.skipped, H.superseded],
    "superseded, then skipped": [H.superseded, H.skipped],
    "too late": [H.done, H.too_late],
    "too late, and again": [H.too_late, H.done, H.too_late, H.too_late],
    "dead, requeued, done": [H.died, H.requeued],
    "dead, requeued, waiting": [H.done, H.died, H.requeued_and_waiting],
    "dead and purged": [H.done, H.died, H.died, H.purged],
    "manual runs die": [H.done, H.triggered, H.triggered],
    "a manual run succeeds": [H.died, lambda h: h.triggered("done")],
    "cancelled": [H.done, H.cancelled],
}


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("cut", ["at the end", "after each step", "in the middle", "one by one"])
def test_health_says_the_same_before_the_fold_and_after(connection: Connection, name: str, cut: str) -> None:
    history = History(connection)
    steps = HISTORIES[name]
    for number, step in enumerate(steps):
        step(history)
        if cut == "after each step" or (cut == "in the middle" and number == len(steps) // 2):
            _folds_to_the_same(history, 20_000)
    _folds_to_the_same(history, 1 if cut == "one by one" else 20_000)


def _folds_to_the_same(history: History, limit: int) -> None:
    before = history.health()
    while fold(history.connection, limit):
        assert history.health() == before
    assert history.health() == before
    assert one(history.connection, "select count(*) from slotkeeper.state_delta") == 0


@pytest.mark.parametrize(
    ("name", "dead", "consecutive", "missed", "last_skip"),
    [
        ("nothing", 0, 0, 0, None),
        ("one success", 0, 0, 0, None),
        ("dead after the success", 2, 2, 0, None),
        ("dead before the success", 2, 0, 0, None),
        ("dead on both sides", 2, 1, 0, None),
        ("skipped before and after", 0, 0, 3, (7, "Late")),
        ("skipped, then superseded", 0, 0, 0, (4, "Superseded")),
        ("superseded, then skipped", 0, 0, 3, (5, "Late")),
        ("too late", 0, 0, 1, (2, "StartDeadlineExceeded")),
        ("dead, requeued, done", 0, 0, 0, None),
        ("dead, requeued, waiting", 0, 0, 0, None),
        ("dead and purged", 1, 1, 0, None),
        ("manual runs die", 2, 2, 0, None),
        ("a manual run succeeds", 1, 0, 0, None),
        ("cancelled", 0, 0, 0, None),
    ],
)
def test_what_health_says(
    connection: Connection, name: str, dead: int, consecutive: int, missed: int, last_skip: tuple[int, str] | None
) -> None:
    history = History(connection)
    for step in HISTORIES[name]:
        step(history)
    said = history.health()
    assert (said["dead_runs"], said["consecutive_dead"], said["missed"]) == (dead, consecutive, missed)
    assert (said["last_skip_slot"], said["last_skip_reason"]) == (
        (START + last_skip[0] * MINUTE, last_skip[1]) if last_skip else (None, None)
    )


def test_the_counters_and_the_last_outcomes(connection: Connection) -> None:
    history = History(connection)
    for step in (H.done, H.retried, H.died, H.skipped, H.superseded, H.died):
        step(history)
    fold(connection)
    state = records(connection, "select * from slotkeeper.schedule_state where schedule = %s", history.schedule.id)[0]
    assert (state["done_count"], state["dead_count"], state["skipped_count"]) == (3, 2, 4)
    assert (state["last_success_slot"], state["last_failure_slot"]) == (history.last_slot - MINUTE, history.last_slot)
    assert (state["last_slot"], state["last_success_at"] < state["last_failure_at"]) == (history.last_slot, True)
    assert fold(connection) == 0
    again = records(connection, "select * from slotkeeper.schedule_state where schedule = %s", history.schedule.id)[0]
    assert again == state, "folding twice added something"


@pytest.mark.parametrize("taken_away", [H.requeued_and_waiting, H.purged])
def test_a_dead_run_that_is_taken_away_is_not_counted_any_more(
    connection: Connection, taken_away: Callable[[History], None]
) -> None:
    history = History(connection)
    for step in (H.done, H.died, H.died, H.folded, taken_away):
        step(history)
    assert (history.health()["dead_runs"], history.health()["consecutive_dead"]) == (1, 1)
    fold(connection)
    assert (history.health()["dead_runs"], history.health()["consecutive_dead"]) == (1, 1)


def test_an_older_slot_that_succeeds_later_does_not_move_the_last_success_back(connection: Connection) -> None:
    """A re-run of an old slot: its time counts, its slot does not."""
    history = History(connection)
    for step in (H.died, H.done, H.folded, H.requeued):
        step(history)
    newest = history.last_slot
    before = records(connection, "select * from slotkeeper.schedule_state where schedule = %s", history.schedule.id)[0]
    fold(connection)
    after = records(connection, "select * from slotkeeper.schedule_state where schedule = %s", history.schedule.id)[0]
    assert (after["last_success_slot"], after["last_slot"]) == (newest, newest)
    assert after["last_success_at"] > before["last_success_at"]


def test_an_outcome_that_is_committed_late_is_found_by_a_fold_that_looks_at_everything(
    connection: Connection, shared_dsn: str
) -> None:
    history = History(connection)
    history.slot()
    (late,) = history.worker.claim()
    with scenario.connect(shared_dsn) as handler:
        with handler.transaction():
            assert one(handler, "select slotkeeper.complete_v1(%s, %s)", late.id, late.token)
            other = History(connection)
            other.done()
            highest = rows(connection, "select * from slotkeeper.fold_v1(null, 1000)")[0].highest
        assert rows(connection, "select * from slotkeeper.fold_v1(%s, 1000)", highest)[0].folded == 0
        assert history.health()["last_success_slot"] == history.last_slot, "health does not wait for the fold"
        assert fold(connection) == 1
        assert history.health()["last_success_slot"] == history.last_slot


def test_two_folds_at_once_add_nothing_twice(connection: Connection, shared_dsn: str) -> None:
    history = History(connection)
    history.done()
    with scenario.connect(shared_dsn) as second:
        with second.transaction():
            assert fold(second) == 1
            assert fold(connection) == 0
        assert fold(connection) == 0
    assert (
        one(connection, "select done_count from slotkeeper.schedule_state where schedule = %s", history.schedule.id)
        == 1
    )


def test_health_of_many_unfolded_outcomes_is_one_pass_over_them(connection: Connection) -> None:
    """Ten thousand slots end at once: reading every outcome for every outcome would take minutes."""
    history = History(connection)
    connection.execute(
        "insert into slotkeeper.state_delta (owner, outcome, slot, at)"
        " select %s, 3 * (g %% 2), %s + g * interval '1 s', clock_timestamp() from generate_series(1, 10000) g",
        (history.schedule.owner, START),
    )
    plan = one(connection, "explain (analyze, format json) select * from slotkeeper.health")
    assert _largest(plan[0]["Plan"], "state_delta") <= 3 * 10_000
    assert fold(connection) == 10_000


def _largest(node: dict[str, Any], table: str) -> int:
    """The most rows that any scan of a table read."""
    own = node["Actual Rows"] * node["Actual Loops"] if node.get("Relation Name") == table else 0
    return max([int(own), *(_largest(child, table) for child in node.get("Plans", ()))])


def test_successes_of_one_batch_are_one_delta_for_each_owner(connection: Connection) -> None:
    """A row in place of many, which counts them all and keeps the newest slot."""
    namespace = f"batch-{next(_numbers)}"
    schedule = add_schedule(connection, namespace, namespace=namespace, overlap="Allow", catch_up="RunAll")
    worker = add_worker(connection, namespaces=[namespace])
    fold(connection)
    assert schedule.materialise([START + n * MINUTE for n in range(3)])
    runs = worker.claim(3)
    worker.finish_batch(runs[::-1])
    assert rows(connection, "select slot, slots from slotkeeper.state_delta") == [(START + 2 * MINUTE, 3)]
    fold(connection)
    (state,) = records(connection, "select * from slotkeeper.schedule_state where schedule = %s", schedule.id)
    assert (state["done_count"], state["last_success_slot"]) == (3, START + 2 * MINUTE)

"""Overlap: what becomes of a slot when an older run of its schedule has started; exclusive runs never meet at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from scenario import Schedule, Worker, add_schedule, add_worker, cancel, due_now, edit, one, reap, requeue, rows, sweep

Connection = psycopg.Connection[Any]
MINUTE = timedelta(minutes=1)
SLOTS = [datetime(2020, 1, 1, 12, tzinfo=UTC) + number * MINUTE for number in range(6)]


def begun(connection: Connection, **settings: Any) -> tuple[Schedule, Worker, Any]:
    """A schedule whose first slot is running."""
    schedule, worker = add_schedule(connection, backoff=(0, 0), **settings), add_worker(connection)
    schedule.materialise([SLOTS[0]])
    (run,) = worker.claim()
    return schedule, worker, run


def drained(worker: Worker) -> list[datetime]:
    """The slots that ran, in order; no two at a time."""
    ran = []
    while claimed := worker.claim():
        assert len(claimed) == 1
        ran.append(claimed[0].slot)
        worker.finish_batch(claimed)
    return ran


@pytest.mark.parametrize("state", ["running", "between", "cancelling"])
def test_skip_records_the_slot_that_meets_a_started_run(connection: Connection, state: str) -> None:
    schedule, worker, run = begun(connection)
    if state == "between":
        worker.finish(run, "failed", seconds=3600)
    elif state == "cancelling":
        cancel(connection, run.id)
    schedule.materialise(SLOTS[1:3])
    assert schedule.job()[1:] == [(SLOTS[1], "skipped", "Overlap")]
    assert one(connection, "select slots from slotkeeper.job where status = 'skipped'") == 2
    assert [tuple(d) for d in rows(connection, "select slot, slots from slotkeeper.state_delta where outcome = 3")] == [
        (SLOTS[2], 2)
    ]


def test_skip_does_not_meet_a_run_that_was_given_back_before_it_began(connection: Connection) -> None:
    schedule, worker, run = begun(connection)
    worker.finish(run, "unstarted")
    schedule.materialise([SLOTS[1]])
    assert schedule.job() == [(SLOTS[0], "superseded", "Superseded"), (SLOTS[1], "ready", None)]


def test_a_run_whose_time_has_passed_while_nobody_could_run_it_keeps_no_slot_from_running(
    connection: Connection,
) -> None:
    schedule, worker, run = begun(connection, active_deadline=60)
    worker.expire()
    reap(connection)
    schedule.materialise([SLOTS[1]])
    assert schedule.job()[1] == (SLOTS[1], "skipped", "Overlap"), "it may still run"
    connection.execute("update slotkeeper.run set first_started_at = first_started_at - interval '1 minute'")
    schedule.materialise([SLOTS[2]])
    assert schedule.job()[::2] == [(SLOTS[0], "dead", "ActiveDeadlineExceeded"), (SLOTS[2], "ready", None)]
    assert worker.finish(run).answer == "fenced", "it has ended"
    assert drained(add_worker(connection)) == [SLOTS[2]]


def test_skip_leaves_what_is_stored_already_to_run_one_after_another(connection: Connection) -> None:
    schedule, worker = add_schedule(connection, catch_up="RunAll"), add_worker(connection)
    schedule.materialise(SLOTS[:3])
    (run,) = worker.claim()
    schedule.materialise([SLOTS[3]])
    worker.finish(run)
    assert drained(worker) == SLOTS[1:3]
    assert schedule.job()[3] == (SLOTS[3], "skipped", "Overlap")


def test_queue_with_run_once_keeps_one_waiting(connection: Connection) -> None:
    schedule, worker, run = begun(connection, overlap="Queue")
    for slot in SLOTS[1:4]:
        schedule.materialise([slot])
    assert [row["slot"] for row in schedule.runs()] == [SLOTS[0], SLOTS[3]]
    assert worker.claim() == []
    worker.finish(run)
    assert drained(worker) == [SLOTS[3]]
    assert [(status, reason) for _, status, reason in schedule.job()[1:3]] == [("superseded", "Superseded")] * 2


def test_queue_with_run_all_keeps_the_newest_max_runs(connection: Connection) -> None:
    schedule, worker, run = begun(connection, overlap="Queue", catch_up="RunAll", max_runs=2)
    schedule.materialise([SLOTS[1]])
    schedule.materialise([SLOTS[2]])
    schedule.materialise(SLOTS[3:5])
    worker.finish(run)
    assert drained(worker) == SLOTS[3:5]
    skipped = rows(connection, "select slot, reason, slots from slotkeeper.job where status = 'skipped' order by slot")
    assert [tuple(row) for row in skipped] == [
        (SLOTS[1], "CatchUpLimit", 1), (SLOTS[2], "CatchUpLimit", 1),
    ]  # fmt: skip


def test_the_next_one_leads_at_once_when_the_limit_drops_the_first(connection: Connection) -> None:
    schedule = add_schedule(connection, overlap="Queue", catch_up="RunAll", max_runs=2)
    schedule.materialise(SLOTS[:2])
    schedule.materialise([SLOTS[2]])
    assert drained(add_worker(connection)) == SLOTS[1:3]


def test_the_catch_up_limit_never_spans_a_slot_that_has_started(connection: Connection) -> None:
    """Slot 0 was given back unstarted and slot 1 is between two attempts when the limit drops slots 0 and 2."""
    schedule = add_schedule(connection, overlap="Allow", catch_up="RunAll", max_runs=2)
    worker = add_worker(connection)
    schedule.materialise(SLOTS[:2])
    first, second = worker.claim()
    worker.finish(first, "unstarted", seconds=3600)
    worker.finish(second, "failed", seconds=3600)
    schedule.materialise([SLOTS[2]])
    schedule.materialise(SLOTS[3:5])
    skipped = rows(connection, "select slot, slots, id from slotkeeper.job where status = 'skipped' order by slot")
    assert [(row.slot, row.slots) for row in skipped] == [(SLOTS[0], 1), (SLOTS[2], 1)]
    assert skipped[0].id == str(first.id)


def test_replace_waits_until_the_running_one_has_stopped(connection: Connection) -> None:
    schedule, worker, run = begun(connection, overlap="Replace")
    schedule.materialise([SLOTS[1]])
    assert schedule.job() == [(SLOTS[0], "running", "Replaced"), (SLOTS[1], "ready", None)]
    assert worker.claim() == []
    assert worker.finish(run, "failed", reason="Cancelled").became == "cancelled"
    assert drained(worker) == [SLOTS[1]]


def test_replace_records_a_success_that_came_first(connection: Connection) -> None:
    schedule, worker, run = begun(connection, overlap="Replace")
    schedule.materialise([SLOTS[1]])
    assert worker.finish(run).became == "done"
    assert drained(worker) == [SLOTS[1]]
    assert [status for _, status, _ in schedule.job()] == ["done", "done"]


def test_replace_ends_a_run_between_two_attempts_at_once(connection: Connection) -> None:
    schedule, worker, run = begun(connection, overlap="Replace")
    worker.finish(run, "failed", seconds=3600)
    schedule.materialise([SLOTS[1]])
    assert schedule.job()[0] == (SLOTS[0], "cancelled", "Replaced")
    assert drained(worker) == [SLOTS[1]]


def test_replace_follows_when_the_lease_of_the_running_one_ends(connection: Connection) -> None:
    schedule, worker, _ = begun(connection, overlap="Replace")
    schedule.materialise([SLOTS[1]])
    worker.expire()
    reap(connection)
    assert drained(add_worker(connection)) == [SLOTS[1]]
    assert schedule.job()[0] == (SLOTS[0], "cancelled", "Replaced")


def test_allow_runs_both(connection: Connection) -> None:
    schedule, worker, _ = begun(connection, overlap="Allow", catch_up="RunAll")
    schedule.materialise(SLOTS[1:3])
    assert [run.slot for run in worker.claim()] == SLOTS[1:3]


def test_a_run_between_two_attempts_keeps_its_place_in_front(connection: Connection) -> None:
    schedule, worker, run = begun(connection, overlap="Queue")
    schedule.materialise([SLOTS[1]])
    worker.finish(run, "failed", seconds=3600)
    assert worker.claim() == []
    due_now(connection)
    assert [claimed.slot for claimed in worker.claim()] == [SLOTS[0]]


def test_a_run_that_was_given_back_unstarted_keeps_its_place_in_front(connection: Connection) -> None:
    """It waits for its back-off, which ends; only a row that nobody has claimed can be one that an edit kept."""
    schedule = add_schedule(connection, overlap="Queue", catch_up="RunAll")
    worker = add_worker(connection)
    schedule.materialise([SLOTS[0]])
    worker.finish(worker.claim()[0], "infrastructure", reason="NoHandler", seconds=3600)
    schedule.materialise([SLOTS[1]])
    assert worker.claim() == []
    due_now(connection)
    assert drained(worker) == SLOTS[:2]


@pytest.mark.parametrize("way", ["finish", "finish_batch", "fatal", "cancel", "reap", "late", "complete"])
def test_whoever_removes_the_front_row_lets_the_next_one_through(connection: Connection, way: str) -> None:
    schedule = add_schedule(connection, overlap="Queue", catch_up="RunAll", max_attempts=1)
    worker = add_worker(connection)
    schedule.materialise(SLOTS[:2])
    if way == "cancel":
        cancel(connection, schedule.runs()[0]["id"])
    elif way == "late":
        connection.execute("update slotkeeper.run set start_by = %s where not behind", (SLOTS[0],))
        reap(connection)
    else:
        (run,) = worker.claim()
        match way:
            case "finish":
                worker.finish(run)
            case "finish_batch":
                worker.finish_batch([run])
            case "fatal":
                worker.finish(run, "fatal")
            case "reap":
                worker.expire()
                reap(connection)
            case "complete":  # promotes nothing itself; the worker's own finish does
                connection.execute("select slotkeeper.complete_v1(%s, %s)", (run.id, run.token))
                assert worker.claim() == []
                worker.finish(run)
    assert drained(add_worker(connection)) == [SLOTS[1]]


@pytest.mark.parametrize("overlap", ["Skip", "Queue", "Replace"])
def test_a_manual_run_ignores_overlap(connection: Connection, overlap: str) -> None:
    schedule, worker, run = begun(connection, overlap=overlap)
    assert one(connection, "select slotkeeper.trigger_v1(%s, 'now')", schedule.id)
    assert not one(connection, "select slotkeeper.trigger_v1(%s, 'now')", schedule.id), "a key is seen once"
    (manual,) = worker.claim()
    assert manual.trigger == 3
    assert rows(connection, "select state from slotkeeper.run where id = %s", run.id)[0].state == 1
    schedule.materialise([SLOTS[1]])
    assert rows(connection, "select state from slotkeeper.run where id = %s", manual.id)[0].state == 1
    worker.finish(manual)
    assert not one(connection, "select slotkeeper.trigger_v1(%s, 'now')", schedule.id)


def dead_run(connection: Connection, overlap: str, **settings: Any) -> tuple[Schedule, Worker, Any]:
    schedule, worker, run = begun(connection, overlap=overlap, **settings)
    worker.finish(run, "fatal")
    return schedule, worker, run


@pytest.mark.parametrize("overlap", ["Skip", "Queue", "Replace"])
def test_a_slot_due_while_a_requeued_run_runs_queues_behind_it(connection: Connection, overlap: str) -> None:
    schedule, worker, run = dead_run(connection, overlap)
    requeue(connection, run.id)
    (again,) = worker.claim()
    schedule.materialise([SLOTS[1]])
    assert worker.claim() == []
    assert schedule.job() == [(SLOTS[0], "running", None), (SLOTS[1], "ready", None)]
    worker.finish(again)
    assert drained(worker) == [SLOTS[1]]


def test_a_requeued_run_is_not_superseded(connection: Connection) -> None:
    schedule, worker, run = dead_run(connection, "Skip")
    requeue(connection, run.id)
    schedule.materialise([SLOTS[1]])
    assert drained(worker) == SLOTS[:2]


def test_a_requeued_run_waits_behind_a_run_that_lives(connection: Connection) -> None:
    schedule, worker, run = dead_run(connection, "Skip")
    schedule.materialise([SLOTS[1]])
    (running,) = worker.claim()
    assert requeue(connection, run.id) == {run.id: "ready"}
    assert worker.claim() == []
    worker.finish(running)
    assert drained(worker) == [SLOTS[0]]


def test_a_requeued_run_obeys_the_overlap_policy_of_now(connection: Connection) -> None:
    """It died under a version that allowed overlap; an exclusive run runs now, and must stay alone."""
    schedule, worker, run = dead_run(connection, "Allow")
    edit(connection, schedule, overlap="Queue")
    schedule.materialise([SLOTS[1]])
    (running,) = worker.claim()
    requeue(connection, run.id)
    assert worker.claim() == []
    worker.finish(running)
    (again,) = worker.claim()
    assert (again.id, again.version) == (run.id, 1)


def test_after_an_edit_from_allow_the_first_exclusive_run_waits_for_the_others(connection: Connection) -> None:
    schedule, worker, first = begun(connection, overlap="Allow")
    schedule.materialise([SLOTS[1]])
    (second,) = worker.claim()
    edit(connection, schedule, overlap="Queue")
    schedule.materialise([SLOTS[2]])
    assert [(run["exclusive"], run["behind"]) for run in schedule.runs()] == [
        (False, False),
        (False, False),
        (True, True),
    ]
    worker.finish(first)
    assert sweep(connection).promoted == 0
    assert worker.claim() == []
    worker.finish(second)
    assert sweep(connection).promoted == 1
    assert drained(worker) == [SLOTS[2]]


def test_after_an_edit_to_allow_the_next_run_does_not_wait(connection: Connection) -> None:
    schedule, worker, _ = begun(connection, overlap="Queue", catch_up="RunAll")
    edit(connection, schedule, overlap="Allow")
    schedule.materialise([SLOTS[1]])
    assert [run.slot for run in worker.claim()] == [SLOTS[1]]


@pytest.mark.parametrize("overlap", ["Skip", "Queue"])
def test_one_of_many_that_wait_is_promoted_whatever_the_statistics_say(connection: Connection, overlap: str) -> None:
    """Of a table that was analysed when it was empty again, the planner thinks that it has one row."""
    enqueue_and_forget(connection, 200)
    connection.execute("analyze slotkeeper.run")
    schedule = add_schedule(connection, overlap=overlap, catch_up="RunAll")
    worker = add_worker(connection)
    assert schedule.materialise(SLOTS[1:])
    for left in (4, 3, 2, 1, 0):
        (run,) = worker.claim()
        if left % 2:
            worker.finish_batch([run])
        else:
            worker.finish(run)
        waiting = rows(connection, "select behind from slotkeeper.run order by behind")
        assert [row.behind for row in waiting] == [False, *[True] * left][:left]


def enqueue_and_forget(connection: Connection, count: int) -> None:
    connection.execute(
        "insert into slotkeeper.run (run_at, lane, max_attempts, trigger, task, payload)"
        " select clock_timestamp(), slotkeeper.lane_of('default', 'default', 0::smallint), 6, 5, 't', '{}'"
        " from generate_series(1, %s)",
        (count,),
    )
    connection.execute("delete from slotkeeper.run")

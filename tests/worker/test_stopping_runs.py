"""Runs that are stopped: by a deadline, by somebody's cancel, or not at all because they do not listen."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from processes import eventually
from worker_place import Place

NEVER = {"initialBackoffSeconds": 86400, "maxBackoffSeconds": 86400}
IMPATIENT = Path(__file__).parent / "impatient_worker.py"


def started(place: Place, name: str) -> Any:
    """The one run of a schedule that was just made due."""
    place.schedules.fire(name)
    return eventually(lambda: place.schedules.jobs(name), "a run")[0]


def begun(place: Place, name: str) -> int:
    run = int(started(place, name).id)
    place.began(run)
    return run


def test_an_attempt_past_its_deadline_has_failed_and_is_repeated(shared: Place) -> None:
    name = shared.schedules.add(task="for_ever", attemptDeadlineSeconds=1, retry=NEVER)
    run = begun(shared, name)
    waiting = shared.returned(run)
    assert waiting.charged == 1
    assert shared.errors(run) == [(1, "AttemptDeadlineExceeded", "stopped after 1 s")]
    assert [line["cancelled"] for line in shared.noted(run, "stopped")] == [True]


def test_a_thread_past_its_deadline_is_asked_to_stop(shared: Place) -> None:
    name = shared.schedules.add(
        task="for_ever.in_thread",
        attemptDeadlineSeconds=1,
        retry=NEVER,
    )
    run = begun(shared, name)
    shared.returned(run)
    assert shared.errors(run)[0][:2] == (1, "AttemptDeadlineExceeded")


def test_a_run_past_its_active_deadline_is_dead(shared: Place) -> None:
    name = shared.schedules.add(task="for_ever", activeDeadlineSeconds=1)
    run = begun(shared, name)
    dead = shared.ended(run, "dead")
    assert (dead.reason, dead.attempts) == ("ActiveDeadlineExceeded", 1)
    assert shared.errors(run) == [(1, "ActiveDeadlineExceeded", "stopped 1 s after its first start")]


@pytest.mark.parametrize("task", ["succeed", "succeed.in_thread"])
def test_a_run_whose_time_has_passed_while_no_worker_was_there_does_not_begin_again(place: Place, task: str) -> None:
    name = place.schedules.add(task=task, activeDeadlineSeconds=60)
    run = int(started(place, name).id)
    place.connection.execute(
        "update slotkeeper.run set attempt = 1, charged = 1,"
        " first_started_at = clock_timestamp() - interval '2 minutes'"
    )
    place.worker()
    dead = place.ended(run, "dead")
    assert (dead.reason, dead.attempts) == ("ActiveDeadlineExceeded", 2)
    assert place.errors(run) == []
    assert place.noted(run) == []


def test_the_active_deadline_does_not_run_while_a_first_start_waits_in_the_process(place: Place) -> None:
    """The worker took it at once and came to it too late: it is given back, and it has not started."""
    blocking = place.enqueue("block_the_loop", '{"seconds": 2.5}')
    name = place.schedules.add(task="succeed", activeDeadlineSeconds=1)
    run = int(started(place, name).id)
    place.worker()
    done = place.ended(run)
    assert (done.attempts, done.charged) == (2, 1)
    assert place.errors(run) == []
    assert [line["attempt"] for line in place.noted(run)] == [2]
    assert place.job(blocking).status == "done"


@pytest.mark.parametrize("task", ["for_ever", "for_ever.in_thread"])
def test_a_cancelled_run_is_told_at_the_beat_and_ends_cancelled(shared: Place, task: str) -> None:
    run = shared.enqueue(task)
    shared.began(run)
    assert shared.value("select became from slotkeeper.cancel_v1(%s)", [run]) == "running"
    shared.ended(run, "cancelled")
    assert len(shared.noted(run, "stopped")) == 1


def test_success_of_a_cancelled_run_is_recorded(shared: Place) -> None:
    run = shared.enqueue("swallow")
    shared.began(run)
    shared.value("select became from slotkeeper.cancel_v1(%s)", [run])
    shared.ended(run, "done")


def test_a_handler_that_swallowed_its_cancellation_leaves_nothing_to_the_next_one(place: Place) -> None:
    """With room for one handler, the next run gets the same task of the event loop."""
    place.worker(concurrency=1)
    run = place.enqueue("swallow")
    place.began(run)
    place.value("select became from slotkeeper.cancel_v1(%s)", [run])
    place.ended(run)
    following = place.enqueue("group", max_attempts=1), place.enqueue("text", '{"text": "cancelled"}', max_attempts=1)
    # With a cancellation left over, a group of tasks would not say what failed in it.
    assert place.ended(following[0], "dead").last_error.startswith("ExceptionGroup: ")
    assert place.ended(following[1], "dead").last_error == "CancelledError: "
    place.ended(place.enqueue("succeed"))


def test_a_run_that_is_cancelled_while_it_waits_in_the_process_does_not_begin(place: Place) -> None:
    worker = place.worker(concurrency=1, lease_seconds=2)
    for _ in range(3):  # quick ones first, so that the worker takes more than it can begin
        place.ended(place.enqueue("succeed"))
    with place.connection.transaction():
        blocking = place.enqueue("block_the_loop", '{"seconds": 2.5}')
        waiting = place.enqueue("succeed")
    place.began(blocking)
    eventually(lambda: place.job(waiting).status == "running", "prefetched")
    assert place.value("select became from slotkeeper.cancel_v1(%s)", [waiting]) == "running"
    place.ended(waiting, "cancelled")
    assert place.noted(waiting) == []
    place.ended(blocking)
    assert worker.running


def test_a_thread_that_does_not_stop_makes_its_worker_drain_and_exit(place: Place) -> None:
    """Its run is recorded before the process goes, and a second worker goes on."""
    name = place.schedules.add(task="deaf", attemptDeadlineSeconds=1, retry={"initialBackoffSeconds": 0})
    beside = place.enqueue("sleep", '{"seconds": 2.2}')
    stuck = place.processes.script(IMPATIENT, place.dsn, "0.5")
    run = begun(place, name)
    place.began(beside)
    assert stuck.wait() == 1, stuck.text()
    assert "handler_does_not_stop" in stuck.text()
    waiting = place.job(run)
    assert (waiting.status, waiting.attempts, waiting.charged) == ("ready", 1, 1)
    assert place.errors(run) == [(1, "AttemptDeadlineExceeded", "stopped after 1 s")]
    # No other attempt begins while the thread may still be alive.
    left_at = place.value("select at from slotkeeper.run_error where run = %s", run)
    assert waiting.run_at - left_at > timedelta(seconds=4)
    assert place.job(beside).status == "done"
    place.worker()
    place.hurry(run)
    assert place.ended(run).attempts == 2
    assert place.value("select count(*) from slotkeeper.run_error where kind = 'LeaseLost'") == 0


def test_a_payload_reaches_the_handler_as_it_was(shared: Place) -> None:
    payload = {"text": "naïve ✓", "list": [1, 2.5, None, True], "deep": {"a": {"b": []}}}
    run = shared.enqueue("tell", json.dumps(payload))
    shared.ended(run)
    assert shared.noted(run, "told")[0]["told"]["payload"] == payload

"""What becomes of a run by what its handler does: through a real worker, as the tables tell it afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from processes import eventually
from worker_place import Place

Finished = Callable[..., Any]


@pytest.mark.parametrize("task", ["succeed", "succeed.in_thread"])
def test_a_handler_that_returns_is_done(finished: Finished, task: str) -> None:
    job = finished(task)
    assert (job.status, job.attempts, job.charged, job.last_error) == ("done", 1, 1, None)


@pytest.mark.parametrize("task", ["fail", "fail.in_thread"])
def test_a_handler_that_raises_is_retried_until_its_attempts_are_used_up(shared: Place, task: str) -> None:
    run = shared.enqueue(task, '{"message": "the upstream said no"}', max_attempts=3)
    for attempt in (1, 2):
        waiting = shared.returned(run, attempts=attempt)
        assert waiting.charged == attempt
        assert waiting.last_error == "ValueError: the upstream said no"
        shared.hurry(run)
    dead = shared.ended(run, "dead")
    assert (dead.reason, dead.attempts, dead.charged) == ("RetriesExhausted", 3, 3)
    assert shared.errors(run) == [(attempt, "ValueError", "the upstream said no") for attempt in (1, 2, 3)]


def test_a_retry_that_succeeds_is_done(shared: Place) -> None:
    run = shared.enqueue("fail.once")
    shared.returned(run)
    shared.hurry(run)
    assert shared.ended(run).attempts == 2


def test_non_retryable_is_dead_at_once(finished: Finished) -> None:
    job = finished("give_up")
    assert (job.status, job.reason, job.attempts) == ("dead", "NonRetryable", 1)
    assert job.last_error == "NonRetryable: this cannot work"


def test_a_snooze_is_back_after_its_time_and_not_charged(shared: Place) -> None:
    run = shared.enqueue("snooze")
    waiting = shared.returned(run)
    assert waiting.charged == 0
    assert shared.errors(run) == []
    done = shared.ended(run)
    assert (done.attempts, done.charged) == (2, 1)
    assert (done.started_at, done.run_at) == (waiting.started_at, waiting.run_at)
    assert (waiting.run_at - waiting.started_at).total_seconds() > 1.0


def test_an_infrastructure_error_is_back_after_a_back_off_and_not_charged(shared: Place) -> None:
    run = shared.enqueue("not_my_fault")
    waiting = shared.returned(run)
    assert waiting.charged == 0
    assert waiting.last_error == "InfrastructureError: the disk is away"
    shared.hurry(run)
    done = shared.ended(run)
    assert (done.attempts, done.charged) == (2, 1)


@pytest.mark.parametrize("in_thread", ["", ".in_thread"])
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nul", "ValueError: a\\x00b"),
        ("surrogate", "ValueError: caf\\udce9"),
        ("unspeakable", "Unspeakable: error text could not be stored"),
        ("system_exit", "SystemExit: 3"),
        ("keyboard", "KeyboardInterrupt: "),
        ("cancelled", "CancelledError: "),
    ],
)
def test_whatever_is_raised_can_be_stored_and_ends_nothing_else(
    shared: Place, finished: Finished, text: str, error: str, in_thread: str
) -> None:
    job = finished(f"text{in_thread}", json.dumps({"text": text}), max_attempts=1)
    assert (job.status, job.reason) == ("dead", "RetriesExhausted")
    assert job.last_error == error
    assert finished(f"succeed{in_thread}").status == "done"


def test_an_enormous_error_text_is_cut_with_a_mark(shared: Place, finished: Finished) -> None:
    job = finished("text", '{"text": "enormous"}', max_attempts=1)
    ((_, kind, message),) = shared.errors(int(job.id))
    assert kind == "ValueError"
    assert len(message.encode()) <= 8 * 1024
    assert message.startswith("ééé")
    assert message.endswith("...[truncated, 6291456 bytes]")


@pytest.mark.parametrize(("task", "what"), [("hidden_async", "coroutine"), ("generator", "generator")])
def test_a_handler_whose_body_never_ran_is_not_done(shared: Place, finished: Finished, task: str, what: str) -> None:
    job = finished(task)
    assert (job.status, job.reason) == ("dead", "NonRetryable")
    assert f"returned a {what} and did nothing" in job.last_error
    assert shared.noted(int(job.id)) == []


def test_a_task_without_a_handler_here_goes_back_uncharged_and_unstarted(shared: Place) -> None:
    run = shared.enqueue("somebody.else")
    waiting = shared.returned(run)
    assert (waiting.charged, waiting.started_at) == (0, None)
    assert waiting.last_error == "NoHandler: no handler is named 'somebody.else' in this worker"


def test_an_action_that_is_not_allowed_goes_back_uncharged_and_unstarted(place: Place) -> None:
    name = place.schedules.add(command=["true"])
    place.worker(allow="task")
    place.schedules.fire(name)
    waiting = eventually(
        lambda: [job for job in place.schedules.jobs(name) if job.attempts and job.status == "ready"], "given back"
    )[0]
    assert (waiting.charged, waiting.started_at) == (0, None)
    assert waiting.last_error == "ActionNotAllowed: this worker does not allow command"


def test_a_schedule_that_this_worker_cannot_read_goes_back_and_stops_no_other(place: Place) -> None:
    """A newer controller may store what an older worker does not know."""
    name = place.schedules.add(task="succeed", catchUp={"policy": "Skip", "graceSeconds": 7200})
    other = place.schedules.add(task="succeed")
    place.schedules.fire(name)
    place.schedules.fire(other)
    place.connection.execute(
        "update slotkeeper.schedule_version v set spec = jsonb_set(spec, '{timeZone}', '\"Mars/Olympus\"')"
        " from slotkeeper.schedule s where s.id = v.schedule and s.name = %s",
        (name,),
    )
    place.worker()
    waiting = eventually(
        lambda: [job for job in place.schedules.jobs(name) if job.attempts and job.status == "ready"], "given back"
    )[0]
    assert (waiting.charged, waiting.started_at) == (0, None)
    assert "Mars/Olympus" in waiting.last_error
    eventually(lambda: [job.status for job in place.schedules.jobs(other)] == ["done"], "the other done")

"""Effects in the caller's own transaction: `run.complete` and `enqueue` with a key."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import psycopg
import pytest

from processes import eventually
from slotkeeper import enqueue
from worker_place import Place


def effects(place: Place, run: int) -> int:
    return int(place.value("select count(*) from effect where run = %s", run))


@pytest.mark.parametrize("task", ["exactly_once", "exactly_once.async"])
def test_effect_and_success_commit_together(shared: Place, task: str) -> None:
    run = shared.enqueue(task, '{"first": "commits"}')
    done = shared.ended(run)
    assert (effects(shared, run), done.attempts) == (1, 1)


def test_a_transaction_that_rolls_back_takes_the_success_with_it(shared: Place) -> None:
    run = shared.enqueue("exactly_once", '{"first": "rolls back"}')
    waiting = shared.returned(run)
    assert (effects(shared, run), waiting.charged) == (0, 1)
    shared.hurry(run)
    done = shared.ended(run)
    assert (effects(shared, run), done.attempts) == (1, 2)


def test_what_is_raised_after_the_commit_changes_nothing(shared: Place) -> None:
    run = shared.enqueue("exactly_once", '{"first": "raises after commit"}')
    done = shared.ended(run)
    assert (effects(shared, run), done.attempts) == (1, 1)


def test_a_death_around_the_commit_leaves_one_effect(place: Place) -> None:
    runs = {
        death: place.enqueue("exactly_once", json.dumps({"first": death}))
        for death in ("dies before commit", "dies after commit")
    }
    for _ in range(3):
        place.worker(lease_seconds=1, concurrency=1, EFFECTS_DSN=place.dsn)
    before, after = (place.ended(run) for run in runs.values())
    assert [effects(place, run) for run in runs.values()] == [1, 1]
    assert before.attempts == 2
    assert after.attempts == 1


def test_runs_that_wait_behind_a_completed_one_follow(shared: Place) -> None:
    """`run.complete` promotes nothing, so that nobody waits for an open transaction: the worker does it afterwards."""
    name = shared.schedules.add(
        task="exactly_once", payload={"first": "commits"}, overlapPolicy="Queue", catchUp={"policy": "RunAll"}
    )
    shared.schedules.fire(name, back=timedelta(hours=4))
    eventually(
        lambda: {job.status for job in shared.schedules.jobs(name)} == {"done"} and shared.schedules.jobs(name), "done"
    )
    assert len(shared.schedules.jobs(name)) == 4


def test_fifty_producers_of_one_key_make_one_run(shared: Place) -> None:
    together = threading.Barrier(10)
    made = []

    def produce() -> None:
        with psycopg.connect(shared.dsn) as connection:
            for number in range(5):
                together.wait()
                made.append((number, enqueue(connection, "succeed", {"n": number}, key=f"fifty-{number}")))
                connection.commit()

    threads = [threading.Thread(target=produce) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(made) == 50
    for number in range(5):
        answers = [answer for key, answer in made if key == number]
        assert len({answer.id for answer in answers}) == 1
        assert [answer.created for answer in answers].count(True) == 1
        shared.ended(answers[0].id)
        assert len(shared.noted(answers[0].id)) == 1


def test_a_run_of_a_transaction_that_rolls_back_does_not_exist(shared: Place) -> None:
    with psycopg.connect(shared.dsn) as connection:
        first = enqueue(connection, "succeed", key="second-chance")
        connection.rollback()
        second = enqueue(connection, "succeed", key="second-chance")
    assert second.created
    shared.ended(second.id)
    assert shared.noted(first.id) == []

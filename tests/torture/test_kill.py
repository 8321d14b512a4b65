"""kill -9 of controllers and workers, again and again, while schedules fire; and the time until another takes over."""

from __future__ import annotations

import itertools
import random
import signal
import time
from datetime import timedelta

from applied_schedules import jobschedule
from history import beginnings_without_explanation, live_runs, slots_without_exactly_one_outcome
from processes import OwnProcess, eventually
from worker_place import Place

PERIOD = timedelta(seconds=10)


def test_every_slot_has_one_outcome_whoever_is_killed(place: Place, torture_seconds: float) -> None:
    """Three controllers, four workers; one of each dies every few seconds and comes back."""
    long = torture_seconds > 60
    place.schedules.apply(
        *[
            jobschedule(
                f"every-ten-{number}", every={"periodSeconds": 10}, task=("note", "note.in_thread")[number % 2],
                overlapPolicy="Allow", catchUp={"policy": "RunAll", "maxRuns": 10_000},
                retry={"maxAttempts": 100, "initialBackoffSeconds": 1, "maxBackoffSeconds": 2},
            )
            for number in range(200 if long else 60)
        ]
    )  # fmt: skip
    after = place.value("select max(watermark) from slotkeeper.schedule")
    numbers = itertools.count()

    def worker() -> OwnProcess:
        return place.worker(lease_seconds=3, name=f"victim-{next(numbers)}", concurrency=5)

    controllers = [place.processes.controller(place.dsn) for _ in range(3)]
    workers = [worker() for _ in range(4)]
    killed: set[int] = set()
    end = time.monotonic() + torture_seconds
    turn = 0
    while time.monotonic() < end:
        time.sleep(10 if long else 5)
        victim = random.randrange(len(workers))
        killed.add(workers[victim].pid)
        workers[victim].kill()
        workers[victim] = worker()
        controllers[turn % 3].kill()
        controllers[turn % 3] = place.processes.controller(place.dsn)
        turn += 1
    until = place.value("select clock_timestamp()")
    eventually(
        lambda: place.value("select min(watermark) from slotkeeper.schedule where next_due is not null") >= until,
        "every slot decided",
    )
    eventually(lambda: live_runs(place.connection, until) == 0, "every slot has ended", seconds=60)
    assert slots_without_exactly_one_outcome(place.connection, period=PERIOD, after=after, until=until) == []
    assert beginnings_without_explanation(place.connection, place.processes.handled_runs(), killed) == []
    statuses = place.value(
        "select jsonb_object_agg(status, n) from (select status, count(*) as n from slotkeeper.job"
        " where slot <= %s group by 1) s", until,
    )  # fmt: skip
    assert set(statuses) == {"done"}, statuses
    for process in (*controllers, *workers):
        assert process.running, process.text()[-3000:]
        assert process.stop() in (0, -signal.SIGTERM)  # one that has just been started does not listen yet
    crashes = [
        line for own in place.processes.started for line in own.log("step_crashed") + own.log("background_failed")
    ]
    assert crashes == []


def test_another_worker_takes_over_within_lease_and_poll_without_a_controller(place: Place) -> None:
    """By the database's clock, from the kill to the end of a second attempt that does nothing. Each heir dies next."""
    lease, poll, generations, runs_each = 2, 0.2, 5, 6
    settings = {"lease_seconds": lease, "poll_seconds": poll, "concurrency": runs_each}
    late: list[float] = []
    victim = place.worker(**settings, name="worker-of-0")
    for generation in range(1, generations + 1):
        runs = [place.enqueue("nap", '{"seconds": 60}') for _ in range(runs_each)]
        for run in runs:
            place.began(run)
        heir = place.worker(**settings, name=f"worker-of-{generation}")
        eventually(
            lambda name=f"worker-of-{generation}": place.value(  # type: ignore[misc]
                "select count(*) from slotkeeper.worker where name = %s", name
            ),
            "the heir is there",
        )
        victim.kill()
        killed_at = place.value("select clock_timestamp()")
        for run in runs:
            done = place.ended(run)
            assert done.attempts == 2
            late.append((done.finished_at - killed_at).total_seconds())
        victim = heir
    assert len(late) == generations * runs_each
    assert max(late) <= lease + poll + 0.3, late


def test_what_a_killed_controller_was_doing_another_does(place: Place) -> None:
    """Controllers die in quick succession; every slot of the time is stored once all the same."""
    place.schedules.apply(
        *[
            jobschedule(
                f"often-{n}",
                every={"periodSeconds": 10},
                task="note",
                overlapPolicy="Allow",
                catchUp={"policy": "RunAll"},
            )
            for n in range(100)
        ]
    )
    after = place.value("select max(watermark) from slotkeeper.schedule") - timedelta(minutes=10)
    place.connection.execute(
        "update slotkeeper.schedule set watermark = %s, watermark_highest = %s, next_slot = %s, next_due = %s",
        (after, after, after + PERIOD, after + PERIOD),
    )
    for _ in range(4):
        controller = place.processes.controller(place.dsn)
        time.sleep(random.uniform(0.8, 1.6))
        controller.kill()
    place.processes.controller(place.dsn)
    until = place.value("select clock_timestamp()")
    eventually(lambda: place.value("select min(watermark) from slotkeeper.schedule") >= until, "every slot decided")
    assert slots_without_exactly_one_outcome(place.connection, period=PERIOD, after=after, until=until) == []

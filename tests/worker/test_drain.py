"""SIGTERM: what runs may finish, what has not begun goes back at once, what takes too long is given back uncharged."""

from __future__ import annotations

import signal
from datetime import timedelta

from processes import eventually
from worker_place import Place


def test_a_worker_that_never_reached_its_database_leaves_too(place: Place) -> None:
    worker = place.processes.worker("host=/nowhere dbname=x", place.handlers)
    eventually(lambda: worker.log("database_away"), "it has tried")
    assert worker.stop() == 0


def test_the_story_of_a_drain(place: Place) -> None:
    """One run ends in time, one does not, and ten wait in the process behind one that blocks the loop."""
    worker = place.worker(concurrency=3, drain_seconds=2, lease_seconds=4)
    for _ in range(3):  # quick ones first, so that the worker takes more than it can begin
        place.ended(place.enqueue("succeed"))
    with place.connection.transaction():
        short = place.enqueue("sleep.in_thread", '{"seconds": 1}')
        long = place.enqueue("sleep", '{"seconds": 60}')
        blocking = place.enqueue("block_the_loop", '{"seconds": 1}')
        waiting = [place.enqueue("succeed") for _ in range(10)]
    for run in (short, long, blocking):
        place.began(run)
    asked = place.value("select clock_timestamp()")
    worker.send(signal.SIGTERM)
    back = [place.returned(run) for run in waiting if place.job(run).attempts]
    assert back, "nothing was prefetched"
    for job in back:
        assert (job.charged, job.started_at) == (0, None)
        assert job.run_at - asked < timedelta(seconds=1)  # at once: not when the drain ends
    later = place.enqueue("succeed")
    assert worker.wait() == 0, worker.text()
    assert place.job(short).status == "done"
    assert place.job(blocking).status == "done"
    released = place.job(long)
    assert (released.status, released.attempts, released.charged) == ("ready", 1, 0)
    assert released.started_at is not None
    assert place.errors(long) == []
    assert [line["cancelled"] for line in place.noted(long, "stopped")] in ([], [True])
    assert place.job(later).attempts == 0
    assert place.value("select count(*) from slotkeeper.run where state <> 0") == 0
    assert place.value("select count(*) from slotkeeper.worker") == 0
    # Another one takes all of it.
    place.worker()
    for run in (*waiting, later):
        place.ended(run)
    assert place.began(long)


def test_a_second_signal_gives_back_at_once(place: Place) -> None:
    worker = place.worker(drain_seconds=600)
    run = place.enqueue("for_ever")
    place.began(run)
    worker.send(signal.SIGTERM)
    eventually(lambda: worker.log("draining"), "draining")
    assert worker.running
    assert worker.stop() == 0
    job = place.job(run)
    assert (job.status, job.attempts, job.charged) == ("ready", 1, 0)


def test_a_command_that_outlives_the_drain_is_stopped_and_given_back(place: Place) -> None:
    worker = place.worker(drain_seconds=0.2)
    name = place.schedules.add(command=["sleep", "60"])
    place.schedules.fire(name)
    run = eventually(lambda: [j for j in place.schedules.jobs(name) if j.status == "running"], "a run")[0]
    assert worker.stop() == 0
    job = place.job(int(run.id))
    assert (job.status, job.attempts, job.charged) == ("ready", 1, 0)


def test_claims_under_way_are_not_lost_by_a_drain(place: Place) -> None:
    """Signals at any moment of a busy worker's life: every run is done or waits, none is held by nobody."""
    place.value(
        "select count(slotkeeper.enqueue_v1("
        "  'succeed', '{}', null, 'default', 'default', null, 0::smallint, 6::smallint))"
        " from generate_series(1, 20000)"
    )

    def done() -> int:
        return int(place.value("select count(*) from slotkeeper.run_done"))

    for _ in range(2):
        before = done()
        worker = place.worker(concurrency=4, lease_seconds=30)
        eventually(lambda before=before: done() > before, "some done", look=0.001)  # type: ignore[misc]
        assert worker.stop() == 0
        assert place.value("select count(*) from slotkeeper.run where state <> 0") == 0
        assert place.value("select count(*) from slotkeeper.worker") == 0
    assert done() < 20000, "the signals came too late"
    began = [line["run"] for line in place.processes.handled_runs()]
    assert len(began) == len(set(began)) == done()


def test_a_worker_leaves_nothing_behind_at_its_end(place: Place) -> None:
    """No row, no claim, no unclosed resource, and nothing of what its handlers printed is lost."""
    worker = place.processes.worker(place.dsn, place.handlers, python=["-X", "dev", "-W", "error"], PYTHONUNBUFFERED="")
    name = place.schedules.add(command=["echo", "hello"])
    place.schedules.fire(name)
    for task in ("succeed", "succeed.in_thread", "print"):
        place.ended(place.enqueue(task))
    place.returned(place.enqueue("fail"))
    eventually(lambda: [job.status for job in place.schedules.jobs(name)] == ["done"], "the command")
    assert worker.stop() == 0
    assert "a line without its end" in worker.text()
    for word in ("Warning", "Traceback", "never awaited", "was destroyed", "unclosed"):
        assert word not in worker.text(), worker.text()
    assert place.value("select count(*) from slotkeeper.worker") == 0
    assert place.value("select count(*) from slotkeeper.claim_batch") == 0

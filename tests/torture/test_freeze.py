"""Workers that stand still past their lease and wake up again: SIGSTOP, SIGCONT."""

from __future__ import annotations

import pytest

from processes import eventually
from worker_place import Place


@pytest.mark.parametrize("second_seconds", [0, 3])
def test_a_worker_that_wakes_up_after_another_has_claimed_its_run_changes_nothing(
    place: Place, second_seconds: int
) -> None:
    """The other one is done already, or still at it."""
    frozen = place.worker(lease_seconds=2, name="frozen")
    run = place.enqueue("nap", f'{{"seconds": 0.5, "second_seconds": {second_seconds}, "wait_until_lost": true}}')
    place.began(run)
    frozen.freeze()
    place.worker(lease_seconds=2, name="other")
    eventually(lambda: len(place.noted(run)) == 2, "attempt 2 begun by the other")
    if not second_seconds:
        place.ended(run)
    frozen.thaw()
    eventually(lambda: frozen.log("outcome_refused"), "the refusal in the log")
    (refused,) = frozen.log("outcome_refused")
    assert (refused["run"], refused["attempt"]) == (run, 1)
    done = place.ended(run)
    assert done.attempts == 2
    history = place.value("select count(*) from slotkeeper.run_done where id = %s", run)
    assert history == 1
    assert [error[:2] for error in place.errors(run)] == [(1, "LeaseLost")]
    # The handler of the first attempt was told, and could have stopped.
    told = {line["attempt"]: line["lost"] for line in place.noted(run, "ended")}
    assert told == {1: True, 2: False}
    # It is a worker again, under a new row.
    eventually(lambda: place.value("select count(*) from slotkeeper.worker where name = 'frozen'") == 1, "registered")
    place.processes.started[1].kill()
    place.ended(place.enqueue("note"))
    assert frozen.running
    assert frozen.stop() == 0


def test_a_worker_that_wakes_up_before_anybody_noticed_keeps_its_runs(place: Place) -> None:
    """It is alone, and must not take its own runs away before its next beat."""
    for number in range(4):
        worker = place.worker(lease_seconds=1, name=f"alone-{number}")
        runs = [place.enqueue("nap", '{"seconds": 0.5}') for _ in range(3)]
        for run in runs:
            place.began(run)
        worker.freeze()
        eventually(
            lambda name=f"alone-{number}": place.value(  # type: ignore[misc]
                "select lease_until < clock_timestamp() - interval '0.2 s' from slotkeeper.worker where name = %s", name
            ),
            "its lease has ended",
        )
        worker.thaw()
        for run in runs:
            assert place.ended(run).attempts == 1
        assert place.value("select count(*) from slotkeeper.run_error") == 0
        assert worker.log("outcome_refused") == []
        assert worker.stop() == 0


def test_a_frozen_controller_holds_nobody_up_and_does_no_harm_when_it_wakes(place: Place) -> None:
    frozen = place.processes.controller(place.dsn)
    name = place.schedules.add(task="note", every={"periodSeconds": 10}, catchUp={"policy": "RunAll"})
    eventually(lambda: place.value("select reap_paused_until < clock_timestamp() from slotkeeper.fleet"), "it runs")
    frozen.freeze()
    place.worker()
    other = place.processes.controller(place.dsn)
    before = place.value("select clock_timestamp()")
    eventually(
        lambda: [job for job in place.schedules.jobs(name) if job.slot > before and job.status == "done"],
        "a slot is done",
    )
    frozen.thaw()
    eventually(lambda: len({job.slot for job in place.schedules.jobs(name)}) >= 3, "more slots", seconds=40)
    slots = [job.slot for job in place.schedules.jobs(name)]
    assert len(slots) == len(set(slots))
    # Its late answers are not taken for a forward step of the database's clock, which would pause everybody.
    assert place.value("select reap_pause_reason is distinct from 'ClockStep' from slotkeeper.fleet")
    for controller in (frozen, other):
        assert controller.stop() == 0

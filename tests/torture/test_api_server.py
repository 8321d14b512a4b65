"""A whole minute without the Kubernetes API: slots of schedules that are stored go on, and all is mended after it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from api_server import ApiServer, condition
from api_server import eventually as slowly
from jobschedule_objects import manifest

from history import slots_without_exactly_one_outcome
from processes import eventually
from scenario import rows
from worker_place import Place

PERIOD = timedelta(seconds=10)
AWAY = timedelta(seconds=60)


@pytest.mark.timeout(420)
def test_a_minute_without_the_api_server_costs_no_slot(own_api: ApiServer, place: Place) -> None:
    names = [f"every-ten-{number}" for number in range(5)]
    own_api.apply(*[
        manifest(name, "default", every={"periodSeconds": 10}, task="note", overlapPolicy="Allow") for name in names
    ])  # fmt: skip
    controllers = [
        place.processes.controller(place.dsn, "--kubernetes", "--kubeconfig", str(own_api.kubeconfig)) for _ in range(2)
    ]
    worker = place.worker()
    slowly(
        lambda: place.value("select count(*) from slotkeeper.schedule") == len(names),
        what="all are stored",
        seconds=120,
    )
    slowly(lambda: condition(own_api.get("default", names[-1]), "Healthy"), what="their status is written", seconds=60)
    eventually(
        lambda: place.value("select count(*) from slotkeeper.run_done") >= len(names),
        "the first slots are done",
        seconds=90,
    )
    away_since = None

    def a_minute_passes() -> None:
        nonlocal away_since
        away_since = place.value("select clock_timestamp()")
        eventually(
            lambda: place.value("select clock_timestamp() > %s", away_since + AWAY), "a minute", seconds=90, look=0.5
        )

    own_api.restart(a_minute_passes)
    assert away_since is not None
    until = away_since + AWAY
    eventually(
        lambda: place.value("select count(*) from slotkeeper.run where slot <= %s", until) == 0, "every run has ended"
    )
    assert slots_without_exactly_one_outcome(place.connection, period=PERIOD, after=away_since, until=until) == []
    # Each on its own time, none of them caught up with.
    jobs = rows(
        place.connection, "select trigger, status, started_at - slot as late from slotkeeper.job"
        " where slot > %s and slot <= %s", away_since, until,
    )  # fmt: skip
    assert len(jobs) == len(names) * (AWAY // PERIOD)
    assert {(job.trigger, job.status) for job in jobs} == {("Schedule", "done")}
    assert max(job.late for job in jobs) < PERIOD
    # And after it: edits, deletions and status as before, by the same processes.
    own_api.kubectl("delete", "jsched", names[0])
    own_api.apply(manifest("later", "default", every={"periodSeconds": 10}, task="note"))
    wanted = {*names[1:], "later"}
    slowly(
        lambda: {row.name for row in rows(
            place.connection, "select name from slotkeeper.schedule where retired_at is null"
        )} == wanted, seconds=90, what="synced again",
    )  # fmt: skip
    slowly(lambda: condition(own_api.get("default", "later"), "Ready"), seconds=60, what="status again")
    for process in (*controllers, worker):
        assert process.log("step_crashed") == []
        assert process.stop() == 0, process.text()[-3000:]

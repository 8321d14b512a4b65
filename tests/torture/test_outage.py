"""The outage story with real processes: fifty minutes without a controller, without workers, without both.

The tables are moved back in time instead of waiting; then whoever was away is started. A quarter-hourly schedule has
missed three slots.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from applied_schedules import jobschedule
from processes import eventually
from scenario import rows
from slotkeeper.decisions import decide_due, timing_of_version
from slotkeeper.store import ticker
from slotkeeper.store.connection import Session
from slotkeeper.store.ticker import DueSchedule, materialise
from worker_place import Place

MINUTE = timedelta(minutes=1)
POLICIES = ("Skip", "RunOnce", "RunAll")
OVERLAPS = ("Skip", "Queue")
DEADLINES = (None, 1200)


def name_of(policy: str, overlap: str, deadline: int | None) -> str:
    return f"{policy}-{overlap}-{deadline or 'none'}".lower()


def expected(policy: str, deadline: int | None, away: str) -> list[tuple[str, str | None]]:
    """(status, reason) of the slots 37, 22 and 7 minutes ago."""
    superseded, too_late = ("superseded", "Superseded"), ("skipped", "StartDeadlineExceeded")
    if policy == "Skip":
        return [("skipped", "Late")] * 3
    if policy == "RunAll":
        return [too_late, too_late, ("done", None)] if deadline else [("done", None)] * 3
    if deadline and away != "workers":
        return [too_late, too_late, ("done", None)]
    return [superseded, superseded, ("done", None)]


def store_schedules(place: Place) -> list[datetime]:
    """All combinations, as they were 50 minutes ago; returns the three slots that will have been missed."""
    now: datetime = place.value("select date_trunc('second', clock_timestamp())")
    anchor = now - timedelta(days=30) - 7 * MINUTE
    for policy in POLICIES:
        for overlap in OVERLAPS:
            for deadline in DEADLINES:
                spec = {"startingDeadlineSeconds": deadline} if deadline else {}
                place.schedules.apply(
                    jobschedule(
                        name_of(policy, overlap, deadline), task="note", overlapPolicy=overlap,
                        every={"periodSeconds": 900, "anchorTime": anchor.isoformat()},
                        catchUp={"policy": policy}, **spec,
                    )
                )  # fmt: skip
    place.connection.execute(
        "update slotkeeper.schedule set watermark = %s, watermark_highest = %s, next_slot = %s, next_due = %s",
        (now - 50 * MINUTE, now - 50 * MINUTE, now - 37 * MINUTE, now - 37 * MINUTE),
    )
    return [now - minutes * MINUTE for minutes in (37, 22, 7)]


def tick_in_time(place: Place, slots: list[datetime]) -> None:
    """What a controller did while all workers were away: each slot, one second after it fell due."""
    session = Session(place.dsn, "past ticker")
    for slot in slots:
        found = rows(place.connection, "select id, owner, version, watermark from slotkeeper.schedule")
        due = [DueSchedule(*row, slot + timedelta(seconds=1)) for row in found]
        known = ticker.versions(session, [(row.owner, row.version) for row in due])
        with session.transaction() as connection:
            decided = [decide_due(row, timing_of_version(known[row.owner, row.version])) for row in due]
            assert materialise(connection, decided) == set()
    session.close()


@pytest.mark.parametrize("away", ["controller", "workers", "both"])
def test_what_fifty_minutes_without_them_leave(place: Place, away: str) -> None:
    slots = store_schedules(place)
    if away == "controller":
        worker = place.worker()
        eventually(lambda: place.value("select count(*) from slotkeeper.worker") == 1, "the worker is there")
        controller = place.processes.controller(place.dsn)
    elif away == "workers":
        tick_in_time(place, slots)
        controller = place.processes.controller(place.dsn)
        worker = place.worker()
    else:
        controller = place.processes.controller(place.dsn)
        worker = place.worker()

    def all_decided() -> bool:
        decided = place.value("select min(watermark) from slotkeeper.schedule") > slots[-1]
        # In this order: rows are made in the moment in which the watermark moves.
        return bool(decided and place.value("select count(*) from slotkeeper.run") == 0)

    eventually(all_decided, "every slot has its outcome")
    for policy in POLICIES:
        for overlap in OVERLAPS:
            for deadline in DEADLINES:
                name = name_of(policy, overlap, deadline)
                records = [job for job in place.schedules.jobs(name) if job.slot in slots or job.slots > 1]
                outcomes = [(job.status, job.reason) for job in records for _ in range(job.slots)]
                assert outcomes == expected(policy, deadline, away), (name, outcomes)
                # Those that ran did so one after another, oldest first.
                began = [
                    line["slot"] for line in place.processes.handled_runs() if line["schedule"] == f"default/{name}"
                ]
                assert began == [job.slot.isoformat() for job in records if job.status == "done"]
    assert controller.stop() == 0
    assert worker.stop() == 0

"""Pods whose clocks are wrong or that are replaced: the database's clock says what is due and when a lease ends."""

from __future__ import annotations

import signal
from datetime import datetime, timedelta
from pathlib import Path

from processes import OwnProcess, eventually
from scenario import rows
from worker_place import Place

WRONG_CLOCK = str(Path(__file__).parents[1] / "wrong_clock")
SECOND = timedelta(seconds=1)


def controller(place: Place, **environment: str) -> OwnProcess:
    words = ("--no-kubernetes", "--log-format", "json", "--listen", "off", "--dashboard-listen", "off")
    return place.processes.start("controller", "--dsn", place.dsn, *words, **environment)


def secondly(place: Place, count: int) -> tuple[str, list[datetime]]:
    """A schedule with a slot in each of the next seconds; its name and its slots."""
    now: datetime = place.value("select date_trunc('second', clock_timestamp())")
    slots = [now + number * SECOND for number in range(2, count + 2)]
    name = place.schedules.add(
        task="succeed", overlapPolicy="Allow", catchUp={"policy": "RunAll"}, at=[slot.isoformat() for slot in slots]
    )
    return name, slots


def on_record(place: Place, name: str) -> list[datetime]:
    found = rows(place.connection, "select slot, slots from slotkeeper.job where schedule = %s order by slot", name)
    assert all(row.slots == 1 for row in found)
    return [row.slot for row in found]


def test_c048_a_controller_whose_clock_is_ahead_makes_no_slot_too_soon_and_misses_none(
    place: Place, tmp_path: Path
) -> None:
    """An hour ahead while its first slots fall due, then corrected; the database's clock was right all the time."""
    name, slots = secondly(place, 14)
    corrected, shown = tmp_path / "corrected", tmp_path / "shown"
    wrong = controller(
        place, PYTHONPATH=WRONG_CLOCK, CLOCK_AHEAD_SECONDS="3600",
        CLOCK_CORRECTED_ONCE=str(corrected), CLOCK_SHOWN_IN=str(shown),
    )  # fmt: skip

    def made() -> list[datetime]:
        found = on_record(place, name)
        assert found == slots[: len(found)], "one row for each slot, none missing"
        # Asked after the rows were read: a slot that is on record has come.
        assert all(slot <= place.value("select clock_timestamp()") for slot in found)
        return found

    eventually(lambda: len(made()) > 2, "slots of its wrong hour")
    assert datetime.fromisoformat(shown.read_text()) - place.value("select clock_timestamp()") > timedelta(minutes=50)
    corrected.touch()
    eventually(lambda: len(made()) == len(slots), "every slot has a row")
    assert wrong.running


def test_c057_c055_old_and_new_controller_beside_each_other_make_each_slot_once(place: Place) -> None:
    """A rolling deploy: the new one is there before the old one goes, and slots fall due all the while."""
    worker, old = place.worker(), controller(place)
    name, slots = secondly(place, 8)
    eventually(lambda: slots[0] in on_record(place, name), "the old one at work")
    new = controller(place)
    eventually(lambda: slots[3] in on_record(place, name), "a boundary with both alive")
    assert old.stop() == 0
    done = "select count(*) from slotkeeper.job where schedule = %s and status = 'done' and attempts = 1"
    eventually(lambda: place.value(done, name) == len(slots), "each slot done at its first attempt")
    assert on_record(place, name) == slots
    ran = [line["slot"] for line in place.processes.handled_runs()]
    assert sorted(ran) == [slot.isoformat() for slot in slots]
    for process in (old, new, worker):
        assert [line for line in process.log() if line.get("level") == "error"] == []


def test_c104_workers_whose_clocks_are_wrong_obey_the_database(place: Place) -> None:
    """Ten minutes ahead and ten minutes behind: nothing begins early, no living lease is taken, a dead one soon."""
    workers = {
        process.pid: process
        for ahead in ("600", "-600")
        for process in [place.worker(lease_seconds=2, PYTHONPATH=WRONG_CLOCK, CLOCK_AHEAD_SECONDS=ahead, concurrency=1)]
    }
    later = place.value("select clock_timestamp() + interval '5 minutes'")
    future = place.enqueue("succeed", run_at=later)
    # Longer than two leases; both workers hold one, so each could have taken the other's.
    long = [place.enqueue("sleep", '{"seconds": 5}') for _ in range(2)]
    assert {place.began(run)["pid"] for run in long} == set(workers)
    for run in long:
        assert place.ended(run).attempts == 1
        assert place.errors(run) == []
    now = place.value("select clock_timestamp()")
    for process in workers.values():  # their logs have their own time, so the clocks were wrong indeed
        assert abs(datetime.fromisoformat(process.log()[-1]["time"]) - now) > timedelta(minutes=5)
    assert (place.job(future).status, place.job(future).attempts) == ("ready", 0)
    place.connection.execute(
        "update slotkeeper.run set run_at = clock_timestamp() + interval '1 second' where id = %s", (future,)
    )
    done = place.ended(future)
    assert done.started_at >= done.run_at
    lost = place.enqueue("for_ever")
    first = place.began(lost)["pid"]
    workers.pop(first).send(signal.SIGKILL)
    eventually(lambda: len(place.noted(lost)) == 2, "taken over")
    (heir,) = workers
    assert place.noted(lost)[1]["pid"] == heir
    assert [kind for _, kind, _ in place.errors(lost)] == ["LeaseLost"]

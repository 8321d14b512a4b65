"""Churn of runs, errors, workers and schedules leaves the number of series as it was: no label names one of them."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

from applied_schedules import jobschedule
from processes import OwnProcess, eventually
from scenario import EPOCH, add_schedule, add_worker, fold, one, rows
from scraping import scrape
from slotkeeper.metrics.catalogue import DEFINITIONS
from worker_place import Place

RUNS, ERRORS, WORKERS, SCHEDULES = 10_000, 300, 500, 200
CONTROLLER = ("/metrics", "/metrics/schedules")


def _port(process: OwnProcess) -> int:
    return int(eventually(lambda: process.log("listening"), "it listens")[0]["port"])


def _series(port: int, *paths: str) -> set[tuple[str, ...]]:
    """Name and labels of every series."""
    return {
        (sample.name, *(f"{label}={value}" for label, value in sorted(sample.labels.items())))
        for path in paths
        for family in scrape(port, path).families.values()
        for sample in family.samples
    }


def _memory(process: OwnProcess) -> int:
    """Resident kilobytes."""
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def _churn(place: Place) -> None:
    """Everything that could make a label of its own, in numbers."""
    connection = place.connection
    connection.execute(
        "select slotkeeper.enqueue_v1('succeed', '{}', 'key-' || g, 'mail', 'default', null, 0::smallint, 6::smallint)"
        " from generate_series(1, %s) g",
        (RUNS,),
    )
    connection.execute(
        "select slotkeeper.enqueue_v1('t', '{}', 'odd-' || g, 'odd', 'default', null, 0::smallint, 6::smallint)"
        " from generate_series(1, %s) g",
        (ERRORS,),
    )
    odd = add_worker(connection, queues=["odd"], pool="odd")
    for number, run in enumerate(odd.claim(ERRORS)):
        odd.finish(run, "fatal", reason=f"Reason{number}", message=f"text {number}")
    for _ in range(WORKERS):
        worker = add_worker(connection, queues=["odd"], pool="odd")
        assert one(connection, "select slotkeeper.leave_v1(%s)", worker.id)
    for number in range(SCHEDULES):
        schedule = add_schedule(connection, f"short-{number}")
        schedule.materialise([EPOCH + timedelta(minutes=1)])
        connection.execute("select slotkeeper.retire_schedule_v1(%s, 'uid', clock_timestamp())", (schedule.id,))


def test_c129_churn_leaves_the_number_of_series_as_it_was(place: Place) -> None:
    """Every queue, pool and schedule that stays is known before; nothing else may become a label."""
    place.schedules.apply(jobschedule("stays", task="t", every={"periodSeconds": 86400}))
    controller = place.processes.controller(place.dsn, listen="127.0.0.1:0")
    worker = place.worker("--queues", "mail", listen="127.0.0.1:0")
    for queue in ("mail", "odd", "default"):  # of a schedule, the last one
        place.enqueue("succeed", queue=queue)
    odd = add_worker(place.connection, queues=["odd"], pool="odd")
    odd.finish_batch(odd.claim())
    ports = {"controller": _port(controller), "worker": _port(worker)}

    def look() -> dict[str, set[tuple[str, ...]]]:
        return {
            "controller": _series(ports["controller"], *CONTROLLER), "worker": _series(ports["worker"], "/metrics"),
        }  # fmt: skip

    def settled(done: int) -> bool:
        shown = scrape(ports["worker"])
        attempts = shown.value("slotkeeper_attempts_total", queue="mail", outcome="done")
        return attempts == done and shown.value("slotkeeper_queue_runs", queue="mail", state="ready") == 0

    eventually(lambda: settled(1), "the first run is shown")
    eventually(
        lambda: {"mail", "odd"} <= scrape(ports["controller"]).labels("slotkeeper_queue_runs", "queue"), "all queues"
    )
    before, memory = look(), _memory(controller)

    _churn(place)
    fold(place.connection)
    eventually(lambda: settled(1 + RUNS), "all runs are done and shown", seconds=50)
    eventually(
        lambda: scrape(ports["controller"]).value("slotkeeper_queue_runs", queue="odd", state="dead") == ERRORS,
        "the dead runs are shown",
    )
    eventually(
        lambda: scrape(ports["controller"], CONTROLLER[1]).labels("slotkeeper_schedule_info", "schedule") == {"stays"},
        "the deleted schedules are gone",
    )
    after = look()
    for process, series in before.items():
        assert after[process] == series, process
    assert _memory(controller) <= 1.2 * memory
    assert len(rows(place.connection, "select from slotkeeper.run_error")) >= ERRORS


def test_c129_no_label_names_a_run_a_key_an_error_a_slot_or_a_worker() -> None:
    allowed = {
        "namespace", "queue", "pool", "schedule", "state", "outcome", "became", "watched", "actor", "verb", "resource",
        "component", "version", "protocol", "tzdata", "python",
    }  # fmt: skip
    assert {label for definition in DEFINITIONS for label in definition.labels} <= allowed

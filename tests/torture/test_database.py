"""The database restarts, orderly and by a crash, while controllers, workers and producers are at work."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import psycopg

import scenario
from applied_schedules import jobschedule
from history import slots_without_exactly_one_outcome
from processes import OwnProcess, eventually
from slotkeeper import enqueue
from slotkeeper.cli.embedded_postgres import EmbeddedPostgres
from worker_place import Place


class Producer:
    """Enqueues all the time; knows which runs were acknowledged."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.acknowledged: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _produce(self) -> None:
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._dsn) as connection:
                    while not self._stop.wait(0.05):
                        made = enqueue(connection, "note.in_thread")
                        connection.commit()
                        self.acknowledged.append(made.id)
            except psycopg.OperationalError:
                self._stop.wait(0.1)


def restart(postgres: EmbeddedPostgres, *, crash: bool, away: float) -> None:
    postgres.stop(immediately=crash)
    time.sleep(away)
    postgres.start()


def test_processes_come_back_by_themselves_and_nothing_is_lost(
    durable_place: Place, durable_postgres: EmbeddedPostgres, torture_seconds: float
) -> None:
    place = durable_place
    place.schedules.apply(
        *[
            jobschedule(
                f"every-ten-{number}", every={"periodSeconds": 10}, task="note", overlapPolicy="Allow",
                catchUp={"policy": "RunAll", "maxRuns": 10_000},
            )
            for number in range(20)
        ]
    )  # fmt: skip
    after = place.value("select max(watermark) from slotkeeper.schedule")
    controllers = [place.processes.controller(place.dsn) for _ in range(2)]
    workers: list[OwnProcess] = [place.worker(lease_seconds=4, concurrency=5) for _ in range(3)]
    eventually(lambda: place.value("select count(*) from slotkeeper.worker") == 3, "the workers are there")
    producer = Producer(place.dsn)
    end = time.monotonic() + torture_seconds
    turn = 0
    place.connection.close()
    while time.monotonic() < end:
        time.sleep(3)
        # In turn: orderly and short, a crash, and away for longer than a lease.
        restart(durable_postgres, crash=turn % 3 == 1, away=5 if turn % 3 == 2 else 0)
        turn += 1
    time.sleep(1)
    producer.stop()
    place.connection = scenario.connect(place.dsn)
    until = place.value("select clock_timestamp()")
    eventually(
        lambda: place.value("select min(watermark) from slotkeeper.schedule") >= until, "every slot decided", seconds=60
    )
    eventually(
        lambda: place.value("select count(*) from slotkeeper.run where slot is null or slot <= %s", until) == 0,
        "every run has ended",
        seconds=60,
    )
    assert len(producer.acknowledged) > 20
    done = {row.id for row in scenario.rows(place.connection, "select id from slotkeeper.run_done where outcome = 0")}
    assert set(producer.acknowledged) <= done
    assert (
        slots_without_exactly_one_outcome(place.connection, period=timedelta(seconds=10), after=after, until=until)
        == []
    )
    # Every worker lived: no lease may have been taken from it.
    errors = scenario.rows(place.connection, "select run, attempt, kind, message from slotkeeper.run_error")
    assert errors == []
    began = [(line["run"], line["attempt"]) for line in place.processes.handled_runs() if line["what"] == "began"]
    assert len(began) == len(set(began))
    for process in (*controllers, *workers):
        assert process.running, process.text()[-3000:]
        assert process.stop() == 0, process.text()[-3000:]
        assert process.log("step_crashed") + process.log("background_failed") == []
    place.connection.close()


def test_living_workers_have_time_to_renew_after_a_restart(
    durable_place: Place, durable_postgres: EmbeddedPostgres
) -> None:
    """The reaper is back before them, and every lease has ended meanwhile: it must wait for their first beat."""
    place = durable_place
    controller = place.processes.controller(place.dsn)
    workers = [place.worker(lease_seconds=3, concurrency=2) for _ in range(2)]
    runs = [place.enqueue("nap", '{"seconds": 8}') for _ in range(3)]
    for run in runs:
        place.began(run)
    for worker in workers:
        worker.freeze()
    place.connection.close()
    restart(durable_postgres, crash=True, away=3.2)
    place.connection = scenario.connect(place.dsn)
    eventually(
        lambda: place.value("select postmaster_start = pg_postmaster_start_time() from slotkeeper.fleet"),
        "the reaper has looked",
    )
    assert place.value("select bool_and(lease_until < clock_timestamp()) from slotkeeper.worker")
    for worker in workers:
        worker.thaw()
    for run in runs:
        assert place.ended(run).attempts == 1
    assert place.value("select count(*) from slotkeeper.run_error") == 0
    for process in (controller, *workers):
        assert process.stop() == 0
    place.connection.close()

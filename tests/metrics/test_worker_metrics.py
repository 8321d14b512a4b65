"""A real worker process: what it counts, what it knows of its queues, and its probes."""

from __future__ import annotations

import signal
import socket
from datetime import UTC, datetime, timedelta

from applied_schedules import jobschedule
from processes import OwnProcess, eventually
from scenario import add_worker, enqueue
from scraping import Scrape, get, scrape
from slotkeeper.metrics.catalogue import DEFINITIONS
from slotkeeper.store.metrics import needed_schema
from worker_place import Place

ATTEMPTS = "slotkeeper_attempts_total"
DELAY, DURATION = "slotkeeper_attempt_start_delay_seconds", "slotkeeper_attempt_duration_seconds"


def port_of(process: OwnProcess) -> int:
    """That it listens on, by its log."""
    return int(eventually(lambda: process.log("listening"), "it listens")[0]["port"])


def counted(port: int, attempts: int) -> Scrape:
    """The first scrape that shows so many attempts."""
    return eventually(
        lambda: sum((shown := scrape(port)).values(ATTEMPTS)) == attempts and shown, f"{attempts} attempts shown"
    )


def test_attempts_by_outcome_with_their_times(place: Place) -> None:
    place.enqueue("succeed", queue="mail")
    place.enqueue("succeed", queue="mail", priority=1)  # another lane of the same queue
    place.enqueue("give_up", queue="mail")
    place.enqueue("fail", queue="slow")
    place.enqueue("sleep", '{"seconds": 0.2}', queue="slow")
    place.enqueue("nobody_has_this", queue="slow")
    worker = place.worker(listen="127.0.0.1:0", pool="big")
    port = port_of(worker)
    eventually(lambda: place.value("select count(*) from slotkeeper.run_done") == 3, "three are done")
    eventually(lambda: place.value("select count(*) from slotkeeper.run where attempt > 0 and state = 0") == 2, "back")
    shown = counted(port, 6)
    mail, slow = {"namespace": "default", "queue": "mail", "pool": "big"}, {"queue": "slow", "pool": "big"}
    outcomes = {outcome: shown.value(ATTEMPTS, **mail, outcome=outcome) for outcome in ("done", "dead", "failed")}
    assert outcomes == {"done": 2, "dead": 1, "failed": 0}
    assert shown.value(ATTEMPTS, **slow, outcome="failed") == 1
    assert shown.value(ATTEMPTS, **slow, outcome="infrastructure") == 1
    assert shown.value(f"{DURATION}_count", **mail) == 3
    assert shown.value(f"{DURATION}_count", **slow) == 2  # one never began
    assert (shown.value(f"{DURATION}_sum", **slow) or 0) >= 0.2
    assert shown.value(f"{DURATION}_bucket", **slow, le="0.1") == 1
    assert shown.value(f"{DELAY}_bucket", **mail, le="+Inf") == shown.value(f"{DELAY}_count", **mail) == 3
    openmetrics = scrape(port, openmetrics=True)
    assert openmetrics.value(ATTEMPTS, **mail, outcome="done") == 2
    wanted = {definition.name.removesuffix("_total") for definition in DEFINITIONS if "worker" in definition.where}
    assert {name for name in shown.families if not name.startswith("process_")} == wanted
    assert all(family.documentation for family in shown.families.values())


def test_a_first_attempt_is_late_since_its_slot(place: Place) -> None:
    """Half an hour ago; the row is younger, because the ticker was late too. An ad-hoc run is late since its run_at."""
    slot = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=30)
    anchor = {"periodSeconds": 3600, "anchorTime": (slot - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")}
    place.schedules.apply(jobschedule("late", task="succeed", every=anchor, queue="slots"))
    assert place.schedules.fire("late", back=timedelta(minutes=40)) == slot
    place.enqueue("succeed", queue="others")
    port = port_of(place.worker(listen="127.0.0.1:0"))
    eventually(lambda: place.value("select count(*) from slotkeeper.run_done") == 2, "both are done")
    shown = counted(port, 2)
    assert (shown.value(f"{DELAY}_sum", queue="slots") or 0) >= 1800
    assert (shown.value(f"{DELAY}_sum", queue="others") or 1800) < 1800


def test_a_worker_shows_the_depth_of_its_own_queues(place: Place) -> None:
    """Nobody runs these: they need a higher number of attempts' worth of luck than a worker without concurrency has."""
    doomed = add_worker(place.connection, namespaces=["shop"])
    place.enqueue("succeed", namespace="shop")
    doomed.finish(doomed.claim()[0], "fatal", reason="No")
    place.enqueue("succeed", namespace="theirs")
    worker = place.worker(namespaces="shop", listen="127.0.0.1:0", concurrency=1)
    run = place.enqueue("for_ever", namespace="shop")
    place.began(run)
    for _ in range(2):
        place.enqueue("succeed", namespace="shop")
    place.connection.execute(
        "update slotkeeper.run set run_at = clock_timestamp() - interval '10 minutes' where state = 0"
    )
    port = port_of(worker)
    shown = eventually(
        lambda: (now := scrape(port)).value("slotkeeper_queue_runs", namespace="shop", state="ready") == 2 and now,
        "two are ready",
    )
    assert shown.value("slotkeeper_queue_runs", namespace="shop", state="dead") == 1
    assert 600 <= (shown.value("slotkeeper_queue_oldest_ready_age_seconds", namespace="shop") or 0) < 3600
    assert shown.labels("slotkeeper_queue_runs", "namespace") == {"shop"}
    assert shown.value("slotkeeper_worker_runs") == 1
    assert shown.value("slotkeeper_worker_ready") == 1
    worker.kill()


def test_a_worker_counts_the_leases_that_it_reaps(place: Place) -> None:
    gone = add_worker(place.connection, pool="apps", queues=["mail"])
    enqueue(place.connection, task="succeed", queue="mail")
    assert gone.claim()
    gone.expire()
    port = port_of(place.worker("--queues", "mail,reports", listen="127.0.0.1:0"))
    name = "slotkeeper_lease_expirations_total"
    eventually(lambda: scrape(port).value(name, queue="mail", pool="apps", became="ready") == 1, "it is counted")
    assert scrape(port).value(name, queue="mail", pool="default", became="ready") == 0, "of its own pool beforehand"


def test_a_draining_worker_is_not_ready_before_it_ends(place: Place) -> None:
    worker = place.worker(listen="127.0.0.1:0", drain_seconds=600)
    run = place.enqueue("for_ever")
    place.began(run)
    port = port_of(worker)
    assert (get(port, "/readyz").status, get(port, "/livez").status) == (200, 200)
    worker.send(signal.SIGTERM)
    eventually(lambda: get(port, "/readyz").status == 503, "it is not ready any more")
    assert place.job(run).status == "running"  # the drain has not ended: nothing but a second signal will end it
    assert get(port, "/livez").status == 200
    assert scrape(port).value("slotkeeper_worker_ready") == 0
    assert worker.stop() == 0
    assert place.job(run).status == "ready"


def test_a_worker_without_its_database_lives_and_is_not_ready(place: Place) -> None:
    worker = place.processes.worker("host=/nowhere dbname=x", place.handlers, listen="127.0.0.1:0")
    port = port_of(worker)
    eventually(lambda: worker.log("database_away"), "it has tried")
    assert (get(port, "/readyz").status, get(port, "/livez").status) == (503, 200)
    assert scrape(port).value("slotkeeper_database_up") == 0
    assert worker.stop() == 0


def test_a_port_that_is_taken_is_said_in_one_line(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for process in (place.worker(listen=address), place.processes.controller(place.dsn, listen=address)):
            assert process.wait() == 2
            (line,) = process.text().splitlines()
            assert line.startswith(f"slotkeeper: --listen: cannot listen on {address}: ")
            assert line.endswith("another ADDRESS:PORT, or off")


def test_a_controller_process_serves_and_stops(place: Place) -> None:
    controller = place.processes.controller(place.dsn, "--max-schedule-series", "0", listen="127.0.0.1:0")
    port = port_of(controller)
    eventually(lambda: get(port, "/readyz").status == 200, "it is ready")
    assert get(port, "/livez").status == 200
    place.schedules.add(task="succeed")
    assert scrape(port, "/metrics/schedules").labels("slotkeeper_schedule_info", "schedule") == set()
    assert scrape(port).value("slotkeeper_schema_version") == needed_schema()
    assert controller.stop() == 0

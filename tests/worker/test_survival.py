"""A worker's lease outlives what its handlers do to it, and its runs outlive the worker."""

from __future__ import annotations

from psycopg.conninfo import make_conninfo

from processes import eventually
from worker_place import HANDLERS, Place


def lost_leases(place: Place) -> int:
    return int(place.value("select count(*) from slotkeeper.run_error where kind = 'LeaseLost'"))


def test_handlers_that_hog_the_processor_or_block_the_loop_do_not_lose_the_lease(place: Place) -> None:
    """Longer than two leases, with another worker at hand that would take the runs."""
    place.worker(lease_seconds=1, concurrency=4)
    runs = [place.enqueue("burn", '{"seconds": 2.5}'), place.enqueue("block_the_loop", '{"seconds": 2.5}')]
    for run in runs:
        place.began(run)
    place.worker(lease_seconds=1)
    for run in runs:
        assert place.ended(run).attempts == 1
    assert lost_leases(place) == 0


def test_a_run_that_kills_its_workers_ends_dead_and_the_others_are_done(place: Place) -> None:
    poison = place.enqueue("poison", max_attempts=2)
    others = [place.enqueue("sleep", '{"seconds": 0.2}') for _ in range(10)]
    workers = [place.worker(lease_seconds=1) for _ in range(3)]

    def hurry(run: int, status: str) -> bool:
        place.hurry(run)  # a second lost lease comes back with a back-off
        return bool(place.job(run).status == status)

    eventually(lambda: hurry(poison, "dead"), "the poison dead")
    job = place.job(poison)
    assert (job.reason, job.attempts, job.charged) == ("LeaseLost", 2, 2)
    assert len(place.noted(poison)) == 2
    assert [error[:2] for error in place.errors(poison)] == [(1, "LeaseLost"), (2, "LeaseLost")]
    eventually(lambda: all(hurry(run, "done") for run in others), "the others done")
    assert [worker.running for worker in workers].count(True) == 1


def test_outcomes_that_wait_while_the_database_refuses_are_recorded_later(place: Place) -> None:
    """A lock on the history stands for a database that is slow: nothing is lost, nothing runs twice."""
    place.worker(lease_seconds=30)
    place.ended(place.enqueue("succeed"))
    with place.connection.transaction():
        place.connection.execute("lock table slotkeeper.run_done in access exclusive mode")
        runs = [place.enqueue("sleep", '{"seconds": 0.1}') for _ in range(3)]
    for run in runs:
        assert place.ended(run).attempts == 1


def cut(place: Place) -> None:
    """The server ends every session of the worker."""
    place.value(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where datname = current_database() and application_name like 'slotkeeper %%'"
    )


def test_a_connection_that_is_cut_again_and_again_loses_nothing(place: Place) -> None:
    """Every session of the worker is ended by the server while it claims and finishes."""
    worker = place.worker(lease_seconds=30, concurrency=5)
    runs = [place.enqueue(task) for task in ("succeed", "succeed.in_thread") for _ in range(150)]
    for number in range(10):
        eventually(
            lambda number=number: (  # type: ignore[misc]
                place.value("select count(*) from slotkeeper.run_done") >= min(20 * (number + 1), 300)
            ),
            "some done",
        )
        cut(place)
    for run in runs:
        assert place.ended(run).attempts == 1
    assert worker.running
    assert sorted(line["run"] for line in place.processes.handled_runs()) == sorted(runs)
    assert lost_leases(place) == 0
    cut(place)
    assert worker.stop() == 0
    assert place.value("select count(*) from slotkeeper.worker") == 0, "though its last connection was cut"


def test_runs_with_one_attempt_do_not_wait_for_the_next_poll(place: Place) -> None:
    """They are never prefetched, so a claim that asks for more comes back short: that is not the end of the lane."""
    place.worker(poll_seconds=60, concurrency=5)
    place.ended(place.enqueue("succeed"))  # its time is measured: from now on claims ask for more than is free
    with place.connection.transaction():
        runs = [place.enqueue("succeed", max_attempts=1) for _ in range(60)]
    for run in runs:
        place.ended(run)


def test_c102_a_claim_that_a_statement_timeout_cancels_is_tried_again(place: Place) -> None:
    """Somebody holds the queue's lane for several times as long as the login's statements may take."""
    impatient = make_conninfo(place.dsn, options="-c statement_timeout=200ms")
    worker = place.processes.worker(impatient, HANDLERS, lease_seconds=30)
    place.ended(place.enqueue("succeed"))
    lane = place.value("select id from slotkeeper.lane")
    with place.connection.transaction():
        place.connection.execute("select pg_advisory_xact_lock(1936420971, %s)", (lane,))
        run = place.enqueue("succeed")
        waiting = (
            "select array_agg(distinct (a.pid, a.query_start)::text)"
            " from pg_locks l join pg_stat_activity a using (pid)"
            " where l.locktype = 'advisory' and l.objid = %s and not l.granted"
        )
        claims: set[str] = set()
        while len(claims) < 6:  # each waits, is cancelled, and another one follows it
            claims.update(place.value(waiting, lane) or ())
            place.value("select pg_sleep(0.05), pg_stat_clear_snapshot()")
    assert place.ended(run).attempts == 1
    assert worker.running

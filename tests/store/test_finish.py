"""Outcomes: what becomes of an attempt, who may say so, and what is on record afterwards."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from scenario import add_schedule, add_worker, enqueue, one, reap, records, rows

Connection = psycopg.Connection[Any]
SLOT = datetime(2020, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def due_now(connection: Connection) -> None:
    connection.execute("update slotkeeper.run set run_at = clock_timestamp() where state = 0")


def test_a_batch_of_successes_becomes_history(connection: Connection) -> None:
    ids = [enqueue(connection).id for _ in range(10)]
    worker = add_worker(connection)
    worker.finish_batch(worker.claim())
    done = records(connection, "select * from slotkeeper.run_done order by id")
    assert [row["id"] for row in done] == ids
    assert {(row["outcome"], row["attempt"], row["worker"]) for row in done} == {(0, 1, worker.id)}
    for table in ("run", "claim_batch"):
        assert one(connection, f"select count(*) from slotkeeper.{table}") == 0


def test_a_batch_that_is_not_wholly_ours_changes_nothing(connection: Connection) -> None:
    enqueue(connection)
    enqueue(connection)
    worker = add_worker(connection)
    runs = worker.claim()
    connection.execute("update slotkeeper.run set token = %s where id = %s", (uuid.uuid4(), runs[0].id))
    with pytest.raises(psycopg.DatabaseError) as caught:
        worker.finish_batch(runs)
    assert caught.value.sqlstate == "SK001"
    assert one(connection, "select count(*) from slotkeeper.run") == 2
    assert [worker.finish(run).answer for run in runs] == ["fenced", "recorded"]


def test_a_resent_finish_is_told_that_it_stands(connection: Connection) -> None:
    schedule = add_schedule(connection)
    schedule.materialise([SLOT])
    enqueue(connection)
    worker = add_worker(connection)
    for run in worker.claim():
        assert (worker.finish(run).answer, worker.finish(run).answer) == ("recorded", "already")
        assert worker.finish(run, token=uuid.uuid4()).answer == "fenced"


@pytest.mark.parametrize("kind", ["failed", "infrastructure", "snoozed", "interrupted", "unstarted"])
def test_a_resent_return_is_told_that_it_stands(connection: Connection, kind: str) -> None:
    enqueue(connection)
    worker = add_worker(connection)
    (run,) = worker.claim()
    assert worker.finish(run, kind, seconds=60, reason="Away").answer == "recorded"
    assert worker.finish(run, kind, seconds=60, reason="Away").answer == "already"
    due_now(connection)
    (again,) = worker.claim()
    assert worker.finish(run).answer == ("already" if kind in ("failed", "infrastructure") else "fenced")
    assert again.attempt == 2


def test_a_failure_comes_back_after_a_jittered_back_off(connection: Connection) -> None:
    enqueue(connection)
    worker = add_worker(connection)
    (run,) = worker.claim()
    before = one(connection, "select clock_timestamp()")
    answer = worker.finish(run, "failed", reason="ValueError", message="no")
    assert (answer.answer, answer.became) == ("recorded", "ready")
    assert before <= answer.run_at <= before + timedelta(seconds=31)
    stored = records(connection, "select * from slotkeeper.run")[0]
    assert (stored["state"], stored["charged"], stored["attempt"], stored["token"], stored["worker"]) == (
        0,
        1,
        1,
        None,
        None,
    )
    error = records(connection, "select * from slotkeeper.run_error")[0]
    assert (error["kind"], error["message"], error["attempt"]) == ("ValueError", "no", 1)


def test_the_last_failure_is_dead_and_the_reason_is_kept(connection: Connection) -> None:
    schedule = add_schedule(connection, max_attempts=2, backoff=(0, 0))
    schedule.materialise([SLOT])
    worker = add_worker(connection)
    for attempt in (1, 2):
        (run,) = worker.claim()
        assert run.attempt == attempt
        answer = worker.finish(run, "failed", reason="ValueError", message="no")
    assert answer.became == "dead"
    assert schedule.job() == [(SLOT, "dead", "RetriesExhausted")]
    assert one(connection, "select last_error from slotkeeper.job") == "ValueError: no"
    assert worker.claim() == []


def test_a_fatal_error_is_dead_at_once(connection: Connection) -> None:
    enqueue(connection)
    worker = add_worker(connection)
    assert worker.finish(worker.claim()[0], "fatal", reason="NonRetryable", message="bad").became == "dead"
    assert one(connection, "select reason from slotkeeper.run_dead") == "NonRetryable"


@pytest.mark.parametrize("kind", ["snoozed", "infrastructure"])
def test_uncharged_returns_are_bounded(connection: Connection, kind: str) -> None:
    """max(20, 3 * maxAttempts) of them are free; the following ones count, so nothing loops for ever."""
    enqueue(connection, max_attempts=2)
    worker = add_worker(connection)
    became = ""
    while became != "dead":
        due_now(connection)
        (run,) = worker.claim()
        became = worker.finish(run, kind, seconds=0, reason="Away").became
    assert run.attempt == 22
    assert one(connection, "select reason from slotkeeper.run_dead") == "RetriesExhausted"


def test_a_drain_costs_nothing_however_often(connection: Connection) -> None:
    schedule = add_schedule(connection, max_attempts=1)
    schedule.materialise([SLOT])
    worker = add_worker(connection)
    for attempt in range(1, 40):
        (run,) = worker.claim()
        assert (run.attempt, run.charged) == (attempt, 1)
        assert worker.finish(run, "unstarted").became == "ready"
    stored = schedule.runs()[0]
    assert (stored["charged"], stored["returns"], stored["first_started_at"]) == (0, 0, None)


def test_an_interrupted_run_stays_started(connection: Connection) -> None:
    schedule = add_schedule(connection)
    schedule.materialise([SLOT])
    worker = add_worker(connection)
    worker.finish(worker.claim()[0], "interrupted")
    first = schedule.runs()[0]["first_started_at"]
    assert first is not None
    worker.finish(worker.claim()[0], "unstarted")
    assert schedule.runs()[0]["first_started_at"] == first


def test_no_handler_gives_the_start_back(connection: Connection) -> None:
    schedule = add_schedule(connection, backoff=(0, 0))
    schedule.materialise([SLOT])
    worker = add_worker(connection)
    worker.finish(worker.claim()[0], "infrastructure", reason="NoHandler")
    stored = schedule.runs()[0]
    assert (stored["first_started_at"], stored["charged"], stored["returns"]) == (None, 0, 1)


def test_the_active_deadline_ends_a_run_that_would_come_back_too_late(connection: Connection) -> None:
    schedule = add_schedule(connection, active_deadline=1, backoff=(0, 0))
    schedule.materialise([SLOT])
    worker = add_worker(connection)
    (run,) = worker.claim()
    connection.execute("update slotkeeper.run set first_started_at = first_started_at - interval '1 hour'")
    assert worker.finish(run, "failed", reason="ValueError").became == "dead"
    assert schedule.job() == [(SLOT, "dead", "ActiveDeadlineExceeded")]


@pytest.mark.parametrize(("kind", "reason"), [("infrastructure", "NoHandler"), ("unstarted", "")])
def test_the_active_deadline_does_not_run_before_a_run_has_started(
    connection: Connection, kind: str, reason: str
) -> None:
    """In a rolling deploy nobody may have its handler for longer than the deadline."""
    schedule = add_schedule(connection, active_deadline=1)
    schedule.materialise([SLOT])
    worker = add_worker(connection)
    (run,) = worker.claim()
    assert worker.finish(run, kind, reason=reason, seconds=3600).became == "ready"
    assert schedule.runs()[0]["first_started_at"] is None


@pytest.mark.parametrize("number", [1, 2, 12, 13, 31, 32, 63, 64, 310, 1024, 5000])
def test_back_off_stays_within_its_bound(connection: Connection, number: int) -> None:
    bound = min(3600, 2 ** (number - 1))
    low, high, mean = rows(
        connection,
        "select min(s), max(s), avg(s) from (select extract(epoch from slotkeeper.back_off(%s, 1, 3600)) as s"
        " from generate_series(1, 10000)) d", number,
    )[0]  # fmt: skip
    assert low >= 0
    assert high <= bound
    assert float(mean) == pytest.approx(bound / 2, rel=0.05)


def test_a_lost_lease_comes_back_at_once_and_is_charged(connection: Connection) -> None:
    enqueue(connection)
    worker, other = add_worker(connection), add_worker(connection)
    (lost,) = worker.claim()
    worker.expire()
    assert reap(connection).given_back == 1
    (again,) = other.claim()
    assert (again.id, again.attempt, again.charged, again.lost) == (lost.id, 2, 2, 1)
    assert one(connection, "select kind from slotkeeper.run_error") == "LeaseLost"
    assert one(connection, "select count(*) from slotkeeper.worker") == 1
    assert worker.finish(lost).answer == "fenced"
    assert other.finish(again).answer == "recorded"


def test_a_late_finish_is_accepted_while_nobody_has_claimed_the_run(connection: Connection) -> None:
    enqueue(connection)
    worker = add_worker(connection)
    (run,) = worker.claim()
    worker.expire()
    reap(connection)
    assert worker.finish(run, "snoozed", seconds=60).answer == "already"
    assert worker.finish(run).answer == "recorded"
    assert one(connection, "select count(*) from slotkeeper.run_error") == 0
    assert one(connection, "select outcome from slotkeeper.run_done") == 0


def test_a_late_failure_stands_in_place_of_the_lost_lease(connection: Connection) -> None:
    enqueue(connection)
    worker = add_worker(connection)
    (run,) = worker.claim()
    worker.expire()
    reap(connection)
    assert worker.finish(run, "failed", reason="ValueError").became == "ready"
    assert [row.kind for row in rows(connection, "select kind from slotkeeper.run_error")] == ["ValueError"]
    stored = records(connection, "select charged, lost from slotkeeper.run")[0]
    assert stored == {"charged": 1, "lost": 0}


def test_a_run_that_kills_its_workers_ends_dead_and_nothing_is_accepted_afterwards(connection: Connection) -> None:
    enqueue(connection, max_attempts=3)
    for _ in range(3):
        worker = add_worker(connection)
        due_now(connection)
        (run,) = worker.claim()
        worker.expire()
        reap(connection)
    assert one(connection, "select reason from slotkeeper.run_dead") == "LeaseLost"
    assert worker.finish(run).answer == "fenced"
    assert one(connection, "select count(*) from slotkeeper.run_error") == 3


def test_reaping_pauses_when_the_clock_steps_forward(connection: Connection) -> None:
    enqueue(connection)
    worker = add_worker(connection)
    worker.claim()
    reap(connection)
    worker.expire()
    expected = one(connection, "select clock_timestamp() - interval '1 hour'")
    first = reap(connection, expected=expected)
    assert first.given_back == 0
    # 60 s lease: a beat of 20 s and a tenth more; always less than a lease.
    pause = first.paused_until - one(connection, "select clock_timestamp()")
    assert timedelta(seconds=25) < pause <= timedelta(seconds=30)
    assert reap(connection).given_back == 0, "every process obeys the pause"
    connection.execute("update slotkeeper.fleet set reap_paused_until = 'epoch'")
    assert reap(connection).given_back == 1


def test_reaping_pauses_after_a_restart_and_for_a_silent_fleet(connection: Connection) -> None:
    worker = add_worker(connection)
    reap(connection)
    worker.expire()
    connection.execute("update slotkeeper.worker set beat_at = beat_at - interval '1 hour'")
    reap(connection, starting=True)
    assert one(connection, "select reap_pause_reason from slotkeeper.fleet") == "SilentFleet"
    connection.execute("update slotkeeper.fleet set reap_paused_until = 'epoch', postmaster_start = 'epoch'")
    reap(connection)
    assert one(connection, "select reap_pause_reason from slotkeeper.fleet") == "PostmasterStart"
    assert one(connection, "select count(*) from slotkeeper.worker") == 1


def test_a_beat_moves_the_lease_and_never_inserts(connection: Connection) -> None:
    worker = add_worker(connection)
    worker.expire()
    (beat,) = rows(connection, "select * from slotkeeper.beat_v1(%s)", worker.id)
    assert beat.lease_until > one(connection, "select clock_timestamp() + interval '50 seconds'")
    worker.expire()
    reap(connection)
    assert rows(connection, "select * from slotkeeper.beat_v1(%s)", worker.id) == []
    assert one(connection, "select count(*) from slotkeeper.worker") == 0


def test_a_worker_leaves_only_when_it_owns_nothing(connection: Connection) -> None:
    enqueue(connection)
    worker = add_worker(connection)
    (run,) = worker.claim()
    assert not one(connection, "select slotkeeper.leave_v1(%s)", worker.id)
    worker.finish(run, "unstarted")
    assert one(connection, "select slotkeeper.leave_v1(%s)", worker.id)


def test_running_rows_without_a_worker_or_a_claim_are_found(connection: Connection) -> None:
    enqueue(connection)
    enqueue(connection)
    first, second = add_worker(connection), add_worker(connection)
    first.claim(free=1)
    second.claim(free=1)
    connection.execute("delete from slotkeeper.worker where id = %s", (first.id,))
    connection.execute("delete from slotkeeper.claim_batch where worker = %s", (second.id,))
    assert one(connection, "select orphans from slotkeeper.sweep_v1()") == 2
    assert one(connection, "select count(*) from slotkeeper.run where state = 0 and lost = 1") == 2


def test_complete_commits_with_the_handlers_own_writes(connection: Connection, other: Connection) -> None:
    schedule = add_schedule(connection)
    schedule.materialise([SLOT])
    other.execute("create table ledger (slot timestamptz)")
    worker = add_worker(connection)
    (run,) = worker.claim()
    with other.transaction(force_rollback=True):
        other.execute("insert into ledger values (%s)", (run.slot,))
        assert one(other, "select slotkeeper.complete_v1(%s, %s)", run.id, run.token)
    assert schedule.job() == [(SLOT, "running", None)]
    with other.transaction():
        other.execute("insert into ledger values (%s)", (run.slot,))
        assert one(other, "select slotkeeper.complete_v1(%s, %s)", run.id, run.token)
    assert schedule.job() == [(SLOT, "done", None)]
    assert worker.finish(run).answer == "already"
    assert one(connection, "select count(*) from ledger") == 1


def test_complete_is_refused_when_the_run_belongs_to_another_attempt(connection: Connection) -> None:
    enqueue(connection)
    worker = add_worker(connection)
    (run,) = worker.claim()
    worker.expire()
    reap(connection)
    (again,) = add_worker(connection).claim()
    assert not one(connection, "select slotkeeper.complete_v1(%s, %s)", run.id, run.token)
    assert one(connection, "select slotkeeper.complete_v1(%s, %s)", again.id, again.token)


def test_a_cancelled_run_ends_at_once_or_when_its_worker_says_so(connection: Connection) -> None:
    ready, running = enqueue(connection, run_at=datetime.now(UTC) + HOUR), enqueue(connection)
    worker = add_worker(connection)
    (run,) = worker.claim()
    became = {
        row.id: row.became
        for row in rows(connection, "select * from slotkeeper.cancel_v1(%s)", [ready.id, running.id, 99])
    }
    assert became == {ready.id: "cancelled", running.id: "running", 99: "gone"}
    assert rows(connection, "select cancelled from slotkeeper.beat_v1(%s)", worker.id)[0].cancelled == [running.id]
    assert worker.finish(run, "failed", reason="Cancelled").became == "cancelled"
    assert {row.status for row in rows(connection, "select status from slotkeeper.job")} == {"cancelled"}


def test_a_success_of_a_cancelled_run_is_recorded(connection: Connection) -> None:
    enqueue(connection)
    worker = add_worker(connection)
    (run,) = worker.claim()
    connection.execute("select slotkeeper.cancel_v1(array[%s::bigint])", (run.id,))
    assert worker.finish(run).became == "done"


def test_a_cancelled_run_whose_lease_ends_is_cancelled(connection: Connection) -> None:
    enqueue(connection)
    worker = add_worker(connection)
    (run,) = worker.claim()
    connection.execute("select slotkeeper.cancel_v1(array[%s::bigint])", (run.id,))
    worker.expire()
    reap(connection)
    assert one(connection, "select status from slotkeeper.job") == "cancelled"


def test_a_requeued_run_lives_again_with_its_attempt_number(connection: Connection) -> None:
    schedule = add_schedule(connection, max_attempts=1)
    schedule.materialise([SLOT])
    worker = add_worker(connection)
    (run,) = worker.claim()
    worker.finish(run, "failed", reason="ValueError")
    assert rows(connection, "select became from slotkeeper.requeue_v1(%s)", [run.id])[0].became == "ready"
    assert rows(connection, "select became from slotkeeper.requeue_v1(%s)", [run.id])[0].became == "live"
    (again,) = worker.claim()
    assert (again.id, again.attempt, again.charged, again.trigger) == (run.id, 2, 1, 4)
    worker.finish(again)
    assert schedule.job() == [(SLOT, "done", None)]
    assert rows(connection, "select became from slotkeeper.requeue_v1(%s)", [run.id])[0].became == "gone"

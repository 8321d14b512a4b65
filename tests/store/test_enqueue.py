"""Ad-hoc runs: once per key, in the caller's transaction, and what is refused."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import scenario
from scenario import add_worker, enqueue, one, records, rows

Connection = psycopg.Connection[Any]


def test_a_run_is_stored_as_it_was_asked_for(connection: Connection) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    answer = enqueue(
        connection,
        "mail.send",
        payload='{"to": 1}',
        queue="mail",
        namespace="shop",
        run_at=later,
        priority=2,
        max_attempts=3,
    )
    job = records(connection, "select * from slotkeeper.job")[0]
    assert answer == (int(job["id"]), True)
    assert (job["type"], job["payload"], job["queue"], job["namespace"]) == ("mail.send", {"to": 1}, "mail", "shop")
    assert (job["run_at"], job["priority"], job["max_attempts"], job["trigger"]) == (later, 2, 3, "Enqueue")


def test_a_time_in_the_past_is_now(connection: Connection) -> None:
    """Not earlier: the bound of a claim may have passed it already."""
    before = one(connection, "select clock_timestamp()")
    enqueue(connection, run_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert one(connection, "select run_at from slotkeeper.run") >= before


def test_a_key_makes_one_run_in_its_namespace(connection: Connection) -> None:
    first = enqueue(connection, key="k")
    assert enqueue(connection, key="k") == (first.id, False)
    assert enqueue(connection, key="k", namespace="shop").created
    assert enqueue(connection, key="K").created
    assert one(connection, "select count(*) from slotkeeper.run") == 3


def test_a_run_that_was_rolled_back_never_was(connection: Connection) -> None:
    with connection.transaction(force_rollback=True):
        assert enqueue(connection, key="k").created
    assert add_worker(connection).claim() == []
    assert enqueue(connection, key="k").created


def test_fifty_producers_with_one_key(connection: Connection, dsn: str) -> None:
    """Half in open transactions, some of which roll back: one row, one id for all that committed, one creator."""
    answers, begin = [], threading.Barrier(50)

    def produce(number: int) -> None:
        dice = random.Random(number)
        with scenario.connect(dsn) as own:
            begin.wait()
            if number % 2:
                answers.append(enqueue(own, key="k"))
                return
            with own.transaction():
                answer = enqueue(own, key="k")
                own.execute("select pg_sleep(0.005)")  # open for a moment, so that others meet it
                if dice.random() < 0.5:
                    raise psycopg.Rollback
                answers.append(answer)

    with ThreadPoolExecutor(50) as pool:
        for done in [pool.submit(produce, number) for number in range(50)]:
            done.result()
    assert len(answers) >= 25
    assert len({answer.id for answer in answers}) == 1
    assert one(connection, "select array_agg(id) from slotkeeper.run") == [answers[0].id]
    assert sum(answer.created for answer in answers) == 1


def test_the_second_caller_waits_for_the_first_and_takes_its_place_if_it_rolls_back(
    connection: Connection, other: Connection
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with connection.transaction():
            first = enqueue(connection, key="k")
            second = pool.submit(enqueue, other, key="k")
            with pytest.raises(TimeoutError):
                second.result(timeout=0.2)
            raise psycopg.Rollback
        assert second.result().created
    assert second.result().id != first.id


def test_a_login_without_a_grant_may_not_enqueue(connection: Connection) -> None:
    connection.execute("update slotkeeper.queue_grant set queue = 'mail', namespace = 'shop'")
    assert enqueue(connection, queue="mail", namespace="shop").created
    for queue, namespace in (("default", "shop"), ("mail", "default")):
        with pytest.raises(psycopg.DatabaseError) as caught:
            enqueue(connection, queue=queue, namespace=namespace)
        assert caught.value.sqlstate == "SK003"
        assert "slotkeeper.queue_grant" in (caught.value.diag.message_hint or "")
    connection.execute("update slotkeeper.queue_grant set queue = '*', namespace = '*', may_enqueue = false")
    with pytest.raises(psycopg.DatabaseError):
        enqueue(connection)


@pytest.mark.parametrize("key", ["", "k" * 256, "é" * 128])
def test_a_key_has_1_to_255_bytes(connection: Connection, key: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        enqueue(connection, key=key)
    assert one(connection, "select count(*) from slotkeeper.run") == 0
    assert enqueue(connection, key="é" * 127).created


@pytest.mark.parametrize("payload", ["", "{", "{} {}", '{"a": "\\u0000"}', "{'a': 1}"])
def test_a_payload_that_the_job_view_could_not_show_is_refused(connection: Connection, payload: str) -> None:
    with pytest.raises(psycopg.errors.DataError):
        enqueue(connection, payload=payload, key="k")
    assert rows(connection, "select * from slotkeeper.job") == []
    assert enqueue(connection, key="k").created


def test_a_dead_run_still_holds_its_key(connection: Connection) -> None:
    first = enqueue(connection, key="k")
    worker = add_worker(connection)
    worker.finish(worker.claim()[0], "fatal")
    assert enqueue(connection, key="k") == (first.id, False)

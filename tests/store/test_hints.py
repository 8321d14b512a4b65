"""Hints by NOTIFY: what tells an idle worker that there may be something to claim. They carry nothing to rely on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg

from scenario import add_schedule, enqueue

Connection = psycopg.Connection[Any]
SLOT = datetime(2020, 1, 1, 12, tzinfo=UTC)


def hints(listener: Connection) -> list[str]:
    """Everything that has arrived: what was committed before this is there."""
    return [hint.payload for hint in listener.notifies(timeout=0.5)]


def test_a_first_run_in_a_lane_says_so_and_later_ones_only_hint(connection: Connection, other: Connection) -> None:
    other.execute("listen slotkeeper_wake")
    enqueue(connection)
    assert sorted(hints(other)) == ["", "lane"]
    enqueue(connection)
    assert hints(other) == [""]


def test_many_runs_of_one_transaction_are_one_hint(connection: Connection, other: Connection) -> None:
    enqueue(connection)
    other.execute("listen slotkeeper_wake")
    with connection.transaction():
        for _ in range(50):
            enqueue(connection)
    assert hints(other) == [""]


def test_a_slot_that_becomes_a_row_is_a_hint(connection: Connection, other: Connection) -> None:
    schedule = add_schedule(connection)
    other.execute("listen slotkeeper_wake")
    assert schedule.materialise([SLOT])
    assert hints(other) == [""]

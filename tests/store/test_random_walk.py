"""Random steps of every actor on one database, the promises checked after each few: it finds what no example shows.

A failure shows its seed; the same seed walks the same way, but for the jitter of back-offs, which it never waits for.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from scenario import (
    CATCH_UP,
    OVERLAP,
    Worker,
    add_schedule,
    add_worker,
    cancel,
    due_now,
    edit,
    fold,
    health,
    one,
    reap,
    requeue,
    rows,
    sweep,
)

Connection = psycopg.Connection[Any]
START = datetime(2020, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RETURNS = ("done", "done", "failed", "failed", "fatal", "infrastructure", "snoozed", "interrupted", "unstarted")


class Walk:
    """All actors, one database, and the slots that were decided."""

    def __init__(self, connection: Connection, seed: int) -> None:
        self.connection = connection
        self.random = random.Random(seed)
        self.schedules = [
            add_schedule(
                connection, overlap=overlap, catch_up=catch_up, max_runs=3, max_attempts=2, backoff=(0, 0),
                late_reason="Late",
            )
            for overlap, catch_up in itertools.product(OVERLAP, CATCH_UP)
        ]  # fmt: skip
        self.slots: dict[int, list[datetime]] = {schedule.id: [] for schedule in self.schedules}
        self.edited: set[int] = set()
        self.workers = [add_worker(connection) for _ in range(3)]
        self.held: list[tuple[Worker, Any]] = []
        self.keys = itertools.count(1)
        self.steps: list[Callable[[], object]] = [
            *[self.tick] * 6, *[self.claim] * 4, *[self.finish] * 6, self.finish_batch, self.complete, self.lose_worker,
            self.cancel, self.requeue, self.trigger, self.edit, self.late, self.due, self.sweep, self.fold,
        ]  # fmt: skip

    def tick(self) -> None:
        schedule = self.random.choice(self.schedules)
        known = self.slots[schedule.id]
        new = [START + MINUTE * number for number in range(len(known), len(known) + self.random.randint(1, 4))]
        start_by = self.random.choice([None, datetime.now(UTC) + timedelta(hours=1)])
        assert schedule.materialise(new, start_by=start_by)
        known += new

    def claim(self) -> None:
        worker = self.random.choice(self.workers)
        self.held += [(worker, run) for run in worker.claim(free=self.random.randint(1, 6))]

    def _take(self) -> tuple[Worker, Any] | None:
        return self.held.pop(self.random.randrange(len(self.held))) if self.held else None

    def finish(self) -> None:
        if (held := self._take()) is not None:
            worker, run = held
            answer = worker.finish(run, self.random.choice(RETURNS), reason="Away")
            assert answer.answer in ("recorded", "already", "fenced")

    def finish_batch(self) -> None:
        worker = self.random.choice(self.workers)
        mine = [run for holder, run in self.held if holder is worker]
        self.held = [held for held in self.held if held[0] is not worker]
        try:
            worker.finish_batch(mine)
        except psycopg.DatabaseError as error:  # one of them was lost: the client asks one by one
            if error.sqlstate != "SK001":
                raise
            for run in mine:
                worker.finish(run)

    def complete(self) -> None:
        if (held := self._take()) is not None:
            worker, run = held
            recorded = one(self.connection, "select slotkeeper.complete_v1(%s, %s)", run.id, run.token)
            if recorded and self.random.random() < 0.5:  # else the worker dies before its own finish
                assert worker.finish(run).answer == "already"

    def lose_worker(self) -> None:
        worker = self.random.choice(self.workers)
        worker.expire()
        reap(self.connection)
        self.workers[self.workers.index(worker)] = add_worker(self.connection)  # its runs stay held: late returns

    def cancel(self) -> None:
        live = rows(self.connection, "select id from slotkeeper.run order by id")
        if live:
            cancel(self.connection, self.random.choice(live).id)

    def requeue(self) -> None:
        dead = rows(self.connection, "select id from slotkeeper.run_dead order by id")
        if dead:
            assert list(requeue(self.connection, self.random.choice(dead).id).values()) == ["ready"]

    def trigger(self) -> None:
        key = f"key-{next(self.keys)}"
        assert one(self.connection, "select slotkeeper.trigger_v1(%s, %s)", self.random.choice(self.schedules).id, key)

    def edit(self) -> None:
        schedule = self.random.choice(self.schedules[-4:])
        self.edited.add(schedule.owner)
        edit(self.connection, schedule, overlap=self.random.choice(list(OVERLAP)))

    def late(self) -> None:
        self.connection.execute(
            "update slotkeeper.run set start_by = %s where start_by is not null and random() < 0.3", (START,)
        )
        reap(self.connection)

    def due(self) -> None:
        due_now(self.connection)

    def sweep(self) -> None:
        sweep(self.connection)
        assert rows(
            self.connection,
            "select owner from slotkeeper.run group by owner having bool_and(behind)",
        ) == [], "somebody waits behind nobody"  # fmt: skip

    def fold(self) -> None:
        before = health(self.connection)
        fold(self.connection, self.random.choice([1, 7, 1000]))
        assert health(self.connection) == before

    def check(self) -> None:
        """What must hold between any two transactions."""
        crowded = rows(
            self.connection,
            "select owner from slotkeeper.run where state <> 0 and trigger <> 3 group by owner"
            " having count(*) filter (where exclusive) > 1 or bool_or(exclusive) and bool_or(not exclusive)",
        )  # fmt: skip
        assert {row.owner for row in crowded} <= self.edited, "two running rows of one exclusive schedule"
        wrong = rows(
            self.connection,
            "select id from slotkeeper.run r where charged > max_attempts or attempt < charged"
            " or state <> 0 and (token is null or worker is null or behind"
            " or not exists (select from slotkeeper.claim_batch b"
            " where b.token = r.token and b.lane = r.lane and r.run_at between b.lo and b.hi))",
        )  # fmt: skip
        assert wrong == []
        assert self.on_record() == {schedule.id: Counter(self.slots[schedule.id]) for schedule in self.schedules}

    def on_record(self) -> dict[int, Counter[datetime]]:
        """Per schedule how often each slot is on record, one way or another."""
        found: dict[int, Counter[datetime]] = {schedule.id: Counter() for schedule in self.schedules}
        for row in rows(
            self.connection,
            "select s.id, j.slot, j.slots from slotkeeper.job j join slotkeeper.schedule s on s.name = j.schedule"
            " where j.idempotency_key not like '%%#%%'",  # manual runs have slots of their own
        ):  # fmt: skip
            found[row.id].update(row.slot + MINUTE * number for number in range(row.slots))
        return found

    def drain(self) -> None:
        """Everybody comes back and works until nothing is left."""
        for _ in range(300):
            due_now(self.connection)
            self.sweep()
            self.claim()
            while self.held:
                worker, run = self.held.pop()
                worker.finish(run)
            self.check()
            if one(self.connection, "select count(*) from slotkeeper.run where state = 0") == 0:
                break
        for worker in self.workers:  # what complete ended without a finish of its worker
            worker.expire()
        reap(self.connection)
        self.connection.execute("update slotkeeper.claim_batch set claimed_at = claimed_at - interval '1 hour'")
        sweep(self.connection)


@pytest.mark.parametrize("seed", range(4))
def test_a_random_walk_keeps_the_promises(connection: Connection, seed: int) -> None:
    walk = Walk(connection, seed)
    for number in range(220):
        walk.random.choice(walk.steps)()
        if number % 5 == 0:
            walk.check()
    walk.drain()
    assert one(connection, "select count(*) from slotkeeper.run") == 0
    assert one(connection, "select count(*) from slotkeeper.claim_batch") == 0
    while fold(connection):
        pass
    counts = rows(
        connection,
        "select s.name, t.done_count + t.dead + t.skipped_count,"
        " (select coalesce(sum(j.slots), 0) from slotkeeper.job j"
        " where j.schedule = s.name and j.status <> 'cancelled')"
        " from slotkeeper.schedule s join slotkeeper.schedule_state t on t.schedule = s.id",
    )  # fmt: skip
    assert [counted for _, counted, _ in counts] == [ended for _, _, ended in counts]

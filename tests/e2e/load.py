"""Work for the cluster while a test disturbs it, and the questions that are asked afterwards.

All instants are the database's. Slots are those of schedules.yaml: ``tick-N`` every ten seconds, at second N.
"""

from __future__ import annotations

import threading
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import psycopg
from whole_cluster import Database, eventually

from scenario import one, rows
from slotkeeper import enqueue

PERIOD = 10
#: A slot whose handler begins later than this is late.
LATE = timedelta(seconds=5)
_EVERY = 0.1


class Load:
    """Enqueues ten runs a second from outside, each with a key of its own, from ``start`` to ``stop``."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.since: datetime = one(database.connection, "select clock_timestamp()")
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._enqueue, name="load")
        self.keys: list[str] = []
        self._pauses: dict[datetime, str] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._enough.set()
        self._thread.join()

    def _enqueue(self) -> None:
        with self.database.connect() as connection:
            while not self._enough.wait(_EVERY):
                key = f"load-{self.since.timestamp():.0f}-{len(self.keys)}"
                enqueue(connection, "noted", {"seconds": 0.2}, key=key, namespace="e2e")
                self.keys.append(key)
                self._watch(connection)

    def _watch(self, connection: psycopg.Connection[Any]) -> None:
        """Notes a pause of reaping or ticking when it begins: what explains slots that are late."""
        (fleet,) = rows(
            connection,
            "select reap_pause_reason as reason, reap_paused_until as reaping, tick_paused_until as ticking,"
            " clock_timestamp() as at from slotkeeper.fleet",
        )
        if max(fleet.reaping, fleet.ticking) > max([self.since, *self._pauses]):
            self._pauses[max(fleet.reaping, fleet.ticking)] = (
                f"{fleet.at:%H:%M:%S}: {fleet.reason}; reaping paused until {fleet.reaping:%H:%M:%S},"
                f" ticking until {fleet.ticking:%H:%M:%S}"
            )

    def finished(self) -> list[str]:
        """Ends the load, waits until all of it has an outcome; what is wrong with it, in words."""
        self.stop()
        connection = self.database.connection
        until: datetime = one(connection, "select clock_timestamp()")
        wanted = slots(self.since, until)
        eventually(lambda: not self._open(until), "every run has an outcome", seconds=60)
        wrong = (
            slots_not_done(self.database, wanted)
            + late_slots(self.database, wanted)
            + self._keys_not_done()
            + self._doubled()
        )
        return [*wrong, *self._pauses.values()] if wrong else []

    def _open(self, until: datetime) -> int:
        """Runs that have no outcome, and slots up to ``until`` that are not made yet."""
        live = one(
            self.database.connection,
            "select count(*) from slotkeeper.run where coalesce(slot, created_at) <= %s", until,
        )  # fmt: skip
        due = one(
            self.database.connection,
            "select count(*) from slotkeeper.schedule where name like 'tick-%%' and watermark < %s", until,
        )  # fmt: skip
        return int(live + due)

    def _keys_not_done(self) -> list[str]:
        found = Counter(
            row.idempotency_key
            for row in rows(
                self.database.connection,
                "select idempotency_key from slotkeeper.job where trigger = 'Enqueue' and status = 'done'"
                " and created_at >= %s",
                self.since,
            )
        )
        return [f"{key} was done {found[key]} times" for key in self.keys if found[key] != 1]

    def _doubled(self) -> list[str]:
        """Keys that more than one attempt began to work on."""
        found = rows(
            self.database.connection,
            "select key, count(*) as attempts from e2e.attempt where began_at >= %s group by key having count(*) > 1",
            self.since,
        )
        return [f"{row.key} was begun by {row.attempts} attempts" for row in found]


def slots(after: datetime, until: datetime) -> list[tuple[str, datetime]]:
    """(schedule, slot) of every slot in (after, until]."""
    first = after.replace(microsecond=0) + timedelta(seconds=1)
    seconds = int((until - first).total_seconds()) + 1
    found = [first + timedelta(seconds=n) for n in range(seconds)]
    assert found, "no slot in the window"
    return [(f"tick-{slot.second % PERIOD}", slot) for slot in found]


def slots_not_done(database: Database, wanted: list[tuple[str, datetime]]) -> list[str]:
    """Slots that have not exactly one record, of status done."""
    found: dict[tuple[str, datetime], list[str]] = {}
    for row in rows(
        database.connection,
        "select schedule, slot, coalesce(status || '(' || reason || ')', status) as status from slotkeeper.job"
        " where namespace = 'e2e' and slot >= %s and schedule is not null", wanted[0][1],
    ):  # fmt: skip
        found.setdefault((row.schedule, row.slot), []).append(row.status)
    return [f"{name}@{slot}: {found.get((name, slot))}" for name, slot in wanted if found.get((name, slot)) != ["done"]]


def late_slots(database: Database, wanted: list[tuple[str, datetime]]) -> list[str]:
    """Slots whose handler began more than LATE after them, and when the row was made and claimed."""
    found = rows(
        database.connection,
        "select a.schedule, a.slot, a.pod, extract(epoch from a.began_at - a.slot) as began,"
        " extract(epoch from j.created_at - a.slot) as made, extract(epoch from j.started_at - a.slot) as claimed"
        " from e2e.attempt a left join slotkeeper.job j on j.id = a.run::text"
        " where a.slot between %s and %s and a.attempt = 1 and a.began_at - a.slot > %s order by a.slot",
        wanted[0][1], wanted[-1][1], LATE,
    )  # fmt: skip
    return [
        f"{row.schedule}@{row.slot:%H:%M:%S}: made {row.made:.1f} s, claimed {row.claimed or -1:.1f} s,"
        f" begun {row.began:.1f} s late, in {row.pod}"
        for row in found
    ]

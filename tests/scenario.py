"""Builds what store tests start from: schedules, slots and workers, straight through the SQL functions."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
from psycopg.rows import dict_row, namedtuple_row

EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
OVERLAP = {"Skip": 0, "Queue": 1, "Replace": 2, "Allow": 3}
CATCH_UP = {"RunOnce": 0, "RunAll": 1, "Skip": 2}
_numbers = itertools.count(1)


def connect(dsn: str) -> psycopg.Connection[Any]:
    """A connection in autocommit mode whose rows are named tuples."""
    return psycopg.connect(dsn, autocommit=True, row_factory=namedtuple_row)


def one(connection: psycopg.Connection[Any], query: str, *parameters: object) -> Any:
    """The single value of a query."""
    row = connection.execute(query, parameters).fetchone()
    return None if row is None else row[0]


def rows(connection: psycopg.Connection[Any], query: str, *parameters: object) -> list[Any]:
    return connection.execute(query, parameters).fetchall()


def records(connection: psycopg.Connection[Any], query: str, *parameters: object) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, parameters).fetchall()


@dataclass
class Schedule:
    """A stored schedule and how to make slots of it fall due."""

    connection: psycopg.Connection[Any]
    id: int
    owner: int
    version: int = 1
    watermark: datetime = EPOCH

    def materialise(
        self, slots: Sequence[datetime], *, until: datetime | None = None, start_by: datetime | None = None,
        trigger: int = 0, exempt: bool = False, connection: psycopg.Connection[Any] | None = None,
    ) -> bool:  # fmt: skip
        """Decides these slots; False when the schedule was left for the next pass."""
        until = until or max(slots)
        left = one(
            connection or self.connection,
            "select slotkeeper.materialise_v1(%s::bigint[], %s::int[], %s::timestamptz[], %s::timestamptz[],"
            " %s::timestamptz[],"
            " %s::timestamptz[], %s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::smallint[],"
            " %s::int[], %s::boolean[], '{}', '{}', '{}', '{}', '{}')",
            [self.id], [self.version], [self.watermark], [until], [until + timedelta(minutes=1)],
            [until + timedelta(minutes=1)],
            [self.id] * len(slots), list(slots), list(slots), [start_by] * len(slots), [trigger] * len(slots),
            list(range(1, len(slots) + 1)), [exempt] * len(slots),
        )  # fmt: skip
        if left:
            return False
        self.watermark = until
        return True

    def runs(self) -> list[dict[str, Any]]:
        """Its live rows by slot."""
        return records(self.connection, "select * from slotkeeper.run where owner = %s order by slot", self.owner)

    def job(self) -> list[tuple[datetime, str, str | None]]:
        """(slot, status, reason) of everything on record about it."""
        name = one(self.connection, "select name from slotkeeper.schedule where id = %s", self.id)
        found = rows(
            self.connection,
            "select slot, status, reason from slotkeeper.job where schedule = %s order by slot, created_at", name,
        )  # fmt: skip
        return [tuple(row) for row in found]


def add_schedule(
    connection: psycopg.Connection[Any], name: str | None = None, *, overlap: str = "Skip", catch_up: str = "RunOnce",
    max_runs: int = 100, max_attempts: int = 6, late_reason: str | None = None, namespace: str = "default",
    queue: str = "default", priority: int = 0, payload: str = "{}", spec: str = '{"task": "t"}', action: str = "t",
    active_deadline: int | None = None, backoff: tuple[int, int] = (30, 900), next_due: datetime | None = None,
    cluster: str = "default",
) -> Schedule:  # fmt: skip
    """Stores a schedule whose watermark is EPOCH."""
    name = name or f"schedule-{next(_numbers)}"
    id_ = one(
        connection,
        "select slotkeeper.store_schedule_v1(%s, %s, %s, 'uid', 1, '1', false, null, %s::jsonb, %s, %s, %s, %s,"
        " %s::smallint,"
        " %s::smallint, %s::smallint, %s, %s, 0, 60, %s::smallint, %s, %s, null, %s, %s, %s, %s, true)",
        cluster, namespace, name, spec, payload, uuid.uuid4().hex, action, queue, priority, OVERLAP[overlap],
        CATCH_UP[catch_up],
        max_runs, late_reason, max_attempts, *backoff, active_deadline, EPOCH, next_due, next_due,
    )  # fmt: skip
    owner = one(connection, "select owner from slotkeeper.schedule where id = %s", id_)
    return Schedule(connection, id_, owner)


@dataclass
class Worker:
    """A registered worker that claims and finishes by hand."""

    connection: psycopg.Connection[Any]
    id: int
    claimed: list[Any] = field(default_factory=list)

    def claim(
        self, free: int = 100, *, prefetch: int = 0, token: uuid.UUID | None = None, resend: bool = False,
        bounds: dict[int, tuple[datetime, int]] | None = None, seen: datetime | None = None,
    ) -> list[Any]:  # fmt: skip
        """Claims due runs; the outlook is kept as ``self.outlook``."""
        lanes = [row.lane for row in rows(self.connection, "select lane from slotkeeper.lanes_v1(%s)", self.id)]
        bounds = bounds or {}
        token = token or uuid.uuid4()
        found = records(
            self.connection,
            "select * from slotkeeper.work_v1(%s, %s, %s::int[], %s::timestamptz[], %s::bigint[], %s, %s, %s,"
            " '{}', '{}', 0, 0, '{}', %s)",
            self.id, token, lanes, [bounds[lane][0] if lane in bounds else None for lane in lanes],
            [bounds[lane][1] if lane in bounds else None for lane in lanes], seen, free, prefetch, resend,
        )  # fmt: skip
        claimed = [SimpleNamespace(**record, token=token) for record in found]
        self.outlook = claimed.pop()
        return sorted(claimed, key=lambda run: (run.run_at, run.id))

    def finish(
        self, run: Any, kind: str = "done", *, seconds: float = 0, reason: str = "", message: str = "",
        token: uuid.UUID | None = None,
    ) -> Any:  # fmt: skip
        """Finishes one claimed run; returns the answer row."""
        return rows(
            self.connection,
            "select * from slotkeeper.finish_v1(%s, %s::bigint[], %s::uuid[], %s::bigint[], %s::timestamptz[],"
            " %s::text[],"
            " %s::float8[], %s::text[], %s::text[])",
            self.id, [run.id], [token or run.token], [run.owner], [run.slot], [kind], [seconds], [reason], [message],
        )[0]  # fmt: skip

    def finish_batch(self, runs: Sequence[Any]) -> None:
        """Finishes a batch of successes by address, as the hot path does."""
        self.connection.execute(
            "select * from slotkeeper.work_v1(%s, %s, '{}', '{}', '{}', null, 0, 0, %s::text[]::tid[], %s::uuid[],"
            " %s, %s,"
            " %s::uuid[], false)",
            (
                self.id, uuid.uuid4(), [run.address for run in runs], list({run.token for run in runs}), len(runs),
                sum(run.id for run in runs), list({run.token for run in runs}),
            ),
        )  # fmt: skip

    def expire(self) -> None:
        """Its lease ended a second ago."""
        self.connection.execute(
            "update slotkeeper.worker set lease_until = clock_timestamp() - interval '1 second' where id = %s",
            (self.id,),
        )


def add_worker(
    connection: psycopg.Connection[Any], *, namespaces: Sequence[str] = ("default",),
    queues: Sequence[str] = ("default",),
    lease_seconds: int = 60, pool: str = "default", namespace: str = "default", concurrency: int = 20,
) -> Worker:  # fmt: skip
    """Registers a worker of the pool (``namespace``, ``pool``) on ``connection``."""
    id_ = one(
        connection,
        "select slotkeeper.register_worker_v1(%s, %s, %s, %s::text[], %s::text[], %s, '0', 1::smallint, %s)",
        f"worker-{next(_numbers)}", namespace, pool, list(namespaces), list(queues), concurrency, lease_seconds,
    )  # fmt: skip
    return Worker(connection, id_)


def reap(connection: psycopg.Connection[Any], *, expected: datetime | None = None, starting: bool = False) -> Any:
    """One reap."""
    return rows(connection, "select * from slotkeeper.reap_v1(%s, %s)", expected, starting)[0]


def enqueue(connection: psycopg.Connection[Any], task: str = "t", *, key: str | None = None, **more: Any) -> Any:
    """One ad-hoc run: (id, created)."""
    return rows(
        connection,
        "select * from slotkeeper.enqueue_v1(%s, %s, %s, %s, %s, %s, %s::smallint, %s::smallint)",
        task, more.get("payload", "{}"), key, more.get("queue", "default"), more.get("namespace", "default"),
        more.get("run_at"), more.get("priority", 0), more.get("max_attempts", 6),
    )[0]  # fmt: skip


def sweep(connection: psycopg.Connection[Any]) -> Any:
    """One sweep, orphans included, as if the last one had been long ago."""
    connection.execute("update slotkeeper.fleet set swept_at = 'epoch', orphans_at = 'epoch', orphans_seconds = 0")
    return rows(connection, "select * from slotkeeper.sweep_v1()")[0]


def fold(connection: psycopg.Connection[Any], limit: int = 20_000) -> int:
    """One fold that looks at everything; returns how many outcomes it took."""
    return int(one(connection, "select folded from slotkeeper.fold_v1(null, %s)", limit))


def health(connection: psycopg.Connection[Any]) -> dict[str, dict[str, Any]]:
    """What the view says, by name of schedule, without the columns that move with the clock."""
    moving = ("since_last_success", "oldest_pending_age")
    return {
        record["name"]: {name: value for name, value in record.items() if name not in moving}
        for record in records(connection, "select * from slotkeeper.health")
    }


def due_now(connection: psycopg.Connection[Any]) -> None:
    """Whatever waits for its back-off waits no longer."""
    connection.execute("update slotkeeper.run set run_at = clock_timestamp() where state = 0")


def cancel(connection: psycopg.Connection[Any], *ids: int) -> dict[int, str]:
    """What became of each run."""
    return {row.id: row.became for row in rows(connection, "select * from slotkeeper.cancel_v1(%s)", list(ids))}


def requeue(connection: psycopg.Connection[Any], *ids: int) -> dict[int, str]:
    """What became of each dead run."""
    return {row.id: row.became for row in rows(connection, "select * from slotkeeper.requeue_v1(%s)", list(ids))}


def edit(connection: psycopg.Connection[Any], schedule: Schedule, *, overlap: str) -> None:
    """A new version of the schedule that differs in its overlap policy; no slot is decided."""
    connection.execute(
        "insert into slotkeeper.schedule_version"
        " select (jsonb_populate_record(v, jsonb_build_object('version', v.version + 1, 'overlap', %s::int))).*"
        " from slotkeeper.schedule_version v where v.schedule = %s and v.version = %s",
        (OVERLAP[overlap], schedule.id, schedule.version),
    )
    connection.execute("update slotkeeper.schedule set version = version + 1 where id = %s", (schedule.id,))
    schedule.version += 1

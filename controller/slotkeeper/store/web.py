"""The dashboard's statements: schedules, runs, slots, queues and workers, only read and always in bounds.

Types for the functions of ``sql/functions/web.sql``. No payload, no text of an error and no argument of an action is
read here. Which ranges of history are read, and how far, is decided by the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from slotkeeper.store.connection import Session, execute


@dataclass(frozen=True, slots=True)
class DashboardSchedule:
    """A schedule and how it does. ``spec`` is what it says without action and payload; ``type`` the task's name, or
    command, http, job.

    ``state``: Active, Suspended, Held, Unwatched or NoNextSlot. ``health``: Succeeding, NotYetDue, SuccessOverdue,
    NeverSucceeded, NoWorker or DeadRuns. ``missed``: slots skipped or superseded since the last success.
    """

    cluster: str
    namespace: str
    name: str
    queue: str
    priority: int
    type: str
    spec: Mapping[str, Any]
    generation: int
    created_at: datetime
    timing_since: datetime
    state: str
    health: str
    next_slot: datetime | None
    next_due: datetime | None
    watermark: datetime
    last_slot: datetime | None
    last_success_slot: datetime | None
    last_success_at: datetime | None
    last_failure_at: datetime | None
    success_due: datetime | None
    dead_runs: int
    consecutive_dead: int
    missed: int
    last_skip_slot: datetime | None
    last_skip_reason: str | None
    last_skip_at: datetime | None
    schedule_id: int
    owner: int

    @property
    def key(self) -> tuple[str, str, str]:
        """Cluster, namespace and name: what schedules are ordered by."""
        return self.cluster, self.namespace, self.name


@dataclass(frozen=True, slots=True)
class DashboardRun:
    """A run, or a range of slots that did not run: a row of the view ``job`` without payload and error.

    ``late_seconds``: from the slot to the first start, where that came after the spread and the grace. ``run`` is None
    for a slot that never had a row.
    """

    id: str
    cluster: str | None
    namespace: str
    schedule: str | None
    slot: datetime | None
    last_slot: datetime | None
    slots: int
    type: str
    queue: str
    priority: int
    trigger: str
    status: str
    reason: str | None
    idempotency_key: str | None
    run_at: datetime
    attempts: int
    charged: int
    max_attempts: int
    locked_by: str | None
    locked_until: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    generation: int | None
    late_seconds: float | None
    run: int | None
    owner: int | None
    live: bool


@dataclass(frozen=True, slots=True)
class SlotsOfHour:
    """Slots of one schedule within an hour that share status and reason, or one range of slots that did not run."""

    first_slot: datetime
    last_slot: datetime
    status: str
    reason: str | None
    slots: int
    late: int
    latest_seconds: float | None


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane. ``more``: there are more rows than were counted. ``oldest``: since when the first ready row waits."""

    namespace: str
    queue: str
    priority: int
    ready: int
    later: int
    behind: int
    running: int
    more: bool
    oldest: datetime | None
    workers: int


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """One worker process. ``alive``: its lease has not ended."""

    name: str
    pool: str
    namespaces: list[str]
    queues: list[str]
    concurrency: int
    running: int
    version: str
    protocol: int
    started_at: datetime
    beat_at: datetime
    lease_until: datetime
    alive: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """A transaction that only reads; ``moment`` is the database's clock at its start."""

    connection: psycopg.Connection[Any]
    moment: datetime

    def schedules(
        self, *, namespace: str | None, name: str | None, state: str | None, health: str | None,
        after: tuple[str, str, str], limit: int,
    ) -> list[DashboardSchedule]:  # fmt: skip
        """Up to ``limit`` schedules after (cluster, namespace, name); ``name`` is a part of it, in any case."""
        rows = self._call("web.schedules", {
            "namespace": namespace, "name": name, "state": state, "health": health,
            "after_cluster": after[0], "after_namespace": after[1], "after_name": after[2], "limit": limit,
        })  # fmt: skip
        return [DashboardSchedule(*row) for row in rows]

    def schedule(self, cluster: str, namespace: str, name: str) -> DashboardSchedule | None:
        """One schedule; None: there is none, or it was deleted."""
        keys = {"cluster": cluster, "namespace": namespace, "name": name}
        rows = self._call("web.schedule", keys)
        return DashboardSchedule(*rows[0]) if rows else None

    def schedule_counts(self) -> dict[tuple[str, str], int]:
        """How many schedules are in each (state, health)."""
        rows = self._call("web.schedule_counts", {})
        return {(row.state, row.health): row.schedules for row in rows}

    def live_until(self, after: int, window: int) -> int | None:
        """The id up to which ``window`` live runs follow ``after``; None when none does."""
        until: int | None = self._call("web.live_until", {"after": after, "window": window})[0].id
        return until

    def live(
        self, after: int, until: int, *, status: str | None, namespace: str | None, limit: int
    ) -> list[DashboardRun]:
        """The live runs with ids in (after, until], the oldest first."""
        parameters = {"after": after, "until": until, "status": status, "namespace": namespace, "limit": limit}
        return [DashboardRun(*row) for row in self._call("web.live", parameters)]

    def ended(
        self, after: datetime, until: datetime, *, before_id: str | None, status: str | None, namespace: str | None,
        limit: int,
    ) -> list[DashboardRun]:  # fmt: skip
        """What ended in (after, until], the latest first; ``before_id``: of what ended at ``until``, only ids below."""
        rows = self._call("web.ended", {
            "after": after, "until": until, "before_id": before_id, "status": status, "namespace": namespace,
            "limit": limit,
        })  # fmt: skip
        return [DashboardRun(*row) for row in rows]

    def ended_count(self, after: datetime, until: datetime, most: int) -> int:
        """How many rows ended in (after, until], counted up to ``most``."""
        found: int = self._call("web.ended_count", {"after": after, "until": until, "most": most})[0].found
        return found

    def runs(
        self, schedule: int, after: datetime, until: datetime, *, before_id: str | None, status: str | None, limit: int
    ) -> list[DashboardRun]:
        """The runs of one schedule with slots in (after, until], manual ones too, the latest slot first."""
        rows = self._call("web.runs", {
            "schedule": schedule, "after": after, "until": until, "before_id": before_id, "status": status,
            "limit": limit,
        })  # fmt: skip
        return [DashboardRun(*row) for row in rows]

    def runs_count(self, schedule: int, after: datetime, until: datetime, most: int) -> int:
        """How many they are, counted up to ``most``."""
        parameters = {"schedule": schedule, "after": after, "until": until, "most": most}
        found: int = self._call("web.runs_count", parameters)[0].found
        return found

    def slots(self, schedule: int, after: datetime) -> list[SlotsOfHour]:
        """The slots of a schedule after an instant, by the hour; manual runs are none."""
        rows = self._call("web.slots", {"schedule": schedule, "after": after})
        return [SlotsOfHour(*row) for row in rows]

    def lanes(self, most: int) -> list[Lane]:
        """Every lane; of each at most ``most`` rows are looked at."""
        return [Lane(*row) for row in self._call("web.queues", {"most": most})]

    def workers(self, limit: int) -> list[WorkerProcess]:
        """Up to ``limit`` worker processes, by pool and name."""
        return [WorkerProcess(*row) for row in self._call("web.workers", {"limit": limit})]

    def first_slot(self, schedule: int) -> datetime | None:
        """The oldest slot of a schedule that is on record; None when there is none."""
        moment: datetime | None = self._call("web.first_slot", {"schedule": schedule})[0].moment
        return moment

    def kept_since(self) -> datetime:
        """No history is older than this."""
        moment: datetime = self._call("web.kept_since", {})[0].moment
        return moment

    def _call(self, query: str, parameters: Mapping[str, object]) -> list[Any]:
        return execute(self.connection, query, parameters)


@contextmanager
def reading(session: Session, milliseconds: int) -> Iterator[Reading]:
    """A transaction that only reads; a statement of it that takes longer than ``milliseconds`` raises DatabaseBusy."""
    with session.transaction() as connection:
        row = execute(connection, "web.begin", {"milliseconds": milliseconds})[0]
        yield Reading(connection, row.moment)

"""What metrics and probes ask the database. Reads only; how often is the caller's business."""

from __future__ import annotations

from typing import NamedTuple

from slotkeeper.resources import resource_folder
from slotkeeper.store.connection import Session


class Schema(NamedTuple):
    """The number of the newest applied migration, and the database's clock (Unix seconds)."""

    version: int
    moment: float


class LaneDepth(NamedTuple):
    """What is in one lane; counts stop at the limit that was given. ``oldest_ready_age`` in seconds, 0 when none is."""

    lane: int
    namespace: str
    queue: str
    scheduled: int
    ready: int
    waiting: int
    retrying: int
    running: int
    dead: int
    oldest_ready_age: float


class OwnLaneDepth(NamedTuple):
    """The same of a lane that a worker serves, as far as it is told."""

    lane: int
    namespace: str
    queue: str
    ready: int
    dead: int
    oldest_ready_age: float


class ServedQueue(NamedTuple):
    """A queue and the name of a pool that claims from it."""

    namespace: str
    queue: str
    pool: str


class VitalSigns(NamedTuple):
    """Seconds that the ticker is late and that a watermark is ahead of the clock, and whether reaping is paused."""

    ticker_lag: float
    watermark_ahead: float
    reaping_paused: bool


class ScheduleTotals(NamedTuple):
    """Schedules of one namespace by state, and its slots by outcome, deleted schedules included in the latter."""

    namespace: str
    active: int
    suspended: int
    held: int
    unwatched: int
    done: int
    dead: int
    skipped: int


class ScheduleFacts(NamedTuple):
    """One schedule as ``health`` says it; instants in whole Unix seconds. ``stored``: how many there are in all."""

    namespace: str
    name: str
    queue: str
    suspended: bool
    held: bool
    dead_runs: int
    consecutive_dead: int
    missed: int
    last_success: int | None
    last_failure: int | None
    created: int
    never_succeeded: bool
    success_due: int | None
    next_slot: int | None
    oldest_pending: int | None
    stored: int


def needed_schema() -> int:
    """The number of the newest migration that this version brings along."""
    return max(int(file.name[:4]) for file in (resource_folder("sql") / "migrations").glob("*.sql"))


def schema(session: Session) -> Schema:
    """Which schema is there, and what time it is. Raises SchemaMissing when there is none."""
    return Schema(*session.call("metrics.schema")[0])


def queues(session: Session, limit: int) -> list[LaneDepth]:
    """Every lane; at most ``limit`` rows of each are looked at."""
    return [LaneDepth(*row) for row in session.call("metrics.queues", limit=limit)]


def own_queues(session: Session, worker: int, limit: int) -> list[OwnLaneDepth]:
    """The lanes that ``worker`` serves."""
    return [OwnLaneDepth(*row) for row in session.call("metrics.own_queues", worker=worker, limit=limit)]


def served_queues(session: Session) -> list[ServedQueue]:
    """Which pools serve which queues."""
    return [ServedQueue(*row) for row in session.call("metrics.served_queues")]


def vital_signs(session: Session) -> VitalSigns:
    """Of ticker and reaper."""
    return VitalSigns(*session.call("metrics.vital_signs")[0])


def schedule_totals(session: Session, cluster: str) -> list[ScheduleTotals]:
    """One per namespace that has or had schedules."""
    return [ScheduleTotals(*row) for row in session.call("metrics.schedule_totals", cluster=cluster)]


def schedules(session: Session, cluster: str, limit: int) -> list[ScheduleFacts]:
    """Up to ``limit`` schedules that are not deleted, by namespace and name."""
    # As they come: making 10,000 of the other kind costs half as much as reading them.
    rows: list[ScheduleFacts] = session.call("metrics.schedules", cluster=cluster, limit=limit)
    return rows

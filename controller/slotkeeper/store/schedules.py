"""The operator's statements: what is stored of a JobSchedule, and how it is changed.

Types for the functions of ``sql/functions/schedule.sql``. What is to be stored is decided elsewhere; here is no rule.
Statements that change a schedule take the connection of a transaction in which the caller holds its row (``lock``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import psycopg

from slotkeeper.store.connection import Session, execute
from slotkeeper.store.queries import queries
from slotkeeper.store.versions import OwnerVersion, StoredVersion, version_parameters, versions_of

#: (namespace, name) of a schedule, within one cluster.
Key = tuple[str, str]
#: The last columns of the view ``stored_schedule`` are those of ``HeldBy``.
_HOLD_COLUMNS = 6


@dataclass(frozen=True, slots=True)
class HeldBy:
    """The hold that holds a schedule, of several the one that ends last.

    ``namespace`` and ``name`` say what it is on: a schedule, without a name its namespace, without either everything.
    ``login`` is the database login of who set it; ``until`` None: only a command ends it.
    """

    namespace: str | None
    name: str | None
    held_by: str
    login: str
    reason: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule as stored. ``active``: not suspended, held, unwatched or retired.

    ``moment`` is the database's clock when the row was read; ``live_slot`` the newest slot that is a live run;
    ``hold`` is None, too, in the moment between a hold's end and the release.
    """

    cluster: str
    id: int
    owner: int
    namespace: str
    name: str
    uid: str
    generation: int
    version: int
    watermark: datetime
    active: bool
    suspended: bool
    held: bool
    unwatched: bool
    retired: bool
    trigger_key: str | None
    spec_hash: str
    next_slot: datetime | None
    created_at: datetime
    timing_since: datetime
    live_slot: datetime | None
    moment: datetime
    hold: HeldBy | None = None

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def owner_version(self) -> OwnerVersion:
        """The key of what it says now, for ``versions``."""
        return self.owner, self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """All that is stored of one accepted object. ``trigger_key``: to be recorded as seen, without a run.

    ``overlap`` 0 Skip, 1 Queue, 2 Replace, 3 Allow; ``catch_up`` 0 RunOnce, 1 RunAll, 2 Skip; ``spec`` and
    ``payload`` are JSON texts. Nothing at or before ``moment`` will fire.
    """

    cluster: str
    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    suspended: bool
    trigger_key: str | None
    spec: str
    payload: str
    spec_hash: str
    action: str
    queue: str
    priority: int
    overlap: int
    catch_up: int
    max_runs: int
    late_reason: str | None
    spread_seconds: int
    grace_seconds: int
    max_attempts: int
    backoff_initial: int
    backoff_max: int
    attempt_deadline: int | None
    active_deadline: int | None
    moment: datetime
    next_slot: datetime | None
    next_due: datetime | None
    timing_changed: bool


@dataclass(frozen=True, slots=True)
class Unserved:
    """A queue that no living worker serves. ``waiting_since``: the due time of its oldest run; None: none waits."""

    since: datetime
    waiting_since: datetime | None


@dataclass(frozen=True, slots=True)
class Health:
    """Outcomes of one schedule so far. ``*_slot`` are slots, ``*_at`` times."""

    last_success_slot: datetime | None
    last_success_at: datetime | None
    last_slot: datetime | None
    dead_runs: int
    consecutive_dead: int
    last_skip_slot: datetime | None
    last_skip_reason: str | None
    last_skip_at: datetime | None
    last_failure_at: datetime | None


def bind_cluster(session: Session, name: str, identity: str, *, adopt: bool) -> str:
    """Binds ``name`` to ``identity`` at first contact, or anew with ``adopt``; returns the identity it is bound to."""
    bound: str = session.call("schedules.bind_cluster", name=name, identity=identity, adopt=adopt)[0].identity
    return bound


def stored_schedules(session: Session, cluster: str) -> list[StoredSchedule]:
    """Every schedule of the cluster that is not retired."""
    return [stored_schedule(row) for row in session.call("schedules.list", cluster=cluster)]


def find(session: Session, cluster: str, keys: Sequence[Key]) -> dict[Key, StoredSchedule]:
    """The schedules with these keys, tombstones included; locks nothing."""
    return _by_key(session.call("schedules.find", cluster=cluster, **_key_parameters(keys)))


def lock(connection: psycopg.Connection[Any], cluster: str, keys: Sequence[Key]) -> dict[Key, StoredSchedule]:
    """The same, locked until the transaction ends; ``moment`` is a time after the lock."""
    return _by_key(execute(connection, "schedules.lock", {"cluster": cluster, **_key_parameters(keys)}))


def versions(connection: psycopg.Connection[Any], keys: Iterable[OwnerVersion]) -> dict[OwnerVersion, StoredVersion]:
    """What these versions say, by (owner, version)."""
    return versions_of(execute(connection, "ticker.versions", version_parameters(keys)))


def now(connection: psycopg.Connection[Any]) -> datetime:
    """The database's clock."""
    moment: datetime = execute(connection, "schedules.now", {})[0].moment
    return moment


def clock(session: Session) -> datetime:
    """The same, outside of a transaction."""
    moment: datetime = session.call("schedules.now")[0].moment
    return moment


def store(connection: psycopg.Connection[Any], rows: Sequence[ScheduleRow]) -> None:
    """Stores new schedules, or new specs of schedules that are locked and whose slots up to ``moment`` are decided."""
    if len(rows) == 1:
        execute(connection, "schedules.store", _columns(rows[0]))
    elif rows:
        # One round trip for all of them.
        connection.cursor(binary=True).executemany(queries()["schedules.store"].text, [_columns(row) for row in rows])


def suspend(
    connection: psycopg.Connection[Any],
    schedule: StoredSchedule,
    *,
    suspended: bool,
    next_slot: datetime | None,
    next_due: datetime | None,
) -> None:
    """Suspends or resumes without a new spec, and watches again: for an object whose newest spec is invalid."""
    execute(
        connection,
        "schedules.suspend",
        {
            "id": schedule.id,
            "suspended": suspended,
            "moment": schedule.moment,
            "next_slot": next_slot,
            "next_due": next_due,
        },
    )


def retire(connection: psycopg.Connection[Any], schedule: StoredSchedule) -> bool:
    """Leaves a tombstone and cancels its runs; False: it was retired already."""
    parameters = {"id": schedule.id, "uid": schedule.uid, "moment": schedule.moment}
    retired: bool = execute(connection, "schedules.retire", parameters)[0].retired
    return retired


def unwatch(connection: psycopg.Connection[Any], schedule: StoredSchedule) -> None:
    """No new slots until it is stored again; nothing is cancelled."""
    execute(connection, "schedules.unwatch", {"id": schedule.id, "moment": schedule.moment})


def trigger(connection: psycopg.Connection[Any], schedule: StoredSchedule, key: str) -> bool:
    """Makes one manual run for ``key``; False: this key has been seen before."""
    created: bool = execute(connection, "schedules.trigger", {"id": schedule.id, "key": key})[0].created
    return created


def health(session: Session, cluster: str) -> dict[Key, Health]:
    """The outcomes of every schedule of the cluster that is not retired."""
    return {
        (row.namespace, row.name): Health(
            last_success_slot=row.last_success_slot,
            last_success_at=row.last_success_at,
            last_slot=row.last_slot,
            dead_runs=row.dead_runs,
            consecutive_dead=row.consecutive_dead,
            last_skip_slot=row.last_skip_slot,
            last_skip_reason=row.last_skip_reason,
            last_skip_at=row.last_skip_at,
            last_failure_at=row.last_failure_at,
        )
        for row in session.call("schedules.health", cluster=cluster)
    }


def unserved_queues(session: Session, grace_seconds: int) -> dict[tuple[str, str], Unserved]:
    """By (namespace, queue): what nobody has served for ``grace_seconds``, where runs wait as long or no pool is known.

    Also notes since when each queue is unserved; only the leader asks.
    """
    return {
        (row.namespace, row.queue): Unserved(row.since, row.waiting_since)
        for row in session.call("schedules.unserved", grace_seconds=grace_seconds)
    }


def leadership(session: Session, cluster: str, *, leads: bool) -> bool:
    """Whether this very connection leads the cluster; with ``leads`` it does already and only shows that it lives."""
    leader: bool = session.call("schedules.leadership", cluster=cluster, leads=leads)[0].leader
    return leader


def is_pooled(session: Session) -> bool:
    """Whether a pooler stands between us and the server, where a session-level lock would belong to anybody.

    A pooler greets with a process number of its own; Postgres greets with the one it answers with.
    """
    with session.connection() as connection:
        row = execute(connection, "schedules.leadership", {"cluster": "", "leads": True})[0]
        return bool(row.server_process != connection.info.backend_pid)


def stored_schedule(row: Any) -> StoredSchedule:
    """A row of the view ``stored_schedule``."""
    schedule = StoredSchedule(*row[:-_HOLD_COLUMNS])
    return schedule if row.held_by is None else replace(schedule, hold=HeldBy(*row[-_HOLD_COLUMNS:]))


def _by_key(rows: Iterable[Any]) -> dict[Key, StoredSchedule]:
    return {schedule.key: schedule for schedule in map(stored_schedule, rows)}


def _key_parameters(keys: Sequence[Key]) -> dict[str, list[str]]:
    return {"namespaces": [namespace for namespace, _ in keys], "names": [name for _, name in keys]}


def _columns(row: ScheduleRow) -> Mapping[str, object]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}

"""The statements of holds: set, removed, listed, and what has been done about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from slotkeeper.store.connection import Session, execute
from slotkeeper.store.schedules import StoredSchedule, stored_schedule


@dataclass(frozen=True, slots=True)
class Target:
    """What a hold is on: a schedule; without a name its namespace; without either everything of a cluster."""

    cluster: str
    namespace: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        if self.namespace is None:
            return "everything"
        return f"namespace {self.namespace}" if self.name is None else f"{self.namespace}/{self.name}"

    def within(self, other: Target) -> bool:
        """Whether a hold on ``other`` covers this, too."""
        return self.cluster == other.cluster and (
            other.namespace is None or (other.namespace == self.namespace and other.name in (None, self.name))
        )


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold that is in force. ``until`` None: until it is released; ``schedules``: how many it covers."""

    target: Target
    held_by: str
    login: str
    reason: str
    since: datetime
    until: datetime | None
    schedules: int


def add(
    connection: psycopg.Connection[Any], target: Target, *, held_by: str, reason: str, until: datetime | None
) -> bool:
    """Stores a hold in the caller's transaction; True: it takes the place of one on the same target."""
    parameters = {**_columns(target), "held_by": held_by, "reason": reason, "until": until}
    replaced: bool = execute(connection, "holds.add", parameters)[0].replaced
    return replaced


def remove(connection: psycopg.Connection[Any], target: Target) -> bool:
    """Removes the hold on exactly this target; False: there is none."""
    removed: bool = execute(connection, "holds.remove", _columns(target))[0].removed
    return removed


def holds(session: Session, cluster: str) -> list[Hold]:
    """The holds of a cluster that are in force, the widest first."""
    return [
        Hold(
            Target(cluster, row.namespace, row.name),
            row.held_by, row.login, row.reason, row.held_at, row.held_until, row.schedules,
        )
        for row in session.call("holds.list", cluster=cluster)
    ]  # fmt: skip


def release_held(connection: psycopg.Connection[Any], *, everything: bool) -> int:
    """Gives slots back to schedules whose hold has ended by itself; returns how many.

    With ``everything`` also to those whose hold was removed, and notes where a hold ends at another time than it did.
    """
    released: int = execute(connection, "holds.release", {"all": everything})[0].released
    return released


def lock_unheld(connection: psycopg.Connection[Any], limit: int) -> list[StoredSchedule]:
    """Up to ``limit`` schedules that a hold covers and that are not held yet, locked until the transaction ends."""
    return [stored_schedule(row) for row in execute(connection, "holds.lock_unheld", {"limit": limit})]


def mark_held(connection: psycopg.Connection[Any], ids: Sequence[int]) -> int:
    """These, locked by ``lock_unheld`` and with every slot up to now decided, have no slots from here; how many."""
    marked: int = execute(connection, "holds.mark", {"ids": list(ids)})[0].marked
    return marked


def outstanding(session: Session) -> int:
    """How many schedules are not yet as the holds want them."""
    schedules: int = session.call("holds.outstanding")[0].schedules
    return schedules


def _columns(target: Target) -> dict[str, str | None]:
    return {"cluster": target.cluster, "namespace": target.namespace, "name": target.name}

"""The keeper's statements: reap, fold, sweep, partitions ahead, retention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from slotkeeper.store.connection import Session

#: What can become of a run whose worker has lost its lease.
BECAME = ("ready", "dead", "cancelled")


class LostLease(NamedTuple):
    """Where a worker lost runs, and what they became: ready, dead or cancelled.

    ``pool`` is that of the worker. The names are empty of a queue that the login of whoever reaps may not claim from.
    """

    namespace: str
    queue: str
    pool: str
    became: str


#: How many runs were taken from workers whose lease had ended.
LeaseExpirations = Counter[LostLease]


@dataclass(frozen=True, slots=True)
class Reaped:
    """What one reap did (in runs), until when reaping is paused, and the database's clock after it."""

    given_back: int
    dead: int
    skipped: int
    paused_until: datetime
    lost: LeaseExpirations
    moment: datetime

    @classmethod
    def of(cls, row: Any) -> Reaped:
        """From the row that the statement ``keeper.reap`` returns."""
        lost = Counter(
            {
                LostLease(found["namespace"], found["queue"], found["pool"], became): found[became]
                for found in row.lost
                for became in BECAME
            }
        )
        return cls(row.given_back, row.dead, row.skipped, row.paused_until, lost, row.moment)


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep found: lanes with stragglers, promoted owners, orphaned runs."""

    stragglers: int
    promoted: int
    orphans: int


def reap(session: Session, expected: datetime | None, *, starting: bool) -> Reaped:
    """Gives back the runs of workers whose lease has ended, and records slots that are past their start_by.

    ``expected`` is the database time that the caller expects by its own clock; ``starting`` is true at its first call.
    """
    return Reaped.of(session.call("keeper.reap", expected=expected, starting=starting)[0])


def fold(session: Session, after: int | None, limit: int) -> tuple[int, int | None]:
    """Moves up to ``limit`` outcomes into schedule_state; returns how many, and the highest id among them."""
    row = session.call("keeper.fold", after=after, limit=limit)[0]
    return row.folded, row.highest


def sweep(session: Session) -> Swept | None:
    """Finds what moving bounds and promotions that never wait leave behind; None when it is not yet time."""
    row = session.call("keeper.sweep")[0]
    return None if row.stragglers is None or row.orphans is None else Swept(*row)


def ensure_partitions(session: Session, days: int) -> int:
    """Makes the partitions for the next ``days`` days; returns how many were made."""
    return int(session.call("keeper.partitions", days=days)[0].made)


@dataclass(frozen=True, slots=True)
class Retained:
    """What one step of retention says.

    ``more``: whether there is more to do; None: somebody else holds the row of the fleet, ask again. ``keys_after``:
    how far keys were looked at, for the next step. Where ``more`` is False, ``retained_at`` and ``age`` say when there
    was last nothing to do, whoever saw it: an instant of the database's clock, and the seconds since then.
    """

    more: bool | None
    keys_after: int | None
    retained_at: datetime | None
    age: float | None


def drop_history(session: Session) -> int | None:
    """Drops the partitions that are older than what is kept; returns how many, None where it could not look."""
    dropped: int | None = session.call("keeper.drop_history")[0].dropped
    return dropped


def retain(session: Session, limit: int, keys_after: int | None) -> Retained:
    """One step of retention, at most ``limit`` rows of each kind; ``keys_after`` is what the step before said."""
    return Retained(*session.call("keeper.retain", limit=limit, keys_after=keys_after)[0])


@dataclass(frozen=True, slots=True)
class StaleSuccessDue:
    """A schedule whose ``success_due`` must be computed again, and from which instants."""

    id: int
    owner: int
    version: int
    last_success_at: datetime | None
    created_at: datetime
    timing_since: datetime
    since: datetime


def stale_success_due(session: Session, after: int | None, limit: int) -> list[StaleSuccessDue]:
    """Up to ``limit`` schedules that succeeded, resumed or were edited since their ``success_due`` was computed.

    By id, from the first one after ``after`` on.
    """
    return [StaleSuccessDue(*row) for row in session.call("keeper.stale_success_due", after=after, limit=limit)]


def store_success_due(session: Session, computed: Sequence[tuple[StaleSuccessDue, datetime | None]]) -> None:
    """Stores by when each should have succeeded again; None where no success is expected."""
    session.call(
        "keeper.store_success_due",
        ids=[schedule.id for schedule, _ in computed],
        versions=[schedule.version for schedule, _ in computed],
        since=[schedule.since for schedule, _ in computed],
        due=[due for _, due in computed],
    )

"""The keeper's statements: reap, fold, sweep, partitions ahead, retention."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from slotkeeper.store.connection import Session


@dataclass(frozen=True, slots=True)
class Reaped:
    """What one reap did, until when reaping is paused, and the database's clock after it."""

    given_back: int
    dead: int
    skipped: int
    paused_until: datetime
    moment: datetime


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
    return Reaped(*session.call("keeper.reap", expected=expected, starting=starting)[0])


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


def retain(session: Session, limit: int) -> bool:
    """One step of retention, at most ``limit`` rows of each kind; True when there is more to do."""
    return bool(session.call("keeper.retain", limit=limit)[0].more)

"""One attempt in a worker's hand, and what can become of it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slotkeeper.sdk import Run
from slotkeeper.store.worker import ClaimedRow, Return
from slotkeeper.worker.action import Action

#: Why a worker stops an attempt by itself.
DEADLINE, ACTIVE_DEADLINE, CANCELLED, LEASE_LOST, DRAIN = (
    "AttemptDeadlineExceeded",
    "ActiveDeadlineExceeded",
    "Cancelled",
    "LeaseLost",
    "Drain",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an attempt: ``kind`` as ``finish_v1`` knows it."""

    kind: str
    reason: str = ""
    message: str = ""
    seconds: float = 0


DONE = Outcome("done")
UNSTARTED = Outcome("unstarted")


@dataclass(slots=True, eq=False)
class Batch:
    """The runs of one claim: its token, the database's time of it, and how many have no recorded outcome yet."""

    token: uuid.UUID
    claimed_at: datetime
    outstanding: int


@dataclass(slots=True, eq=False)
class Attempt:
    """One claimed run from claim to outcome. ``boot_seconds`` clocks; 0 means not yet.

    ``began``: when its handler began; ``start_before``: it must not begin later; ``stop_reason`` and
    ``stop_asked``: why and when it was asked to stop; ``handle``: what its executor needs to stop it;
    ``lost``: its lease is lost, or another attempt owns the run.
    """

    row: ClaimedRow
    batch: Batch
    action: Action
    began: float = 0.0
    ended: float = 0.0
    start_before: float = 0.0
    deadline: float = 0.0
    deadline_reason: str = DEADLINE
    stop_reason: str = ""
    stop_asked: float = 0.0
    outcome: Outcome | None = None
    reported: bool = False
    lost: bool = False
    handle: Any = None

    @property
    def run(self) -> Run:
        """What its handler sees."""
        return Run(self)

    @property
    def token(self) -> uuid.UUID:
        """Of its claim."""
        return self.batch.token

    @property
    def claimed_at(self) -> datetime:
        """By the database's clock."""
        return self.batch.claimed_at

    @property
    def cancelled(self) -> bool:
        """Whether it was asked to stop."""
        return bool(self.stop_reason)

    def begin(self, now: float) -> bool:
        """Whether its handler may begin at ``now``; else its outcome is set: too late, out of time, or stopped while it
        waited.
        """
        if self.stop_reason:
            self.outcome = self.stopped_outcome()
        elif self.start_before and now > self.start_before:
            self.outcome = UNSTARTED
        elif self.deadline and now >= self.deadline:
            # The database ends it where an earlier attempt has used its time up. Where this claim is its first start,
            # it was we who let the time pass, and the run has not started.
            self.outcome = UNSTARTED
        else:
            self.began = now
            return True
        return False

    def stopped_outcome(self) -> Outcome:
        """The outcome of an attempt that stopped because it was asked to."""
        if self.stop_reason == DEADLINE:
            return Outcome("failed", DEADLINE, f"stopped after {self.action.attempt_deadline} s")
        if self.stop_reason == ACTIVE_DEADLINE:
            return Outcome("fatal", ACTIVE_DEADLINE, f"stopped {self.action.active_deadline} s after its first start")
        if self.stop_reason == CANCELLED:
            return Outcome("failed", CANCELLED, "cancelled")
        return Outcome("interrupted", self.stop_reason, "given back")

    def as_return(self) -> Return:
        """For ``finish_v1``."""
        outcome = self.outcome or UNSTARTED
        return Return(
            id=self.row.id,
            token=self.batch.token,
            owner=self.row.owner,
            slot=self.row.slot,
            kind=outcome.kind,
            seconds=outcome.seconds,
            reason=outcome.reason,
            message=outcome.message,
        )

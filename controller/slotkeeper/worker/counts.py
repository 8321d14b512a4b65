"""What this worker counts for metrics: attempts by outcome, delays and durations, per lane.

Plain numbers, counted once per batch: a call of a metrics library per run would cost more than a quick handler.
Written by the supervisor's loop alone; read by whoever shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from slotkeeper.histogram import Histogram
from slotkeeper.store.keeper import LeaseExpirations
from slotkeeper.store.worker import TRIGGERS, instant
from slotkeeper.worker.attempt import Attempt

#: What can become of an attempt; the same words as in the log.
OUTCOMES = (
    "done", "dead", "cancelled", "failed", "infrastructure", "snoozed", "interrupted", "unstarted", "fenced",
)  # fmt: skip
#: Upper bounds in seconds. Lateness counts from milliseconds to an hour, handlers run from milliseconds to half a day.
DELAY_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600)
DURATION_BOUNDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 30, 60, 300, 900, 3600, 14400, 43200)

#: Rows carry instants as the database sends them, counted from here.
_EPOCH, _MICROSECOND = instant(0), timedelta(microseconds=1)
_CATCH_UP = TRIGGERS.index("CatchUp")


class LaneCounts:
    """Of one lane: attempts by outcome, seconds from due to claimed, seconds that handlers took."""

    __slots__ = ("delays", "durations", "outcomes")

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.delays = Histogram(DELAY_BOUNDS)
        self.durations = Histogram(DURATION_BOUNDS)

    def count(self, outcome: str, attempts: int) -> None:
        """So many attempts ended so; a word that is not known (of a newer database) gets a place of its own."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + attempts

    def add(self, attempts: Sequence[Attempt], outcome: str) -> None:
        """Attempts that began and have ended."""
        self.count(outcome, len(attempts))
        self.durations.observe([attempt.ended - attempt.began for attempt in attempts])
        self.delays.observe(_delays(attempts))


class AttemptCounts:
    """Of one worker process."""

    def __init__(self) -> None:
        self.lanes: dict[int, LaneCounts] = {}
        #: Runs of other workers whose lease had ended.
        self.lease_expirations = LeaseExpirations()
        #: How often this worker had to let go of everything, because its own lease had ended or was in doubt.
        self.leases_lost = 0

    def succeeded(self, attempts: Sequence[Attempt]) -> None:
        """A batch whose success is recorded."""
        lanes = {attempt.row.lane for attempt in attempts}
        for lane in lanes:
            of_lane = attempts if len(lanes) == 1 else [attempt for attempt in attempts if attempt.row.lane == lane]
            self._of(lane).add(of_lane, "done")

    def ended(self, attempt: Attempt, outcome: str) -> None:
        """One attempt with any outcome; one whose handler never began has neither delay nor duration."""
        counts = self._of(attempt.row.lane)
        if attempt.began and attempt.ended >= attempt.began:  # one that was abandoned has not ended
            counts.add([attempt], outcome)
        else:
            counts.count(outcome, 1)

    def _of(self, lane: int) -> LaneCounts:
        counts = self.lanes.get(lane)
        if counts is None:
            counts = self.lanes[lane] = LaneCounts()
        return counts


def _delays(attempts: Sequence[Attempt]) -> list[float]:
    """Seconds from the due time to the claim. A first attempt is late since its slot, even if the ticker was late;
    what comes back, what a person asked for, and what a spread moves is late since ``run_at``.
    """
    claimed = {batch: (batch.claimed_at - _EPOCH) // _MICROSECOND for batch in {attempt.batch for attempt in attempts}}
    return [
        (
            claimed[attempt.batch]
            - (
                row.slot_microseconds
                if attempt.action.late_since_slot
                and row.slot_microseconds is not None
                and row.attempt == 1
                and row.trigger_number <= _CATCH_UP
                else row.run_at_microseconds
            )
        )
        / 1e6
        for attempt in attempts
        for row in (attempt.row,)
    ]

"""Everything that a worker holds: attempts in its executors, outcomes not yet recorded, and how much more it may take.

Touched by the supervisor's loop alone, but for ``report``, which executors call from their threads. Knows no database.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Sequence

from slotkeeper.database_clock import boot_seconds
from slotkeeper.worker.attempt import DONE, Attempt

#: So many claims may be under way at once: while one waits for the disk and one is computed, the third's runs are run
#: (two left a quarter of two cores idle, a fourth added nothing: docs/decisions.md).
CLAIM_LOOPS = 3
#: How many runs may wait in this process beyond its concurrency, for each claim.
PREFETCH = 1000
#: All that is prefetched begins within this time (seconds), by the measured time of handlers.
_BEGINS_WITHIN = 1.0
#: After a claim met runs that must not wait in a process, none is asked to for this time (seconds).
_NO_PREFETCH_SECONDS = 1.0
#: Weight of the newest batch in the mean handler time.
_WEIGHT = 0.2


class Hand:
    """``wake`` is called, from any thread, when there is an outcome to record."""

    def __init__(self, concurrency: int, wake: Callable[[], None]) -> None:
        self._concurrency = concurrency
        self._wake = wake
        self._reported: deque[Attempt] = deque()
        self._reporting = threading.Lock()
        # Mean seconds of a handler by kind of action; the slowest kind decides, so that none is prefetched behind
        # another.
        self._means: dict[str, float] = {}
        self.attempts: set[Attempt] = set()
        self.successes: deque[Attempt] = deque()
        self.returns: deque[Attempt] = deque()
        self.drained: list[uuid.UUID] = []
        self.asked = 0
        self.calls = 0
        self.oldest_success = 0.0
        self._no_prefetch_until = 0.0

    def take(self, attempts: Sequence[Attempt]) -> None:
        """Attempts that were claimed."""
        self.attempts.update(attempts)

    def report(self, attempts: Sequence[Attempt]) -> None:
        """Attempts have their outcomes; from any thread. Only the first word on an attempt counts."""
        with self._reporting:  # two threads at once: each would see the other's, and nobody would wake the loop
            before = len(self._reported)
            for attempt in attempts:
                if not attempt.reported:
                    attempt.reported = True
                    self._reported.append(attempt)
            first = not before and bool(self._reported)
        if first:
            self._wake()

    def collect(self) -> None:
        """Sorts what was reported into successes and returns."""
        with self._reporting:
            collected = list(self._reported)
            self._reported.clear()
        if not collected:
            return
        if not self.successes:
            self.oldest_success = boot_seconds()
        returns = [attempt for attempt in collected if attempt.outcome is not DONE or attempt.lost]
        if returns:
            self.returns += returns
            self.successes += [attempt for attempt in collected if attempt.outcome is DONE and not attempt.lost]
        else:
            self.successes += collected
        for kind in {attempt.action.kind for attempt in collected}:
            spent = [
                attempt.ended - attempt.began for attempt in collected if attempt.began and attempt.action.kind == kind
            ]
            if spent:
                mean = sum(spent) / len(spent)
                self._means[kind] = self._means.get(kind, mean) * (1 - _WEIGHT) + mean * _WEIGHT

    def let_go(self, attempts: Sequence[Attempt]) -> list[uuid.UUID]:
        """They are about to be recorded; the tokens of the claims that end with them, if all goes well."""
        self.attempts.difference_update(attempts)
        ending = Counter([attempt.batch for attempt in attempts])
        return [batch.token for batch, ended in ending.items() if batch.outstanding == ended]

    def settled(self, attempts: Sequence[Attempt], told: Sequence[uuid.UUID] = ()) -> None:
        """Their outcomes are recorded, or belong to somebody else. ``told``: drained tokens that the database knows.

        Counted only now: while the answer is on its way another loop must not take a claim for drained, whose run may
        still turn out not to be recorded.
        """
        self.attempts.difference_update(attempts)
        for batch, ended in Counter([attempt.batch for attempt in attempts]).items():
            batch.outstanding -= ended
            if not batch.outstanding and batch.token not in told:
                self.drained.append(batch.token)

    def reopen(self, attempts: Sequence[Attempt]) -> None:
        """They were not recorded after all: their outcomes are to be recorded one by one."""
        self.attempts.update(attempts)
        self.returns.extend(attempts)

    def no_prefetch(self) -> None:
        """What is due next must not wait in a process: for a moment only free capacity is claimed."""
        self._no_prefetch_until = boot_seconds() + _NO_PREFETCH_SECONDS

    def room(self) -> tuple[int, int]:
        """(free, prefetch): how many runs could begin now, and how many more may wait here."""
        holding = len(self.attempts) - len(self.successes) - len(self.returns) + self.asked
        free = max(self._concurrency - holding, 0)
        slowest = max(self._means.values(), default=None)
        if slowest is None or boot_seconds() < self._no_prefetch_until:
            return free, 0
        ahead = min(CLAIM_LOOPS * PREFETCH, int(self._concurrency * _BEGINS_WITHIN / max(slowest, 1e-6)))
        return free, max(min(self._concurrency + ahead - holding - free, PREFETCH), 0)

    @property
    def idle(self) -> bool:
        """Whether nothing is held, nothing is left to record, and no answer of the database can change that."""
        return not (self.attempts or self._reported or self.calls)

"""One claim loop: records outcomes and claims the next runs, in one call wherever it can.

Three of them share a worker's hand, so that one claims while the others' runs are being run or recorded. Decides when
to look and how far a lane has been seen; executes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Protocol

import structlog

from slotkeeper.database_clock import DatabaseClock, boot_seconds
from slotkeeper.errors import (
    DatabaseBusy,
    DatabaseUnavailable,
    FinishRefused,
    LeaseLost,
    SlotkeeperError,
)
from slotkeeper.store.worker import (
    NO_SUCCESSES,
    Answer,
    Bound,
    ClaimedRow,
    Outlook,
    RowAddresses,
    Successes,
    WorkerStore,
    instant,
)
from slotkeeper.worker.attempt import Attempt
from slotkeeper.worker.hand import Hand

_log = structlog.stdlib.get_logger()

#: Outcomes wait for company at most this long (seconds), and no more than so many travel together.
FLUSH_SECONDS = 0.05
FLUSH_ROWS = 1000
#: A bound is never nearer to the database's clock than this: a row committed late by less is still seen.
_BOUND_DISTANCE = timedelta(seconds=2)
_RETRY_SECONDS = 0.3
_LANE, _KEY = attrgetter("lane"), attrgetter("run_at_microseconds", "id")


class LaneBounds:
    """How far each lane has been seen by this worker, and when it last looked."""

    def __init__(self) -> None:
        self.bounds: dict[int, Bound] = {}
        self.outlook: Outlook | None = None

    def advance(self, rows: Sequence[ClaimedRow], lanes: Sequence[int], outlook: Outlook, *, exhausted: bool) -> None:
        """After a claim: up to the highest claimed key, or to just before now where nothing more was found."""
        edge = outlook.moment - _BOUND_DISTANCE
        if exhausted:
            for lane in lanes:
                self.bounds[lane] = Bound(edge, 0)
        else:
            seen = set(map(_LANE, rows))
            for lane in seen:
                run_at, run = max(map(_KEY, rows if len(seen) == 1 else [row for row in rows if row.lane == lane]))
                self.bounds[lane] = min(Bound(instant(run_at), run), Bound(edge, 0))
        self.outlook = outlook

    def forget(self) -> None:
        """The next claim looks at everything."""
        self.bounds.clear()


class ClaimHost(Protocol):
    """What a claim loop needs of the supervisor."""

    @property
    def worker_id(self) -> int: ...
    def may_claim(self) -> bool: ...
    def finished(self) -> bool: ...
    def lease_lost(self) -> None: ...
    def more_to_claim(self) -> None: ...
    def answered(self, attempt: Attempt, answer: Answer) -> None: ...
    def recorded(self, attempts: Sequence[Attempt]) -> None: ...
    async def accept(
        self, store: WorkerStore, worker: int, token: uuid.UUID, rows: list[ClaimedRow], outlook: Outlook
    ) -> None: ...


class ClaimLoop:
    """Runs until its host has finished; ``poll_seconds`` is its longest sleep."""

    def __init__(
        self,
        host: ClaimHost,
        store: WorkerStore,
        hand: Hand,
        clock: DatabaseClock,
        lanes: LaneBounds,
        poll_seconds: float,
    ) -> None:
        self._host, self._store, self._hand, self._clock, self._lanes = host, store, hand, clock, lanes
        self._poll_seconds = poll_seconds
        self._look_at = 0.0
        self._hinted = False
        self._known_lanes: list[tuple[int, int]] = []
        self._claims = 0
        self._lanes_at = 0.0
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """There may be something to do; from the loop's own thread."""
        self._wake.set()

    def look_now(self) -> None:
        """There may be something to claim, even if a claim that is under way finds nothing."""
        self._look_at = 0.0
        self._hinted = True
        self._wake.set()

    def forget_lanes(self) -> None:
        """There is a new lane: ask for the list before the next claim."""
        self._known_lanes = []

    async def run(self) -> None:
        """Until ``finished``."""
        while not self._host.finished():
            try:
                busy = await self._step()
            except LeaseLost:
                self._host.lease_lost()
                busy = False
                await asyncio.sleep(_RETRY_SECONDS)
            except (DatabaseUnavailable, DatabaseBusy) as error:
                _log.debug("claim_failed", error=str(error))
                busy = False
                await asyncio.sleep(_RETRY_SECONDS)
            except SlotkeeperError as error:
                _log.error("claim_failed", error=str(error))
                busy = False
                await asyncio.sleep(self._poll_seconds)
            if not busy:
                await self._sleep()

    async def _step(self) -> bool:
        """One call if there is something to do; False when there is nothing."""
        hand = self._hand
        if hand.returns:
            await self._finish_one_by_one(_take(hand.returns, FLUSH_ROWS))
        free, prefetch = self._wanted()
        claiming = free + prefetch > 0
        if not claiming and not self._flush_due():
            return False
        await self._work(_take(hand.successes, FLUSH_ROWS), free, prefetch)
        return True

    def _wanted(self) -> tuple[int, int]:
        if not self._host.may_claim() or boot_seconds() < self._look_at:
            return 0, 0
        return self._worthwhile()

    def _worthwhile(self) -> tuple[int, int]:
        """The room for more, unless it is only a prefetch that is still half full."""
        free, prefetch = self._hand.room()
        return (free, prefetch) if free > 0 or prefetch >= FLUSH_ROWS // 2 else (0, 0)

    def _flush_due(self) -> bool:
        hand = self._hand
        waiting = len(hand.successes)
        if not waiting:
            return False
        nothing_else = waiting + len(hand.returns) >= len(hand.attempts)
        return waiting >= FLUSH_ROWS or nothing_else or boot_seconds() - hand.oldest_success >= FLUSH_SECONDS

    async def _sleep(self) -> None:
        now = boot_seconds()
        until = (
            max(self._look_at, now) if self._host.may_claim() and any(self._worthwhile()) else now + self._poll_seconds
        )
        if self._hand.successes:
            until = min(until, self._hand.oldest_success + FLUSH_SECONDS)
        until = min(until, now + self._poll_seconds)
        if self._hand.returns:
            until = now  # more than fit in one call, or a call that failed
        if until > now:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), until - now)
        self._wake.clear()

    async def _work(self, successes: list[Attempt], free: int, prefetch: int) -> None:
        """The fused call. Until its answer is dealt with, what it asks for counts as held, and nobody finishes."""
        hand = self._hand
        hand.calls += 1
        hand.asked += free + prefetch
        try:
            await self._call(successes, free, prefetch)
        finally:
            hand.asked -= free + prefetch
            hand.calls -= 1

    async def _call(self, successes: list[Attempt], free: int, prefetch: int) -> None:
        """The call, and what to do when its answer is no or none."""
        hand, worker = self._hand, self._host.worker_id
        token = uuid.uuid4()
        self._hinted = False
        try:
            lanes = await self._lanes_to_claim() if free + prefetch else []
        except SlotkeeperError:
            hand.successes.extendleft(reversed(successes))
            raise
        if not lanes:
            free = prefetch = 0
            self._look_at = 0.0 if self._hinted else boot_seconds() + self._poll_seconds
        ending = hand.let_go(successes)
        drained, hand.drained = hand.drained, []
        sent = boot_seconds()
        try:
            rows, outlook = await self._store.work(
                worker, token, lanes, self._lanes.bounds, self._lanes.outlook.moment if self._lanes.outlook else None,
                free=free, prefetch=prefetch, drained=drained + ending,
                successes=_by_address(successes),
            )  # fmt: skip
        except SlotkeeperError as error:
            hand.drained += drained
            hand.reopen(successes)  # recorded one by one, which answers per run
            if isinstance(error, DatabaseUnavailable) and free + prefetch:
                await self._resend(worker, token, lanes, free, prefetch)
            elif not isinstance(error, FinishRefused):
                raise
            return
        self._clock.tell(outlook.moment, sent)
        hand.settled(successes, told=ending)
        if successes:
            self._host.recorded(successes)
        if rows:
            await self._host.accept(self._store, worker, token, rows, outlook)
        self._looked(rows, lanes, outlook, asked=free + prefetch)

    async def _resend(self, worker: int, token: uuid.UUID, lanes: list[int], free: int, prefetch: int) -> None:
        """The answer to a claim was lost: ask for the same runs until the database answers, before a new token is
        used.
        """
        while not self._host.finished() and self._host.worker_id == worker:
            try:
                rows, outlook = await self._store.work(
                    worker, token, lanes, {}, None, free=free, prefetch=prefetch, resend=True,
                    successes=NO_SUCCESSES, drained=[],
                )  # fmt: skip
            except (DatabaseUnavailable, DatabaseBusy):
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            except LeaseLost:
                # Either the next beat renews it, and what was claimed is still ours; or we become another worker.
                self._host.lease_lost()
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if rows:
                await self._host.accept(self._store, worker, token, rows, outlook)
            return

    def _looked(self, rows: list[ClaimedRow], lanes: list[int], outlook: Outlook, *, asked: int) -> None:
        """How far the lanes have been seen, and when to look again."""
        if not asked:
            return
        if outlook.cut:
            self._hand.no_prefetch()
        exhausted = len(rows) < asked and not outlook.cut
        if not exhausted:
            self._host.more_to_claim()
        self._lanes.advance(rows, lanes, outlook, exhausted=exhausted)
        if exhausted:
            seconds = self._clock.seconds_until(outlook.next_due)
            wait = self._poll_seconds if seconds is None else min(self._poll_seconds, max(seconds, 0.0))
            self._look_at = 0.0 if self._hinted else boot_seconds() + wait

    async def _lanes_to_claim(self) -> list[int]:
        now = boot_seconds()
        if now - self._lanes_at >= self._poll_seconds or not self._known_lanes:
            self._known_lanes = await self._store.lanes(self._host.worker_id)
            self._lanes_at = now
            # Once a poll, everything is looked at: what a bound has passed is found even when no keeper runs.
            if not self._hand.attempts:
                self._lanes.forget()
        self._claims += 1
        return in_turn(self._known_lanes, self._claims)

    async def _finish_one_by_one(self, attempts: list[Attempt]) -> None:
        """Records outcomes with an answer for each. Of a batch that the database refuses for another reason than its
        absence, each goes by itself: one that cannot be recorded must not keep the others from it.
        """
        attempts.sort(key=lambda attempt: attempt.row.id)  # as they are answered
        try:
            answers = await self._store.finish(self._host.worker_id, [attempt.as_return() for attempt in attempts])
        except (DatabaseUnavailable, DatabaseBusy, LeaseLost):
            self._hand.returns.extendleft(reversed(attempts))
            raise
        except SlotkeeperError as error:
            await self._finish_each(attempts, error)
            return
        self._hand.settled(attempts)
        for attempt, answer in zip(attempts, answers, strict=True):
            self._host.answered(attempt, answer)
            if answer.became == "ready":
                seconds = self._clock.seconds_until(answer.run_at)
                self._look_at = min(self._look_at, boot_seconds() + max(seconds or 0.0, 0.0))

    async def _finish_each(self, attempts: list[Attempt], error: SlotkeeperError) -> None:
        if len(attempts) == 1:
            _log.error("finish_failed", run=attempts[0].row.id, error=str(error))
            asyncio.get_running_loop().call_later(self._poll_seconds, self._hand.returns.append, attempts[0])
            return
        for number, attempt in enumerate(attempts):
            try:
                await self._finish_one_by_one([attempt])
            except SlotkeeperError:
                self._hand.returns.extend(attempts[number + 1 :])
                raise


def in_turn(lanes: Sequence[tuple[int, int]], turn: int) -> list[int]:
    """Lanes by priority; those of one priority begin with another one at each turn, so that a busy queue starves
    no other.
    """
    ordered: list[int] = []
    for _, group in groupby(lanes, key=itemgetter(1)):
        equals = [lane for lane, _ in group]
        start = turn % len(equals)
        ordered += equals[start:] + equals[:start]
    return ordered


def _by_address(attempts: Sequence[Attempt]) -> Successes:
    rows = [attempt.row for attempt in attempts]
    return Successes(
        RowAddresses([row.address for row in rows]),
        sum([row.id for row in rows]),
        [batch.token for batch in {attempt.batch for attempt in attempts}],
    )


def _take(queue: deque[Attempt], limit: int) -> list[Attempt]:
    return [queue.popleft() for _ in range(min(limit, len(queue)))]

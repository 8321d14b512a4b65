"""The supervisor of one worker process: starts everything, keeps the lease, stops what must stop, drains.

Runs no user code. Its loop is the main thread's; handlers, heartbeat and threads are elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial

import structlog

from slotkeeper.database_clock import DatabaseClock, boot_seconds
from slotkeeper.errors import SlotkeeperError
from slotkeeper.sdk import Task, registered_tasks
from slotkeeper.store.worker import NEW_LANE, Answer, ClaimedRow, Outlook, WorkerStore, listen
from slotkeeper.worker.action import Action, Actions, UnreadableAction
from slotkeeper.worker.async_handlers import AsyncHandlers
from slotkeeper.worker.attempt import (
    ACTIVE_DEADLINE,
    CANCELLED,
    DEADLINE,
    DRAIN,
    LEASE_LOST,
    UNSTARTED,
    Attempt,
    Batch,
    Outcome,
)
from slotkeeper.worker.attempt_log import log_attempt, log_refused, outcome_name
from slotkeeper.worker.claim_loop import ClaimLoop, LaneBounds
from slotkeeper.worker.command import Commands
from slotkeeper.worker.counts import AttemptCounts
from slotkeeper.worker.guard import Guard
from slotkeeper.worker.hand import CLAIM_LOOPS, Hand
from slotkeeper.worker.lease import Lease
from slotkeeper.worker.process_handlers import ProcessHandlers
from slotkeeper.worker.settings import WorkerSettings
from slotkeeper.worker.thread_handlers import ThreadHandlers

_log = structlog.stdlib.get_logger()

#: A handler that was asked to stop and still runs after this time (seconds) makes the worker drain itself and exit.
STUCK_SECONDS = 30.0
#: An attempt that outlives its worker for a moment must not meet its successor: no retry before this time (seconds).
_EXIT_SECONDS = 5.0
#: How exact deadlines are (seconds).
_DEADLINE_TICK = 0.1
_STOP_SECONDS = 6.0
#: The outcomes of handlers that were abandoned have this time (seconds) to be recorded.
_LAST_WORDS_SECONDS = 2.0
_RETRY_SECONDS = 0.3


class Supervisor:
    """One worker process. ``run`` returns its exit status: 0 drained, 1 a handler did not stop."""

    def __init__(
        self, settings: WorkerSettings, version: str, *, tasks: Mapping[str, Task] | None = None,
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:  # fmt: skip
        self._settings, self._version = settings, version
        self._tasks = registered_tasks if tasks is None else tasks
        self._stuck_seconds = stuck_seconds
        self._loop: asyncio.AbstractEventLoop
        self._hand = Hand(settings.concurrency, self._wake_from_thread)
        self._clock = DatabaseClock()
        self._lanes = LaneBounds()
        self._actions = Actions()
        self._stores = [WorkerStore(settings.dsn, "worker") for _ in range(CLAIM_LOOPS)]
        self._claim_loops: list[ClaimLoop] = []
        self._worker_id = 0
        self._lease: Lease | None = None
        self._fenced = False
        self._registering = False
        self._registration: asyncio.Task[None] | None = None
        self._draining = False
        self._drain_until = 0.0
        self._finished = False
        self._exit_status = 0
        self.counts = AttemptCounts()
        self._reaped_before = False

    # --- what the claim loops ask -----------------------------------------------------------------------------------

    @property
    def worker_id(self) -> int:
        """The row of this process in the database."""
        return self._worker_id

    @property
    def ready(self) -> bool:
        """Whether it has a lease and takes runs: for the readiness probe, from any thread."""
        return self._worker_id != 0 and self.may_claim()

    @property
    def held(self) -> int:
        """How many runs it holds: for metrics, from any thread."""
        return len(self._hand.attempts)

    def may_claim(self) -> bool:
        """Whether new runs may be taken."""
        return not (self._draining or self._fenced or self._registering)

    def finished(self) -> bool:
        """Whether everything is recorded and given back."""
        return self._finished

    def lease_lost(self) -> None:
        """The database says that the lease has ended: the heartbeat finds out whether the row is still there."""
        if self._lease is not None:
            self._lease.beat_now()

    def more_to_claim(self) -> None:
        """A claim came back full: every loop may look."""
        for loop in self._claim_loops:
            loop.look_now()

    def answered(self, attempt: Attempt, answer: Answer) -> None:
        """The database's word on one outcome."""
        if answer.answer == "fenced":
            attempt.lost = True
            log_refused(self._settings.name, attempt)
        became = answer.became or answer.answer
        self.counts.ended(attempt, outcome_name(attempt, became))
        log_attempt(self._settings.name, attempt, became)

    def recorded(self, attempts: Sequence[Attempt]) -> None:
        """A batch of successes is in the database."""
        self.counts.succeeded(attempts)
        if logging.getLogger().isEnabledFor(logging.INFO):
            for attempt in attempts:
                log_attempt(self._settings.name, attempt, "done")

    async def accept(
        self, store: WorkerStore, worker: int, token: uuid.UUID, rows: list[ClaimedRow], outlook: Outlook
    ) -> None:
        """Puts runs to work that were claimed as ``worker``."""
        actions: list[Action] = []
        while not self._finished:
            try:
                actions = await self._actions.learn(rows, store)
                break
            except SlotkeeperError as error:
                # They are claimed, so they are ours to give back; without its action no run can begin.
                _log.debug("versions_unknown", worker=self._settings.name, error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
        if self._finished or worker != self._worker_id:
            return  # reaped while the answer was on its way, or while we waited: they are others' already
        batch = Batch(token, outlook.moment, len(rows))
        attempts = [Attempt(row, batch, action) for row, action in zip(rows, actions, strict=True)]
        self._hand.take(attempts)
        if not self.may_claim():  # the claim was under way when we began to drain, or lost the lease
            for attempt in attempts:
                attempt.outcome = UNSTARTED
            self._hand.report(attempts)
            return
        self._async_handlers.submit(
            [attempt for attempt in attempts if attempt.action.quick or self._dispatch(attempt)]
        )

    # --- life -------------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """From the first connection to the last outcome."""
        self._loop = asyncio.get_running_loop()
        self._async_handlers = AsyncHandlers(self._settings.concurrency, self._hand.report)
        self._thread_handlers = ThreadHandlers(self._settings.concurrency, self._hand.report)
        self._guard = Guard()
        self._process_handlers = ProcessHandlers(
            self._settings, self._hand.report, self._guard, patience=self._stuck_seconds / 3
        )
        self._commands = Commands(
            self._settings.concurrency, self._hand.report, self._guard, hidden=frozenset({self._settings.dsn})
        )
        self._claim_loops = [
            ClaimLoop(self, store, self._hand, self._clock, self._lanes, self._settings.poll_seconds)
            for store in self._stores
        ]
        await self._register()
        background = [asyncio.create_task(_survive(work)) for work in (self._reap, self._watch, self._listen)]
        try:
            await asyncio.gather(*(loop.run() for loop in self._claim_loops))
            await self._leave()
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self._close()
            for store in self._stores:
                await store.close()
        return self._exit_status

    def drain(self) -> None:
        """No new runs; those that have not begun are given back at once. Called again: do not wait for the rest."""
        if not self._draining:
            self._draining = True
            self._drain_until = boot_seconds() + self._settings.drain_seconds
            _log.info("draining", worker=self._settings.name, running=len(self._hand.attempts))
            self._give_back_unstarted()
            self._finished = self._worker_id == 0  # it has never reached the database: there is nothing to wait for
        else:
            self._drain_until = min(self._drain_until, boot_seconds())
        self._wake()

    async def _register(self) -> None:
        """Until the database answers."""
        self._registering = True
        settings = self._settings
        failures = 0
        store = WorkerStore(settings.dsn, "worker registration")  # its own: the claim loops go on recording with theirs
        while not self._finished:
            sent = boot_seconds()
            try:
                self._worker_id = await store.register(
                    name=settings.name, namespace=settings.namespace, pool=settings.pool,
                    namespaces=list(settings.namespaces), queues=list(settings.queues),
                    concurrency=settings.concurrency, version=self._version, lease_seconds=settings.lease_seconds,
                )  # fmt: skip
                break
            except SlotkeeperError as error:
                failures += 1
                if failures & (failures - 1) == 0:
                    _log.warning("database_away", worker=settings.name, failures=failures, error=str(error))
                await asyncio.sleep(min(5.0, 0.2 * failures))
        await store.close()
        if self._finished:
            return
        if self._lease is not None:
            self._lease.stop()
        self._lease = Lease(
            settings, self._worker_id, sent,
            on_reaped=self._on_reaped,
            on_cancel=self._on_cancel,
        )  # fmt: skip
        self._fenced = self._registering = False
        self._lanes.forget()
        self._look_now()

    def _on_reaped(self) -> None:
        self._call(self._reregister)

    def _on_cancel(self, ids: Sequence[int]) -> None:
        self._call(partial(self._cancel_runs, ids))

    def _reregister(self) -> None:
        """The row is gone: nothing held is ours any more, and a new row makes us a new worker."""
        _log.warning("lease_lost", worker=self._settings.name, runs=len(self._hand.attempts))
        self.counts.leases_lost += not self._fenced  # else counted when it fenced itself
        self._lose_everything()
        if not self._registering:
            self._registering = True
            self._registration = self._loop.create_task(self._register())

    async def _leave(self) -> None:
        if self._lease is not None:
            self._lease.stop()
        # Twice: a connection that was cut while it was idle shows it only now, and the next call opens another.
        for _ in range(2):
            with contextlib.suppress(SlotkeeperError):
                await self._stores[0].leave(self._worker_id)
                return

    async def _close(self) -> None:
        self._async_handlers.close()
        self._thread_handlers.close()
        await self._process_handlers.close()
        self._guard.close()

    # --- executing --------------------------------------------------------------------------------------------------

    def _dispatch(self, attempt: Attempt) -> bool:
        """To the executor that can run it; true: to the async handlers. What nobody here can run goes back like an
        infrastructure error.
        """
        action = attempt.action
        limited = self._limit(attempt)
        if isinstance(action, UnreadableAction):
            self._refuse(attempt, "NoHandler", f"this worker cannot read the schedule: {action.problem}")
        elif action.kind not in self._settings.allow:
            self._refuse(attempt, "ActionNotAllowed", f"this worker does not allow {action.kind}")
        elif action.kind == "command":
            self._commands.submit(attempt)
        else:
            task = self._tasks.get(action.task)
            if task is None:
                self._refuse(attempt, "NoHandler", f"no handler is named {action.task!r} in this worker")
            elif self._settings.handler_process:
                self._process_handlers.submit(attempt)
            elif task.is_async:
                action.handler, action.quick = task.handler, not limited
                return True
            else:
                self._thread_handlers.submit(attempt, task)
        return False

    def _limit(self, attempt: Attempt) -> bool:
        """Works out how long a start or the whole run may take; false where nothing limits any run of its action."""
        row, action, now = attempt.row, attempt.action, boot_seconds()
        if action.start_within is not None and row.slot is not None and row.attempt == 1:
            late = (attempt.claimed_at - row.slot - action.timing.offset).total_seconds()
            attempt.start_before = now + max(action.start_within.total_seconds() - late, 0.001)
        if action.active_deadline is not None:
            spent = (attempt.claimed_at - row.first_started_at).total_seconds()
            attempt.deadline, attempt.deadline_reason = now + action.active_deadline - spent, ACTIVE_DEADLINE
        return action.start_within is not None or action.active_deadline is not None

    def _refuse(self, attempt: Attempt, reason: str, message: str) -> None:
        attempt.outcome = Outcome("infrastructure", reason, message)
        self._hand.report([attempt])

    def _stop(self, attempt: Attempt, reason: str) -> None:
        """Asks a running handler to stop; its outcome follows from the reason unless it succeeds all the same."""
        if attempt.outcome is not None or attempt.stop_reason:
            return
        attempt.stop_reason, attempt.stop_asked = reason, boot_seconds()
        if attempt.action.kind == "command":
            self._commands.stop_attempt(attempt)
        elif self._settings.handler_process:
            self._process_handlers.stop_attempt(attempt)
        else:
            self._async_handlers.stop_attempt(attempt)

    def _give_back_unstarted(self) -> None:
        executors = self._async_handlers, self._thread_handlers, self._process_handlers, self._commands
        for attempt in [attempt for executor in executors for attempt in executor.withdraw()]:
            attempt.outcome = UNSTARTED
            self._hand.report([attempt])

    def _lose_everything(self) -> None:
        self._give_back_unstarted()
        for attempt in list(self._hand.attempts):
            attempt.lost = True
            if attempt.stop_reason:  # asked already, but now it is urgent
                self._process_handlers.stop_attempt(attempt)
            self._stop(attempt, LEASE_LOST)

    def _cancel_runs(self, ids: Sequence[int]) -> None:
        wanted = set(ids)
        for attempt in list(self._hand.attempts):
            if attempt.row.id in wanted:
                self._stop(attempt, CANCELLED)

    # --- beside the claim loops -------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Fence, deadlines, stuck handlers, the end of the drain."""
        while True:
            await asyncio.sleep(min(_DEADLINE_TICK, self._lease.check_seconds if self._lease else 1))
            self._check_fence()
            now = boot_seconds()
            for attempt in list(self._hand.attempts):
                self._check_attempt(attempt, now)
            if self._draining:
                self._check_drain(now)

    def _check_fence(self) -> None:
        fenced = self._lease is not None and self._lease.fenced()
        if fenced and not self._fenced:
            _log.warning("fenced", worker=self._settings.name, runs=len(self._hand.attempts))
            self._fenced = True
            self.counts.leases_lost += 1
            self._lose_everything()
        elif self._fenced and not fenced and not self._registering:
            _log.info("lease_renewed", worker=self._settings.name)
            self._fenced = False
            self._look_now()

    def _check_attempt(self, attempt: Attempt, now: float) -> None:
        if attempt.outcome is not None or not attempt.began:
            return
        limit = attempt.action.attempt_deadline
        if attempt.deadline and now >= attempt.deadline:
            self._stop(attempt, attempt.deadline_reason)
        elif limit is not None and now >= attempt.began + limit:
            self._stop(attempt, DEADLINE)
        if attempt.stop_asked and now - attempt.stop_asked > self._stuck_seconds and not self._exit_status:
            _log.error(
                "handler_does_not_stop", worker=self._settings.name, run=attempt.row.id, schedule=attempt.run.schedule,
                task=attempt.run.task, seconds=round(now - attempt.stop_asked, 1),
            )  # fmt: skip
            self._exit_status = 1
            if not self._draining:
                self.drain()

    def _check_drain(self, now: float) -> None:
        running = [attempt for attempt in self._hand.attempts if attempt.outcome is None]
        if not running:
            # Fenced, the database is away: what is to be recorded has the drain time to get there.
            patience = 0.0 if self._fenced else _STOP_SECONDS + _LAST_WORDS_SECONDS
            self._finished = self._hand.idle or now > self._drain_until + patience
        elif now >= self._drain_until + _STOP_SECONDS or self._all_stuck(running, now):
            self._abandon(running)
        elif now >= self._drain_until:
            for attempt in running:
                self._stop(attempt, DRAIN)
        if self._finished:
            self._wake()

    def _all_stuck(self, running: Sequence[Attempt], now: float) -> bool:
        return all(attempt.stop_asked and now - attempt.stop_asked > self._stuck_seconds for attempt in running)

    def _abandon(self, running: Sequence[Attempt]) -> None:
        """Handlers that do not stop end with the process: their outcomes are recorded, and no retry begins before
        that.
        """
        self._exit_status = 1
        for attempt in running:
            outcome = attempt.stopped_outcome()
            attempt.outcome = Outcome(outcome.kind, outcome.reason, outcome.message, _EXIT_SECONDS)
            self._hand.report([attempt])

    async def _reap(self) -> None:
        """Workers reap too, so that recovery needs no controller: at each poll, and at the earliest lease end
        they know.
        """
        store = WorkerStore(self._settings.dsn, "worker reaper")
        try:
            while True:
                if self._lease is not None and self._lease.doubtful():
                    await asyncio.sleep(_DEADLINE_TICK)  # else we might reap ourselves before our beat
                    continue
                with contextlib.suppress(SlotkeeperError):
                    reaped = await store.reap(self._clock.expected(), starting=not self._reaped_before)
                    self._reaped_before = True
                    self.counts.lease_expirations.update(reaped.lost)
                    if reaped.given_back or reaped.dead:
                        _log.warning(
                            "leases_lost", worker=self._settings.name, given_back=reaped.given_back, dead=reaped.dead
                        )
                        self._look_now()
                lease_end = self._lanes.outlook.lease_end if self._lanes.outlook else None
                seconds = self._clock.seconds_until(lease_end)
                wait = self._settings.poll_seconds
                if seconds is not None and seconds > -self._settings.poll_seconds:
                    wait = min(wait, max(seconds, 0.0) + 0.02)
                await asyncio.sleep(max(wait, 0.1))
        finally:
            await store.close()

    async def _listen(self) -> None:
        """Hints from the database wake an idle worker; without them it polls."""
        while True:
            with contextlib.suppress(SlotkeeperError):
                async for hint in listen(self._settings.dsn):
                    if hint == NEW_LANE:
                        for loop in self._claim_loops:
                            loop.forget_lanes()
                    self._look_now()
            await asyncio.sleep(self._settings.poll_seconds)

    def _look_now(self) -> None:
        if self._claim_loops:
            self._claim_loops[0].look_now()  # one looks; the other follows when there is room for both

    def _wake(self) -> None:
        self._hand.collect()
        for loop in self._claim_loops:
            loop.wake()

    def _wake_from_thread(self) -> None:
        self._call(self._wake)

    def _call(self, callback: Callable[[], None]) -> None:
        """From any thread, on our loop."""
        with contextlib.suppress(RuntimeError):  # the loop has been closed: the process is ending
            self._loop.call_soon_threadsafe(callback)


async def _survive(work: Callable[[], Coroutine[None, None, None]]) -> None:
    """What stands beside the claim loops must not end unseen: without the watch nothing fences, and no drain ends."""
    while True:
        try:
            await work()
        except Exception:  # noqa: BLE001 - said aloud, and begun again
            _log.exception("background_failed")
            await asyncio.sleep(_RETRY_SECONDS)


def exit_process(status: int) -> None:
    """Ends the process without waiting for threads: a handler that does not stop would hold it for ever."""
    if status == 0:  # else a handler that does not stop may hold the lock of a stream
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    os._exit(status)

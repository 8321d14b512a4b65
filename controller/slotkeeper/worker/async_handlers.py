"""Runs async handlers on an event loop in a thread of its own, so that one that blocks it stalls neither claims nor
beats.

A fixed set of long-lived runner tasks takes attempts from one queue: a handler that never suspends costs no task of
its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence

from slotkeeper.database_clock import boot_seconds
from slotkeeper.sdk import Run
from slotkeeper.worker.attempt import DONE, Attempt
from slotkeeper.worker.judge import judge_error

#: A runner that finds one quick handler after another lets the others have a turn after so many.
_TURN = 128


class AsyncHandlers:
    """``concurrency`` handlers at a time; ``report`` is called from this thread with the attempts that have ended.

    Those of one turn of the loop are reported together: telling the supervisor's thread of each would cost more than
    a quick handler, because the two threads would take turns.
    """

    def __init__(self, concurrency: int, report: Callable[[Sequence[Attempt]], None]) -> None:
        self._concurrency = concurrency
        self._report = report
        self._queue: deque[Attempt] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._runners: set[asyncio.Task[None]] = set()
        self._ended: list[Attempt] = []
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="async-handlers", daemon=True)
        self._thread.start()

    def submit(self, attempts: Sequence[Attempt]) -> None:
        """Queues attempts, whose actions have their handlers; from any thread."""
        if attempts:
            self._queue.extend(attempts)
            self._loop.call_soon_threadsafe(self._wake, len(attempts))

    def withdraw(self) -> list[Attempt]:
        """Takes back what has not begun; from any thread."""
        taken = []
        while True:
            try:
                taken.append(self._queue.pop())
            except IndexError:
                return taken

    def stop_attempt(self, attempt: Attempt) -> None:
        """Cancels a handler that runs; from any thread."""
        self._loop.call_soon_threadsafe(self._cancel, attempt)

    def close(self) -> None:
        """Ends the loop; what still runs is abandoned."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._closing = True
        for runner in self._runners:
            runner.cancel()
        if self._runners:
            self._loop.run_until_complete(asyncio.wait(self._runners, timeout=1))
        self._loop.close()

    def _wake(self, count: int) -> None:
        for _ in range(count):
            if self._idle:
                idle = self._idle.popleft()
                if not idle.done():
                    idle.set_result(None)
            elif len(self._runners) < self._concurrency:
                self._runners.add(self._loop.create_task(self._runner()))
            else:
                return

    def _cancel(self, attempt: Attempt) -> None:
        runner: asyncio.Task[None] | None = attempt.handle
        if runner is not None and attempt.outcome is None:
            runner.cancel()

    async def _runner(self) -> None:
        runner = asyncio.current_task()
        assert runner is not None  # noqa: S101 - for the type checker: this is a coroutine of a task
        queue, turn, now = self._queue, 0, boot_seconds()
        while True:
            try:
                attempt = queue.popleft()
            except IndexError:
                idle = self._loop.create_future()
                self._idle.append(idle)
                await idle
                now = boot_seconds()
                continue
            if attempt.begin(now):
                attempt.handle = runner
                try:
                    await attempt.action.handler(Run(attempt))
                    attempt.outcome = DONE
                except BaseException as error:  # SystemExit is an outcome too: it would end the loop of all
                    if self._closing and isinstance(error, asyncio.CancelledError):
                        raise
                    attempt.outcome = judge_error(attempt, error)
                # A handler may have swallowed its cancellation: the next one in this task must not inherit it.
                while runner.cancelling():
                    runner.uncancel()
            # The end of one is the beginning of the next: a look at the clock costs as much as a quick handler.
            attempt.ended = now = boot_seconds()
            if not self._ended:
                self._loop.call_soon(self._report_ended)
            self._ended.append(attempt)
            turn += 1
            if turn >= _TURN:
                await asyncio.sleep(0)
                turn, now = 0, boot_seconds()

    def _report_ended(self) -> None:
        ended, self._ended = self._ended, []
        self._report(ended)

"""Runs sync handlers, each in a thread. A thread cannot be stopped: it is asked to, by ``run.cancelled``."""

from __future__ import annotations

import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from typing import Any

from slotkeeper.database_clock import boot_seconds
from slotkeeper.sdk import NonRetryable, Run, Task
from slotkeeper.worker.attempt import DONE, Attempt
from slotkeeper.worker.judge import judge_error


class ThreadHandlers:
    """Up to ``concurrency`` threads, started when needed; ``report`` is called from them."""

    def __init__(self, concurrency: int, report: Callable[[Sequence[Attempt]], None]) -> None:
        self._concurrency = concurrency
        self._report = report
        self._queue: queue.SimpleQueue[tuple[Attempt, Task] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._unfinished = 0

    def submit(self, attempt: Attempt, task: Task) -> None:
        """Queues one attempt; from the supervisor's thread."""
        with self._lock:
            self._unfinished += 1
            more = self._unfinished > len(self._threads) and len(self._threads) < self._concurrency
        self._queue.put((attempt, task))
        if more:
            thread = threading.Thread(target=self._run, name=f"handler-{len(self._threads) + 1}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def withdraw(self) -> list[Attempt]:
        """Takes back what has not begun."""
        taken: list[Attempt] = []
        while True:
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return taken
            if entry is not None:
                taken.append(entry[0])
                self._ended_one()

    def close(self) -> None:
        """Ends the threads that run nothing; the others end with the process."""
        for _ in self._threads:
            self._queue.put(None)

    def _run(self) -> None:
        while True:
            entry = self._queue.get()
            if entry is None:
                return
            attempt, task = entry
            if attempt.begin(boot_seconds()):
                self._handle(attempt, task)
            attempt.ended = boot_seconds()
            self._ended_one()
            self._report([attempt])

    def _ended_one(self) -> None:
        with self._lock:
            self._unfinished -= 1

    def _handle(self, attempt: Attempt, task: Task) -> None:
        try:
            call(task, attempt.run)
            attempt.outcome = DONE
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler is an outcome too, not the end of its thread
            attempt.outcome = judge_error(attempt, error)


def call(task: Task, run: Run) -> None:
    """Runs a sync handler. Raises what it raises, and NonRetryable when the call has done nothing."""
    result = task.handler(run)
    if isinstance(result, (Coroutine, Generator, AsyncGenerator)):
        raise _not_run(task, result)


def _not_run(
    task: Task, result: Coroutine[Any, Any, Any] | Generator[Any, Any, Any] | AsyncGenerator[Any, Any]
) -> NonRetryable:
    """A coroutine that a decorator hid, or a generator, is no work that was done: the call has run nothing of it."""
    if isinstance(result, (Coroutine, Generator)):
        result.close()
    return NonRetryable(
        f"the handler {task.name!r} returned a {type(result).__name__} and did nothing:"
        " it must be a plain function or an 'async def', under decorators that keep it one"
    )

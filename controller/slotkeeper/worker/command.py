"""Runs commands: argv in the worker's image, never through a shell, each in a process group of its own.

Exit status 0 is success; 75 (EX_TEMPFAIL) an infrastructure error; 65 (EX_DATAERR) and 78 (EX_CONFIG) are not
repeated (sysexits.h); anything else is. To stop one: SIGTERM to its group, SIGKILL after ten seconds. The groups do not
outlive the worker (`guard.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import structlog

from slotkeeper.database_clock import boot_seconds
from slotkeeper.worker.action import rfc3339
from slotkeeper.worker.attempt import DONE, Attempt, Outcome
from slotkeeper.worker.error_text import clean, clean_bytes, signal_name
from slotkeeper.worker.guard import Guard, signal_group

_log = structlog.stdlib.get_logger()

_KILL_AFTER = 10.0
#: Seconds for the last output to arrive after the end, and between two looks whether the end has come.
_OUTPUT_SECONDS, _EXIT_LOOK_SECONDS = 2.0, 0.2
_STDERR_KEPT = 4 * 1024
_LONGEST_LINE = 64 * 1024
_INFRASTRUCTURE, _FATAL = {75}, {65, 78}


class Commands:
    """Up to ``concurrency`` at a time, on the supervisor's own loop, whose thread lives as long as the worker."""

    def __init__(
        self, concurrency: int, report: Callable[[Sequence[Attempt]], None], guard: Guard, *, hidden: frozenset[str]
    ) -> None:
        self._concurrency = concurrency
        self._report = report
        self._guard = guard
        self._hidden = hidden
        self._queue: deque[Attempt] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, attempt: Attempt) -> None:
        """Starts the command of one attempt, as soon as there is room."""
        self._queue.append(attempt)
        self._start()

    def withdraw(self) -> list[Attempt]:
        """Takes back what has not begun."""
        taken = list(self._queue)
        self._queue.clear()
        return taken

    def _start(self) -> None:
        while self._queue and len(self._tasks) < self._concurrency:
            attempt = self._queue.popleft()
            if attempt.begin(boot_seconds()):
                task = asyncio.get_running_loop().create_task(self._run(attempt))
                self._tasks.add(task)
                task.add_done_callback(self._ended)
            else:
                self._report([attempt])

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._start()

    def stop_attempt(self, attempt: Attempt) -> None:
        """SIGTERM to the group now, SIGKILL later if it is still there."""
        process: asyncio.subprocess.Process | None = attempt.handle
        if process is not None and process.returncode is None:
            signal_group(process.pid, signal.SIGTERM)
            asyncio.get_running_loop().call_later(_KILL_AFTER, self._kill, attempt)

    def _kill(self, attempt: Attempt) -> None:
        if attempt.outcome is None and attempt.handle is not None:
            signal_group(attempt.handle.pid, signal.SIGKILL)

    async def _run(self, attempt: Attempt) -> None:
        try:
            attempt.outcome = await self._execute(attempt)
        except Exception as error:  # noqa: BLE001 - a command that cannot be run has failed, and that is recorded
            attempt.outcome = Outcome("failed", type(error).__name__, clean(str(error)))
        attempt.ended = boot_seconds()
        self._report([attempt])

    async def _execute(self, attempt: Attempt) -> Outcome:
        arguments = attempt.action.arguments
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment(attempt),
                process_group=0,
                limit=_LONGEST_LINE,
                preexec_fn=self._guard.new_group(),
            )
        except FileNotFoundError:
            # Another image of the pool may have it: like a task without a handler.
            return Outcome(
                "infrastructure", "NoHandler", f"there is no program {arguments[0]!r} in this worker's image"
            )
        except PermissionError as error:
            return Outcome("failed", "PermissionError", clean(str(error)))
        self._guard.started(process.pid)
        attempt.handle = process
        if attempt.stop_reason:
            self.stop_attempt(attempt)
        tail = bytearray()
        output = asyncio.gather(
            _log_lines(attempt, "stdout", process.stdout, bytearray()),
            _log_lines(attempt, "stderr", process.stderr, tail),
        )
        status = await _exit_status(process)
        # What the command left behind in its group ends with it; what left the group may hold the pipes open for ever.
        self._guard.ended(process.pid)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(output, _OUTPUT_SECONDS)
        if status == 0:
            return DONE
        if attempt.stop_reason:
            return attempt.stopped_outcome()
        message = clean_bytes(bytes(tail))
        reason = f"ExitStatus{status}" if status > 0 else signal_name(-status)
        if status in _INFRASTRUCTURE:
            return Outcome("infrastructure", reason, message)
        return Outcome("fatal" if status in _FATAL else "failed", reason, message)

    def _environment(self, attempt: Attempt) -> Mapping[str, str]:
        """Ours without anything about the database, and with what a run is told."""
        run = attempt.run
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PG", "SLOTKEEPER_")) and value not in self._hidden
        }
        told: dict[str, str | None] = {
            "IDEMPOTENCY_KEY": run.idempotency_key,
            "SLOT": _text(run.slot),
            "SLOT_LOCAL": run.slot_local.isoformat() if run.slot_local else None,
            "PREVIOUS_SLOT": _text(run.previous_slot),
            "NEXT_SLOT": _text(run.next_slot),
            "SCHEDULE": run.schedule,
            "ATTEMPT": str(run.attempt),
            "CHARGED": str(run.charged),
            "MAX_ATTEMPTS": str(run.max_attempts),
            "TRIGGER": run.trigger,
            "LATE_SECONDS": f"{run.late_seconds:.3f}",
            "TOKEN": run.token,
            "PAYLOAD": run.payload_json,
        }
        return kept | {f"SLOTKEEPER_{name}": value for name, value in told.items() if value}


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else rfc3339(instant)


async def _exit_status(process: asyncio.subprocess.Process) -> int:
    """When the process itself has ended: ``wait`` of some versions of Python also waits for whoever holds its pipes."""
    while process.returncode is None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _EXIT_LOOK_SECONDS)
    return process.returncode


async def _log_lines(attempt: Attempt, stream: str, reader: asyncio.StreamReader | None, tail: bytearray) -> None:
    """Logs a stream line by line; keeps its last bytes in ``tail``."""
    if reader is None:
        return
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as rest:
            line = rest.partial
        except asyncio.LimitOverrunError as full:
            line = await reader.readexactly(full.consumed)
        if not line:
            return
        tail += line
        del tail[:-_STDERR_KEPT]
        run = attempt.run
        _log.info(
            "output", schedule=run.schedule, slot=run.slot and rfc3339(run.slot), attempt=run.attempt, stream=stream,
            line=clean_bytes(line.rstrip(b"\n"), _LONGEST_LINE),
        )  # fmt: skip

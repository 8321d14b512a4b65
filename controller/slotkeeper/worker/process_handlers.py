"""Runs handlers in processes of their own (``--isolation process``): what one of them does to its process costs one
attempt, and not the worker.

Processes are started when needed and used again. They end with the worker: the kernel kills them, and `guard.py`
whatever they have started. Runs on the supervisor's own loop; the other side is `handler_child.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import pickle
import signal
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from slotkeeper.database_clock import boot_seconds
from slotkeeper.worker.attempt import DONE, DRAIN, Attempt, Outcome
from slotkeeper.worker.error_text import clean, signal_name
from slotkeeper.worker.guard import Guard, signal_group
from slotkeeper.worker.handler_child import Begin, HeldAttempt, Stop
from slotkeeper.worker.judge import judge_stopped
from slotkeeper.worker.settings import WorkerSettings

_log = structlog.stdlib.get_logger()

#: More processes that import the application at once only delay each other, and the worker (containers do not tell how
#: much of a processor they have).
_STARTING_AT_ONCE = min(4, os.cpu_count() or 1)
#: From being asked to SIGTERM, and from there to SIGKILL, when the worker drains (seconds).
_DRAIN_PATIENCE = 2.0
#: The same as a part of the time between the self-fence and the end of the lease.
_LOST_PATIENCE = 0.4
#: Processes that run nothing any more have this time (seconds) to end by themselves.
_END_SECONDS = 2.0
#: The last words of a process that has ended arrive within this time (seconds).
_LAST_WORDS_SECONDS = 1.0
_LONGEST_LINE = 256 * 1024
#: What `Snooze` allows (seconds).
_LONGEST_SNOOZE = 31_622_400
_KINDS = frozenset({"done", "failed", "fatal", "infrastructure", "interrupted", "snoozed"})


class ProcessHandlers:
    """Up to ``concurrency`` processes, one attempt at a time in each. ``patience``: seconds from asking an attempt to
    stop to SIGTERM, and from there to SIGKILL, where nothing hurries.
    """

    def __init__(
        self, settings: WorkerSettings, report: Callable[[Sequence[Attempt]], None], guard: Guard, patience: float
    ) -> None:
        self._settings, self._report, self._guard, self._patience = settings, report, guard, patience
        self._queue: deque[Attempt] = deque()
        self._children: set[_Child] = set()
        self._idle: list[_Child] = []
        self._lives: set[asyncio.Task[None]] = set()
        self._closing = False

    def submit(self, attempt: Attempt) -> None:
        """Queues one attempt."""
        self._queue.append(attempt)
        self._hand_out()

    def withdraw(self) -> list[Attempt]:
        """Takes back what has not begun."""
        taken = list(self._queue)
        self._queue.clear()
        return taken

    def stop_attempt(self, attempt: Attempt) -> None:
        """Asks a handler to stop; one that does not is ended. Again, when the lease is lost too: sooner."""
        child = attempt.handle
        if not isinstance(child, _Child) or child.attempt is not attempt:
            return  # it has not begun, has ended, or is a command
        child.send(Stop(child.number, attempt.lost))
        patience = self._patience
        if attempt.lost:  # another worker may start it when the lease ends: by then it is not running any more
            patience = _LOST_PATIENCE * (self._settings.lease_seconds - self._settings.fence_seconds)
        elif attempt.stop_reason == DRAIN:
            patience = _DRAIN_PATIENCE
        loop = asyncio.get_running_loop()
        loop.call_later(patience, child.end_attempt, attempt, signal.SIGTERM)
        loop.call_later(2 * patience, child.end_attempt, attempt, signal.SIGKILL)

    async def close(self) -> None:
        """Ends all processes: those that run nothing leave by themselves."""
        self._closing = True
        for child in self._children:
            child.leave()
        if self._lives:
            await asyncio.wait(self._lives, timeout=_END_SECONDS)
        for child in self._children:
            child.kill()
        if self._lives:
            await asyncio.wait(self._lives, timeout=_END_SECONDS)

    # --- who runs what ----------------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        """Waiting attempts to idle processes; more processes while more wait than are being started."""
        while self._queue and self._idle:
            child = self._idle.pop()  # the one that was busy last
            if child.condemned or child.closed.is_set():
                continue  # it has just died
            attempt = self._queue.popleft()
            if attempt.begin(boot_seconds()):
                child.begin(attempt)
            else:
                self._idle.append(child)
                self._report([attempt])
        starting = sum(child.starting for child in self._children)
        wanted = min(len(self._queue), _STARTING_AT_ONCE) - starting
        for _ in range(min(wanted, self._settings.concurrency - len(self._children))):
            self._start()

    def _start(self) -> None:
        child = _Child(self._on_ready, self._on_outcome)
        self._children.add(child)
        life = asyncio.get_running_loop().create_task(self._live(child))
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)

    def _on_ready(self, child: _Child) -> None:
        self._idle.append(child)
        self._hand_out()

    def _on_outcome(self, child: _Child, attempt: Attempt, outcome: Outcome) -> None:
        self._ended(attempt, judge_stopped(attempt, outcome))
        if child.condemned:  # a signal for this attempt is on its way: it must not meet the next one
            child.leave()
            asyncio.get_running_loop().call_later(_END_SECONDS, child.kill)
            self._hand_out()
        else:
            self._on_ready(child)

    def _ended(self, attempt: Attempt, outcome: Outcome) -> None:
        if attempt.outcome is None:  # else it was given up
            attempt.outcome = outcome
        attempt.ended = boot_seconds()
        attempt.handle = None
        self._report([attempt])

    async def _live(self, child: _Child) -> None:
        """From the start of a process to its end, and to the outcome of what it ran then."""
        try:
            death = await self._start_and_wait(child)
        except Exception as error:  # noqa: BLE001 - whatever stood in the way, its attempt must come back
            death = f"{type(error).__name__}: {error}"
        self._children.discard(child)
        if child in self._idle:
            self._idle.remove(child)
        if child.starting and not self._closing:
            _log.error("handler_process_failed", worker=self._settings.name, error=death)
            if self._queue:  # it would have been the process of this one
                attempt = self._queue.popleft()
                self._ended(
                    attempt, Outcome("infrastructure", "NoHandler", f"a handler process did not start: {death}")
                )
        elif child.attempt is not None:
            attempt, child.attempt = child.attempt, None
            self._ended(attempt, judge_stopped(attempt, Outcome("failed", "HandlerDied", death)))
        if not self._closing:
            self._hand_out()

    async def _start_and_wait(self, child: _Child) -> str:
        """How the process ended, in words."""
        ours, theirs = socket.socketpair()
        with theirs:
            program = [*self._settings.handler_process, str(theirs.fileno())]
            try:
                process = await asyncio.create_subprocess_exec(
                    *program,
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                    preexec_fn=self._guard.new_group(),
                )
            except BaseException:
                ours.close()
                raise
        self._guard.started(process.pid)
        child.group = process.pid
        ours.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: child, sock=ours)
        if self._closing:
            child.leave()
        status = await process.wait()
        child.condemned, child.group = True, 0  # the number may soon be another's
        self._guard.ended(process.pid)  # before its last words: what it has forked may hold the socket open
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.closed.wait(), _LAST_WORDS_SECONDS)
        child.leave()
        return f"exit status {status}" if status >= 0 else f"killed by signal {-status} ({signal_name(-status)})"


_numbers = itertools.count(1)


class _Child(asyncio.Protocol):
    """One process as the worker sees it: the connection to it, and what it runs. ``condemned``: it was signalled or has
    ended, and gets nothing more to run. ``group``: 0 before its start and after its end.
    """

    def __init__(
        self, on_ready: Callable[[_Child], None], on_outcome: Callable[[_Child, Attempt, Outcome], None]
    ) -> None:
        self._on_ready, self._on_outcome = on_ready, on_outcome
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self.starting = True
        self.condemned = False
        self.group = 0
        self.number = 0
        self.attempt: Attempt | None = None
        self.closed = asyncio.Event()

    def begin(self, attempt: Attempt) -> None:
        """Gives it an attempt to run."""
        self.number, self.attempt = next(_numbers), attempt
        attempt.handle = self
        held = HeldAttempt(attempt.row, attempt.action, attempt.token, attempt.claimed_at)
        self.send(Begin(self.number, held))

    def send(self, message: Begin | Stop) -> None:
        """Queues a message; the loop never waits for a process."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(pickle.dumps(message))

    def end_attempt(self, attempt: Attempt, with_signal: signal.Signals) -> None:
        """Signals the process if it still runs this attempt: SIGTERM for the handler, SIGKILL for its group."""
        if self.attempt is not attempt or not self.group:
            return
        self.condemned = True
        if with_signal == signal.SIGKILL:
            self.kill()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.group, with_signal)

    def leave(self) -> None:
        """Closes the connection: an idle process ends in good order, another at once."""
        if self._transport is not None:
            self._transport.close()

    def kill(self) -> None:
        """SIGKILL to the process and what it has started in its group."""
        if self.group:
            signal_group(self.group, signal.SIGKILL)

    # --- what comes from it: from here on nothing is trusted --------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        *lines, self._received = (self._received + data).split(b"\n")
        try:
            for line in lines:
                self._hear(json.loads(line))
            if len(self._received) > _LONGEST_LINE:
                raise ValueError("a line without an end")
        except (ValueError, KeyError, TypeError) as error:
            _log.error("handler_process_unreadable", process=self.group, error=repr(error))
            self.kill()

    def _hear(self, message: dict[str, object]) -> None:
        if self.starting:
            self.starting = message["ready"] != self.group
            if not self.starting:
                self._on_ready(self)
            return
        attempt = self.attempt
        if attempt is None or message["number"] != self.number:
            raise ValueError("an outcome of nothing that it runs")
        outcome = Outcome(**message["outcome"])  # type: ignore[arg-type]
        if outcome.kind not in _KINDS:
            raise ValueError(f"no outcome is {outcome.kind!r}")
        if not (isinstance(outcome.reason, str) and isinstance(outcome.message, str)):
            raise ValueError("a reason or a message that is no text")
        if not (isinstance(outcome.seconds, (int, float)) and 0 <= outcome.seconds <= _LONGEST_SNOOZE):
            raise ValueError(f"{outcome.seconds!r} is no time to wait")
        outcome = replace(outcome, reason=clean(outcome.reason), message=clean(outcome.message))
        attempt.lost = attempt.lost or message["lost"] is True
        self.attempt = None
        self._on_outcome(self, attempt, DONE if outcome == DONE else outcome)

    def connection_lost(self, _: Exception | None) -> None:
        self.closed.set()
        if self.attempt is not None:
            self.kill()  # without its connection it can tell no outcome

"""The child's side of ``--isolation process``: runs one handler after another in a process of its own.

The worker sends what to run over a socket, pickled; the child answers in JSON lines, which the worker can read without
trust: a handler may have damaged the memory that they come from. Knows no database and no lease. Its exit is nobody's
fault but the handler's, and costs one attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import copyreg
import json
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

from slotkeeper.sdk import Run, Task
from slotkeeper.store.versions import OwnerVersion, StoredVersion
from slotkeeper.store.worker import ClaimedRow
from slotkeeper.worker.action import Action, AdHocAction
from slotkeeper.worker.attempt import DONE, Outcome
from slotkeeper.worker.judge import outcome_of_error
from slotkeeper.worker.thread_handlers import call

#: Versions of schedules that a child remembers.
_KEPT = 1_000
#: What a shell says of a process that SIGTERM has ended.
_SIGTERM_STATUS = 128 + signal.SIGTERM


@dataclass(slots=True, eq=False)
class HeldAttempt:
    """What the run of a handler is told (``sdk.RunAttempt``), without what only the worker needs."""

    row: ClaimedRow
    action: Action
    token: uuid.UUID
    claimed_at: datetime
    cancelled: bool = False
    lost: bool = False


class Begin(NamedTuple):
    """To the child: run this. ``number`` comes back with the outcome."""

    number: int
    attempt: HeldAttempt


class Stop(NamedTuple):
    """To the child: the attempt should stop; ``lost``: its lease is lost."""

    number: int
    lost: bool


class HandlerChild:
    """Serves one connection until the worker closes it. Handlers run in the main thread: async ones on one event loop
    that lives as long as the process, so that what they keep between runs stays usable.
    """

    def __init__(self, connection: socket.socket, tasks: Mapping[str, Task]) -> None:
        self._connection = connection
        self._tasks = tasks
        self._begins: queue.SimpleQueue[Begin | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._number = 0
        self._attempt: HeldAttempt | None = None
        self._handling: asyncio.Task[Any] | None = None
        self._ending = False

    def serve(self) -> None:
        """Until the worker closes the connection, or SIGTERM has ended a handler."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        threading.Thread(target=self._read, name="from-worker", daemon=True).start()
        self._send({"ready": os.getpid()})
        with asyncio.Runner() as runner:
            while True:
                begin = self._begins.get()
                if begin is None:
                    return
                outcome, lost = self._handle(runner, begin)
                if self._ending:  # what is left of it ends with the process, and so does the attempt
                    raise SystemExit(_SIGTERM_STATUS)
                for stream in (sys.stdout, sys.stderr):
                    with contextlib.suppress(OSError, ValueError, AttributeError):
                        stream.flush()
                self._send({"number": begin.number, "lost": lost, "outcome": asdict(outcome)})

    # --- the handler: in the main thread ----------------------------------------------------------------------------

    def _handle(self, runner: asyncio.Runner, begin: Begin) -> tuple[Outcome, bool]:
        """What became of it, and whether another attempt owns the run."""
        attempt, name = begin.attempt, begin.attempt.action.task
        task = self._tasks.get(name)
        try:
            if task is None:
                outcome = Outcome("infrastructure", "NoHandler", f"no handler is named {name!r} in a handler process")
            elif task.is_async:
                runner.run(self._handle_async(task, attempt))
                outcome = DONE
            else:
                call(task, Run(attempt))
                outcome = DONE
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler is an outcome too
            outcome = outcome_of_error(error)
        with self._lock:
            self._attempt = None
        return outcome, attempt.lost

    async def _handle_async(self, task: Task, attempt: HeldAttempt) -> None:
        handling = asyncio.current_task()
        with self._lock:
            self._handling = handling
            if attempt.cancelled and handling is not None:
                handling.cancel()
        try:
            await task.handler(Run(attempt))
        finally:
            with self._lock:
                self._handling = None

    def _on_sigterm(self, *_: object) -> None:
        """Breaks into Python code, so that its ``finally`` blocks run; what that has broken ends with the process."""
        self._ending = True
        raise SystemExit(_SIGTERM_STATUS)

    # --- the connection: in a thread of its own ---------------------------------------------------------------------

    def _read(self) -> None:
        stream = self._connection.makefile("rb")
        with contextlib.suppress(EOFError, OSError):
            while True:
                message: Begin | Stop = pickle.load(stream)  # noqa: S301 - from the worker that started us
                if isinstance(message, Begin):
                    self._begin(message)
                else:
                    self._stop(message)
        with self._lock:
            if self._attempt is not None:
                os._exit(1)  # the worker has gone, and the attempt is another's
        self._begins.put(None)

    def _begin(self, begin: Begin) -> None:
        with self._lock:
            self._number, self._attempt = begin.number, begin.attempt
        self._begins.put(begin)

    def _stop(self, stop: Stop) -> None:
        with self._lock:
            attempt = self._attempt
            if attempt is None or self._number != stop.number:
                return  # it has ended while this was under way
            first, attempt.cancelled = not attempt.cancelled, True
            attempt.lost = attempt.lost or stop.lost
            if first and self._handling is not None:
                self._handling.get_loop().call_soon_threadsafe(self._handling.cancel)

    def _send(self, message: Mapping[str, object]) -> None:
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:  # the worker has gone, or a handler has closed what was not its own: nobody can be told
            os._exit(1)


# --- actions travel as what is stored, and are read again on the other side -----------------------------------------

_known: dict[OwnerVersion, Action] = {}


def _action(stored: StoredVersion) -> Action:
    """The action of a version, read once in this process; the timetable waits until a handler asks."""
    key = stored.owner, stored.version
    if key not in _known:
        if len(_known) >= _KEPT:
            _known.clear()
        _known[key] = Action(stored)
    return _known[key]


copyreg.pickle(Action, lambda action: (_action, (action._stored,)))
copyreg.pickle(AdHocAction, lambda action: (AdHocAction, (action.task,)))

"""Reads from the database for whoever asks often, and never lets anybody wait long.

One thread and one connection of its own; what was read serves everybody for some seconds, longer when it was dear. An
answer that does not come in time is left to come later. Knows nothing of what is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import structlog

from slotkeeper.errors import SlotkeeperError
from slotkeeper.store.connection import Session

_log = structlog.stdlib.get_logger()
_T = TypeVar("_T")

#: Nobody waits longer for an answer (seconds): Prometheus gives a scrape ten seconds, and a probe may have one.
PATIENCE = 0.7
#: A database that has answered before is taken to be at work on a question until that is so old (seconds).
LATE = 5.0
#: Reading takes at most this share of the time, but what was read is never kept for longer (seconds).
_SHARE, _KEPT_AT_MOST = 1 / 20, 25.0
#: A question that takes longer is ended (seconds): nobody waits for its answer, and the next would add to it.
STATEMENT_SECONDS = 15.0
_CLOSE_SECONDS = 1.0
#: What was read is told for so long while the database is away (seconds): older figures would mislead.
STALE = 60.0


@dataclass(frozen=True, slots=True)
class Known(Generic[_T]):
    """What was read, when it was asked for (Unix seconds of the pod), for how many seconds it was to be kept, and
    whether the newest question was answered, or is so young that the answer is still to be expected.
    """

    value: _T | None
    at: float | None
    kept: float
    answered: bool

    @property
    def recent(self) -> _T | None:
        """The value, unless it is too old to be told."""
        return self.value if self.at is not None and time.time() - self.at < STALE + self.kept else None


class DatabaseReader:
    """The thread and the connection; ``close`` ends both."""

    def __init__(self, dsn: str, name: str) -> None:
        self._session = Session(dsn, name, statement_seconds=STATEMENT_SECONDS)
        self._questions: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon, unlike those of an executor: a question that the database does not answer must not hold the process.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def reading(self, read: Callable[[Session], _T], *, seconds: float) -> Reading[_T]:
        """What ``read`` returns, kept for ``seconds``, or longer when it takes long to read; 0: not kept at all."""
        return Reading(self, read, seconds)

    async def ask(self, read: Callable[[Session], _T]) -> _T:
        """What ``read`` returns or raises, after the questions that were asked before."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()

        def answer() -> None:
            try:
                value = read(self._session)
            except Exception as error:  # noqa: BLE001 - raised again where the question was asked
                _tell(loop, future, future.set_exception, error)
            else:
                _tell(loop, future, future.set_result, value)

        self._questions.put(answer)
        return await future

    def close(self) -> None:
        """Ends after the question that is under way, without waiting long for that."""
        self._questions.put(None)
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while (question := self._questions.get()) is not None:
            question()
        self._session.close()


def _tell(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[_T], tell: Callable[[Any], None], what: object
) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits any more
        loop.call_soon_threadsafe(lambda: None if future.done() else tell(what))


class Reading(Generic[_T]):
    """One question and its last answer; for one event loop."""

    def __init__(self, reader: DatabaseReader, read: Callable[[Session], _T], seconds: float) -> None:
        self._reader = reader
        self._read = read
        self._seconds = seconds
        self._value: _T | None = None
        self._at: float | None = None
        self._kept = seconds
        self._fresh_until = float("-inf")
        self._failures = 0
        self._under_way: asyncio.Future[None] | None = None
        self._asked = float("-inf")

    async def known(self, patience: float = PATIENCE) -> Known[_T]:
        """The answer, asked for anew if it is not fresh; the last one when the new one does not come in time."""
        if time.monotonic() < self._fresh_until and self._under_way is None:
            return self._known(answered=self._failures == 0)
        if self._under_way is None:
            self._asked = time.monotonic()
            self._under_way = asyncio.ensure_future(self._refresh())
        done, _ = await asyncio.wait([self._under_way], timeout=patience)
        expected = self._at is not None and time.monotonic() - self._asked < LATE
        return self._known(answered=self._failures == 0 and (bool(done) or expected))

    def _known(self, *, answered: bool) -> Known[_T]:
        return Known(self._value, self._at, self._kept, answered)

    async def _refresh(self) -> None:
        asked, began = time.time(), time.monotonic()
        try:
            self._value = await self._reader.ask(self._read)
            self._at = asked
            self._failures = 0
            if self._seconds:
                self._kept = max(self._seconds, min((time.monotonic() - began) / _SHARE, _KEPT_AT_MOST))
            self._fresh_until = began + self._kept
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the database, what is known is still told
            self._failures += 1
            self._fresh_until = time.monotonic() + min(self._seconds, 1.0)
            if self._failures & (self._failures - 1) == 0:
                _log.warning(
                    "metrics_unread", failures=self._failures, error=str(error),
                    exc_info=not isinstance(error, SlotkeeperError),
                )  # fmt: skip
        finally:
            self._under_way = None

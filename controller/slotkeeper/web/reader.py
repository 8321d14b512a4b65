"""The dashboard's way to the database: one connection, one thread, bounded in time and in who waits.

So a slow or frozen database costs the dashboard its answers and nothing else: neither its event loop nor other rooms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog

from slotkeeper.errors import DatabaseBusy, DatabaseError, DatabaseUnavailable, SchemaMissing
from slotkeeper.store.connection import Session
from slotkeeper.store.web import Reading, reading

_log = structlog.stdlib.get_logger()
_T = TypeVar("_T")

#: A statement is given up after so long, and an answer of the database is not waited for longer.
STATEMENT_MILLISECONDS, ANSWER_SECONDS = 5_000, 12.0
_MOST_WAITING = 16


class Reader:
    """Runs functions of a reading, one after another."""

    def __init__(self, dsn: str) -> None:
        self._session = Session(dsn, "dashboard")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dashboard-reader")
        self._waiting = 0
        self._away = False

    async def read(self, work: Callable[[Reading], _T]) -> _T:
        """What ``work`` returns; it runs in a transaction that only reads.

        Raises DatabaseUnavailable, DatabaseBusy (too slow, or too many wait), or another DatabaseError.
        """
        if self._waiting >= _MOST_WAITING:
            raise DatabaseBusy(f"{self._waiting} requests wait for the database already")
        self._waiting += 1
        running = asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, work)
        running.add_done_callback(self._ended)
        try:
            return await asyncio.wait_for(asyncio.shield(running), ANSWER_SECONDS)
        except TimeoutError as error:
            raise DatabaseBusy(f"no answer within {ANSWER_SECONDS:.0f} s") from error

    def close(self) -> None:
        """Waits for nobody: a connection that does not answer ends with the process."""
        self._thread.submit(self._session.close)
        self._thread.shutdown(wait=False)

    def _ended(self, running: asyncio.Future[_T]) -> None:
        self._waiting -= 1
        if not running.cancelled():
            running.exception()  # looked at, so that one that nobody waits for any more is not reported as lost

    def _guarded(self, work: Callable[[Reading], _T]) -> _T:
        try:
            try:
                result = self._work(work)
            except DatabaseUnavailable:
                result = self._work(work)  # a connection that broke while it was idle is opened anew
        except (DatabaseError, SchemaMissing) as error:
            if not self._away:
                _log.warning("dashboard_without_database", error=str(error))
            self._away = True
            raise
        self._away = False
        return result

    def _work(self, work: Callable[[Reading], _T]) -> _T:
        with reading(self._session, STATEMENT_MILLISECONDS) as opened:
            return work(opened)

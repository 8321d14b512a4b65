"""Which replica syncs and writes status: the one whose connection holds the cluster's advisory lock.

Thrift, never correctness: two leaders would only do the same work twice. The lock lives as long as the connection,
so the connection is this module's own, straight to the server.
"""

from __future__ import annotations

import threading
import time

import structlog

from slotkeeper.errors import InvalidField, SlotkeeperError
from slotkeeper.operator.errors import LeadershipLost
from slotkeeper.store import schedules
from slotkeeper.store.connection import Session

_log = structlog.stdlib.get_logger()

#: For so long after an answer the connection is taken to live (seconds).
FRESH = 0.5


class Leadership:
    """``term`` counts how often this process was promoted: a new one begins with a full resync. Safe between
    threads.
    """

    def __init__(self, direct_dsn: str, cluster: str) -> None:
        self._session = Session(direct_dsn, "leader")
        self._cluster = cluster
        self._lock = threading.Lock()
        self._leads = False
        self._confirmed_at = 0.0
        self._checked = False
        self.term = 0

    def refuse_pooler(self) -> None:
        """For the start: raises InvalidField when a pooler stands in between.

        A server that cannot be asked now is asked by ``confirm``.
        """
        with self._lock:
            try:
                self._refuse_pooler()
            except InvalidField:
                self._session.close()
                raise
            except SlotkeeperError as error:
                _log.info("pooler_asked_later", error=str(error))

    def confirm(self) -> bool:
        """Whether this process leads, asked of the server unless it answered just now; call it before every write.

        Becomes the leader when nobody is. A lost connection ends leadership; so does any doubt about it. Raises
        InvalidField when a pooler stands in between, DatabaseUnavailable and the like when the server cannot be
        asked.
        """
        with self._lock:
            if self._leads and time.monotonic() - self._confirmed_at < FRESH:
                return True
            try:
                self._refuse_pooler()
                leads = schedules.leadership(self._session, self._cluster, leads=self._leads)
            except SlotkeeperError:
                self._resign()
                raise
            self._confirmed_at = time.monotonic()
            if leads and not self._leads:
                self.term += 1
                _log.info("leader", cluster=self._cluster, term=self.term)
            self._leads = leads
            return leads

    def require(self) -> None:
        """Raises LeadershipLost unless this process leads."""
        if not self.confirm():
            raise LeadershipLost("another replica leads")

    @property
    def leads(self) -> bool:
        """What was last known, without asking."""
        return self._leads

    def close(self) -> None:
        """Gives leadership up."""
        with self._lock:
            self._leads = False
            self._session.close()

    def _resign(self) -> None:
        if self._leads:
            _log.warning("leadership_lost", cluster=self._cluster)
        self._leads = False
        self._session.close()

    def _refuse_pooler(self) -> None:
        if not self._checked:
            if schedules.is_pooled(self._session):
                raise InvalidField(
                    "--direct-dsn",
                    "leads through a connection pooler, which would give the leader's lock to anybody",
                    instead="name the Postgres server itself",
                )
            self._checked = True

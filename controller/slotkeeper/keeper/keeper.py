"""The keeper's two loops: one that reaps, so that nothing delays it, and one for all the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from slotkeeper.actor import Actor
from slotkeeper.database_clock import DatabaseClock, boot_seconds
from slotkeeper.errors import DatabaseBusy
from slotkeeper.keeper.success_due import refresh_success_due
from slotkeeper.store.connection import Session
from slotkeeper.store.keeper import LeaseExpirations, drop_history, ensure_partitions, fold, reap, retain, sweep

_log = structlog.stdlib.get_logger()

#: Seconds between two looks: late slots are on record within one, outcomes are folded about once in one.
REAP_SECONDS = 1.0
FOLD_SECONDS = 1.0
#: Every so many folds one looks at everything, for deltas that were committed late.
_UNBOUNDED_FOLD = 30
#: Every so many folds success_due is looked at: a few milliseconds for 10,000 schedules.
_REFRESH_EVERY = 5
_PARTITION_DAYS = 7
_HOUR, _MINUTE = 3600.0, 60.0
#: Rows of one transaction, by chore (a fold of 50,000 deltas took 0.08 s when measured).
_CHUNKS = {"fold": 20_000, "retain": 5_000}
#: Where a statement_timeout cancels a chunk, the next one is a quarter of it, down to this many rows. It is doubled
#: again, up to what it was at first, after one that took less than a third of the time that the cancelled one had.
_LEAST_CHUNK = 50
_QUERY_CANCELED = "57014"


class Keeper:
    """Reaper, fold, sweeps, partitions and retention of one process.

    ``house_pause``: seconds without partitions and retention after the database cancelled them, so that what needs a
    turn each second has it.
    """

    def __init__(self, dsn: str, *, house_pause: float = _MINUTE) -> None:
        self._reap_session = Session(dsn, "reaper")
        self._session = Session(dsn, "keeper")
        self._clock = DatabaseClock()
        self._reaped_before = False
        self._folded: int | None = None
        self._folds = 0
        self._due_after: int | None = None
        self._house_pause = house_pause
        self._keep_house_at = boot_seconds()
        self._history_dropped = False
        self._keys_after: int | None = None
        self._rows = dict(_CHUNKS)
        self._cancelled_after: dict[str, float] = {}
        #: When retention last found nothing more to do, in whichever process, by the database's clock (seconds of the
        #: epoch); for metrics.
        self.retained_at: float | None = None
        #: For metrics.
        self.lease_expirations = LeaseExpirations()
        self.actors = (
            Actor("reaper", self.reap, close=self._reap_session.close),
            Actor("keeper", self.keep, close=self._session.close),
        )

    def reap(self) -> float:
        """Gives back what dead workers held; returns the seconds until the next look."""
        sent = boot_seconds()
        reaped = reap(self._reap_session, self._clock.expected(), starting=not self._reaped_before)
        self._reaped_before = True
        self.lease_expirations.update(reaped.lost)
        self._clock.tell(reaped.moment, sent)
        if reaped.given_back or reaped.dead:
            _log.warning("leases_lost", given_back=reaped.given_back, dead=reaped.dead)
        if reaped.skipped:
            _log.info("slots_skipped", slots=reaped.skipped, reason="not started in time")
        return 0.0 if reaped.skipped >= 1000 else REAP_SECONDS  # 1000: skip_late takes no more at a time

    def keep(self) -> float:
        """One fold, one sweep if it is time, success_due where it moved; once an hour partitions and retention."""
        more = False
        problem: DatabaseBusy | None = None
        for chore in (self._fold, self._sweep, self._refresh, self._keep_house):
            try:
                more |= chore()
            except DatabaseBusy as error:  # cancelled, or a lock that it cannot get: no reason to leave out the others
                problem = problem or error
        if problem is not None:
            raise problem
        return 0.0 if more else FOLD_SECONDS

    def _fold(self) -> bool:
        after = None if self._folds % _UNBOUNDED_FOLD == 0 else self._folded
        limit = self._rows["fold"]
        with self._smaller_when_cancelled("fold"):
            folded, highest = fold(self._session, after, limit)
        if highest is not None and (self._folded is None or highest > self._folded):
            self._folded = highest
        if folded >= limit:
            return True
        self._folds += 1
        return False

    def _sweep(self) -> bool:
        swept = sweep(self._session)
        if swept is not None and swept.orphans:
            _log.warning("orphans_given_back", runs=swept.orphans)
        return False

    def _refresh(self) -> bool:
        if self._due_after is None and self._folds % _REFRESH_EVERY != 0:
            return False
        self._due_after = refresh_success_due(self._session, self._due_after)
        return self._due_after is not None

    def _keep_house(self) -> bool:
        """Last in a step, so that a lock that it cannot get delays nothing else."""
        if boot_seconds() < self._keep_house_at:
            return False
        try:
            self._keep_house_once()
        except DatabaseBusy:
            self._keep_house_at = boot_seconds() + self._house_pause
            raise
        return False  # at leisure: one chunk a second

    def _keep_house_once(self) -> None:
        ensure_partitions(self._session, _PARTITION_DAYS)
        if not self._history_dropped:
            self._history_dropped = True  # once a round, even if it is cancelled: no reason to leave out the rows
            self._history_dropped = drop_history(self._session) is not None
        with self._smaller_when_cancelled("retain"):
            retained = retain(self._session, self._rows["retain"], self._keys_after)
        self._keys_after = retained.keys_after
        if retained.more is not False:
            return
        self._history_dropped = False
        if retained.retained_at is not None and retained.age is not None:
            self.retained_at = retained.retained_at.timestamp()
            self._keep_house_at = boot_seconds() + min(max(_HOUR - retained.age, _MINUTE), _HOUR)

    @contextmanager
    def _smaller_when_cancelled(self, chore: str) -> Iterator[None]:
        """A statement_timeout that is too short for a chunk must not cancel the same chunk for ever."""
        began = boot_seconds()
        try:
            yield
        except DatabaseBusy as error:
            if error.sqlstate == _QUERY_CANCELED:
                self._cancelled_after[chore] = boot_seconds() - began
                self._rows[chore] = max(self._rows[chore] // 4, _LEAST_CHUNK)
                _log.warning("chunk_cancelled", chore=chore, next_rows=self._rows[chore], error=str(error))
            raise
        if boot_seconds() - began < self._cancelled_after.get(chore, 0) / 3:
            self._rows[chore] = min(self._rows[chore] * 2, _CHUNKS[chore])

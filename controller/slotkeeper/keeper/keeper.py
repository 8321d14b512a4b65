"""The keeper's two loops: one that reaps, so that nothing delays it, and one for all the rest."""

from __future__ import annotations

import structlog

from slotkeeper.actor import Actor
from slotkeeper.database_clock import DatabaseClock, boot_seconds
from slotkeeper.keeper.success_due import refresh_success_due
from slotkeeper.store.connection import Session
from slotkeeper.store.keeper import ensure_partitions, fold, reap, retain, sweep

_log = structlog.stdlib.get_logger()

#: Seconds between two looks: late slots are on record within one, outcomes are folded about once in one.
REAP_SECONDS = 1.0
FOLD_SECONDS = 1.0
#: Deltas folded in one transaction (50,000 took 0.08 s when measured).
FOLD_CHUNK = 20_000
#: Every so many folds one looks at everything, for deltas that were committed late.
_UNBOUNDED_FOLD = 30
#: Every so many folds success_due is looked at: a few milliseconds for 10,000 schedules.
_REFRESH_EVERY = 5
_PARTITION_DAYS = 7
_HOUR = 3600.0
_RETAIN_CHUNK = 5_000


class Keeper:
    """Reaper, fold, sweeps, partitions and retention of one process."""

    def __init__(self, dsn: str) -> None:
        self._reap_session = Session(dsn, "reaper")
        self._session = Session(dsn, "keeper")
        self._clock = DatabaseClock()
        self._reaped_before = False
        self._folded: int | None = None
        self._folds = 0
        self._house_kept_at = boot_seconds() - _HOUR
        #: Runs of workers whose lease had ended, by what became of them; for metrics.
        self.lease_expirations = {"ready": 0, "dead": 0}
        self.actors = (
            Actor("reaper", self.reap, close=self._reap_session.close),
            Actor("keeper", self.keep, close=self._session.close),
        )

    def reap(self) -> float:
        """Gives back what dead workers held; returns the seconds until the next look."""
        sent = boot_seconds()
        reaped = reap(self._reap_session, self._clock.expected(), starting=not self._reaped_before)
        self._reaped_before = True
        self.lease_expirations["ready"] += reaped.given_back
        self.lease_expirations["dead"] += reaped.dead
        self._clock.tell(reaped.moment, sent)
        if reaped.given_back or reaped.dead:
            _log.warning("leases_lost", given_back=reaped.given_back, dead=reaped.dead)
        if reaped.skipped:
            _log.info("slots_skipped", slots=reaped.skipped, reason="not started in time")
        return 0.0 if reaped.skipped >= 1000 else REAP_SECONDS  # 1000: skip_late takes no more at a time

    def keep(self) -> float:
        """One fold, one sweep if it is time, success_due where it moved; once an hour partitions and retention."""
        folded = self._fold()
        swept = sweep(self._session)
        if swept is not None and swept.orphans:
            _log.warning("orphans_given_back", runs=swept.orphans)
        more = self._folds % _REFRESH_EVERY == 0 and refresh_success_due(self._session)
        self._keep_house()
        return 0.0 if more or folded >= FOLD_CHUNK else FOLD_SECONDS

    def _fold(self) -> int:
        after = None if self._folds % _UNBOUNDED_FOLD == 0 else self._folded
        folded, highest = fold(self._session, after, FOLD_CHUNK)
        if folded < FOLD_CHUNK:
            self._folds += 1
        if highest is not None and (self._folded is None or highest > self._folded):
            self._folded = highest
        return folded

    def _keep_house(self) -> None:
        """Last in a step, so that a lock that it cannot get delays nothing else."""
        if boot_seconds() - self._house_kept_at < _HOUR:
            return
        ensure_partitions(self._session, _PARTITION_DAYS)
        if not retain(self._session, _RETAIN_CHUNK):
            self._house_kept_at = boot_seconds()

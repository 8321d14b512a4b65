"""The ticker's loop: release what is held no longer, decide what is due, store it, sleep until the next slot."""

from __future__ import annotations

import time
from datetime import timedelta

import structlog

from slotkeeper.actor import Actor
from slotkeeper.database_clock import DatabaseClock, boot_seconds
from slotkeeper.holds import hold_covered
from slotkeeper.store.connection import Session
from slotkeeper.store.holds import release_held
from slotkeeper.store.keeper import reap
from slotkeeper.store.ticker import DueSchedule, LookedUntil, due, materialise, seconds_to_next_due, upcoming
from slotkeeper.ticker.decide import DecisionMaker
from slotkeeper.ticker.moved_slots import MovedSlots

_log = structlog.stdlib.get_logger()

#: Schedules decided in one transaction: enough to make its cost small, few enough to make its locks short.
BATCH = 1000
#: A schedule that was stored by somebody else is seen within this time (seconds).
LONGEST_SLEEP = 1.0
#: A schedule that was left for the next pass is tried again after this time (seconds).
_LEFT_OVER_SLEEP = 0.05
#: While a schedule that cannot be read is overdue, the next slot of the others is not told by the database.
_UNREADABLE_SLEEP = 0.2
#: Seconds between looks for what a killed command about holds left undone; the ends of holds are seen at each tick.
_HOLDS_SECONDS = 5.0
#: Timings of schedules that fall due within this time (seconds) are compiled while nothing is due, so many at a time:
#: of 10,000 that share one instant that is most of the work (docs/decisions.md).
_AHEAD_SECONDS, _AHEAD = 60.0, 500
#: No look ahead when a slot falls due sooner than this (seconds): it must not wait for it.
_ROOM_SECONDS = 0.3
#: So far ahead of what we expect, the database's clock was set forward; pause_reaping has the same bound.
_STEP = timedelta(seconds=2)


class Ticker:
    """Makes rows of slots. Any number of them may run on one database."""

    def __init__(self, dsn: str) -> None:
        self._session = Session(dsn, "ticker")
        self._decisions = DecisionMaker(self._session)
        self._moved_slots = MovedSlots(self._session, self._decisions)
        self._clock = DatabaseClock()
        self._holds_at = float("-inf")
        self._compiled_until: LookedUntil | None = None
        #: Runs planned and stored since the process began; for metrics.
        self.slots_materialised = 0
        self.actor = Actor("ticker", self.tick, close=self._session.close)

    def tick(self) -> float:
        """One pass over all that is due; returns the seconds until the next one."""
        self._keep_holds()
        left: set[int] = set()
        unreadable: set[int] = set()
        while batch := [schedule for schedule in self._due(BATCH + len(left)) if schedule.id not in left]:
            with self._session.transaction() as connection:
                decided = self._decisions.decide(batch)
                left_now = materialise(connection, decided) if decided else set()
            left |= left_now
            self.slots_materialised += sum(
                len(schedule.plan.runs) + len(schedule.exempt) for schedule in decided if schedule.id not in left_now
            )
            unreadable |= {schedule.id for schedule in batch} - {schedule.id for schedule in decided}
            left |= unreadable
            if len(batch) < BATCH:
                break
        if left:
            return _LEFT_OVER_SLEEP if left - unreadable else _UNREADABLE_SLEEP
        sent = boot_seconds()
        seconds, moment = seconds_to_next_due(self._session)
        self._clock.tell(moment, sent)
        sleep = LONGEST_SLEEP if seconds is None else min(max(seconds, 0.0), LONGEST_SLEEP)
        return 0.0 if sleep > _ROOM_SECONDS and (self._look_ahead() or self._moved_slots.step()) else sleep

    def _due(self, limit: int) -> list[DueSchedule]:
        """What is due; nothing where it is so only because the database's clock was set forward since our last look.

        Then everybody pauses, as when a reaper sees the step. One that lasts longer than the pause is believed.
        """
        sent = boot_seconds()
        found = due(self._session, limit)
        if not found:
            return found
        # An upper bound, however late the answers came: only a step lies beyond it.
        expected, moment = self._clock.expected(), found[0].moment
        self._clock.tell(moment, sent)
        if expected is None or moment <= expected + _STEP:
            return found
        _log.warning("clock_stepped", ahead_seconds=round((moment - expected).total_seconds(), 1))
        reap(self._session, expected, starting=False)
        return []

    def _look_ahead(self) -> bool:
        """Compiles what falls due soon; true when there is more of it. Only how soon rows are there depends on it."""
        keys, self._compiled_until = upcoming(
            self._session, after=self._compiled_until, horizon_seconds=_AHEAD_SECONDS, limit=_AHEAD
        )
        self._decisions.learn(keys)
        return len(keys) == _AHEAD

    def _keep_holds(self) -> None:
        """The end of a hold is a due time, so that its first slot is not late."""
        everything = time.monotonic() >= self._holds_at
        with self._session.connection() as connection:
            released = release_held(connection, everything=everything)
        if everything:
            with self._session.transaction() as connection:
                held = hold_covered(connection)
            # A full chunk has more behind it.
            self._holds_at = time.monotonic() + (0.0 if held else _HOLDS_SECONDS)
            if held:
                _log.info("held", schedules=held)
        if released:
            _log.info("released", schedules=released)

"""How many workers each pool wants: read from the database when somebody asks, kept for seconds, never given out old.

What the numbers mean is in ``sql/functions/scaling.sql``; who serves them is in the modules beside this one. An
autoscaler keeps its replicas on an error and obeys a number, so what is not known is an error and never 0.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from slotkeeper.actor import Actor
from slotkeeper.database_clock import boot_seconds
from slotkeeper.errors import SlotkeeperError
from slotkeeper.store.connection import Session
from slotkeeper.store.scaling import PoolNumber, pool_numbers

#: Seconds for which numbers are given out without asking the database again. Longer, up to a bound, where counting
#: takes long: at most a twentieth of the time is spent on it.
_FRESH, _FRESH_AT_MOST, _SHARE = 5.0, 25.0, 20
#: Numbers that are older (seconds) are not given out any more.
STALE = 30.0
#: Nobody asks: the actor sleeps until somebody does.
_UNTIL_ASKED = 3600.0


class UnknownPool(SlotkeeperError):
    """No worker has ever named this pool, and no configuration declares it."""


class StaleNumbers(SlotkeeperError):
    """The database has not told the numbers for so long that they must not be used."""


def as_json(number: PoolNumber) -> dict[str, str | int]:
    """The number and why it is what it is; the names are a contract (docs/scaling.md)."""
    return {
        "namespace": number.namespace,
        "pool": number.pool,
        "workers_wanted": number.wanted,
        "claimable": number.claimable,
        "running": number.running,
        "due_soon": number.due_soon,
        "workers_holding_long_runs": number.holding,
        "workers": number.workers,
        "concurrency": number.concurrency,
    }


@dataclass(frozen=True, slots=True)
class ScalingSettings:
    """``horizon_seconds``: how far ahead slots and retries count. ``drain_seconds``: a worker that holds an older run
    is wanted. ``most_workers``: a queue's count ends at so many workers' worth of runs (and at 100,000 runs)."""

    horizon_seconds: float = 60.0
    drain_seconds: float = 30.0
    most_workers: int = 1000

    def read(self, session: Session) -> list[PoolNumber]:
        """The numbers as the database tells them now."""
        return pool_numbers(
            session,
            horizon_seconds=self.horizon_seconds,
            drain_seconds=self.drain_seconds,
            most_workers=self.most_workers,
        )


@dataclass(frozen=True, slots=True)
class _Reading:
    """What the database told, and from when (boot_seconds) it is: the instant before it was asked."""

    pools: Mapping[tuple[str, str], PoolNumber]
    asked_at: float
    fresh_seconds: float


class PoolNumbers:
    """The numbers of all pools; any thread and any event loop may ask.

    Only its own thread talks to the database, so that a database which hangs delays who asks by ``wait_seconds`` and
    no more.
    """

    def __init__(self, dsn: str, settings: ScalingSettings | None = None) -> None:
        self._settings = settings or ScalingSettings()
        self._session = Session(dsn, "scaling")
        self.actor = Actor("scaling", self._step, close=self._session.close)
        self._lock = threading.Lock()
        self._reading: _Reading | None = None
        self._next: Future[None] | None = None

    def all(self, *, wait_seconds: float = 2.0) -> list[PoolNumber]:
        """The number of every known pool; raises StaleNumbers."""
        asked = self._ask()
        if asked is not None:
            with suppress(TimeoutError):
                asked.result(wait_seconds)
        return list(self._current().values())

    async def find(self, namespace: str, pool: str, *, wait_seconds: float = 2.0) -> PoolNumber:
        """The number of one pool; raises StaleNumbers, or UnknownPool."""
        asked = self._ask()
        if asked is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(asked)), wait_seconds)
        number = self._current().get((namespace, pool))
        if number is None:
            raise UnknownPool(
                f"there is no pool {pool!r} in namespace {namespace!r}: no worker has registered with it yet; "
                "'slotkeeper pools' lists those that are known"
            )
        return number

    def _ask(self) -> Future[None] | None:
        """What is done when the database has answered or failed; None while there is no need to ask."""
        with self._lock:
            reading = self._reading
            if reading is not None and boot_seconds() - reading.asked_at < reading.fresh_seconds:
                return None
            if self._next is None:
                self._next = Future()
                self.actor.wake()
            return self._next

    def _current(self) -> Mapping[tuple[str, str], PoolNumber]:
        with self._lock:
            reading = self._reading
        if reading is None:
            raise StaleNumbers("the numbers have not been read from the database yet")
        age = boot_seconds() - reading.asked_at
        if age > STALE:
            raise StaleNumbers(f"the numbers are {age:.0f} s old: the database does not tell newer ones")
        return reading.pools

    def _step(self) -> float:
        with self._lock:
            asked = self._next
        if asked is None:
            return _UNTIL_ASKED
        try:
            reading = self._read()
            with self._lock:
                self._reading = reading
        finally:
            with self._lock:
                self._next = None
            asked.set_result(None)
        return _UNTIL_ASKED

    def _read(self) -> _Reading:
        began = boot_seconds()
        numbers = self._settings.read(self._session)
        took = boot_seconds() - began
        return _Reading(
            {(number.namespace, number.pool): number for number in numbers},
            began,
            min(max(_FRESH, _SHARE * took), _FRESH_AT_MOST),
        )

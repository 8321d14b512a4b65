"""A loop in a thread of its own that survives a database which goes away: the frame of ticker, keeper and syncer.

Runs one step after another, waits as long as the step says, backs off while the database cannot be reached, and
stops when asked. What a step does is the actor's business.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import structlog

from slotkeeper.database_clock import boot_seconds
from slotkeeper.errors import DatabaseBusy, DatabaseUnavailable, SchemaMissing, SlotkeeperError

_log = structlog.stdlib.get_logger()

#: Seconds between tries while the database is away: doubled from the first to the last, with full jitter.
_FIRST_BACK_OFF, _LAST_BACK_OFF = 0.2, 5.0


class Actor:
    """``step`` returns the seconds to wait before the next one; ``wake`` ends the wait early."""

    def __init__(self, name: str, step: Callable[[], float], *, close: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self._step = step
        self._close = close
        self._wake = threading.Event()
        self._stopping = False
        self._failures = 0
        self._stepping_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def wake(self) -> None:
        """The next step begins at once."""
        self._wake.set()

    def stop(self, *, seconds: float = 10) -> None:
        """Ends after the step that runs now; waits for it at most ``seconds``."""
        self._stopping = True
        self._wake.set()
        self._thread.join(seconds)

    @property
    def failures(self) -> int:
        """Steps that have failed in a row."""
        return self._failures

    @property
    def step_seconds(self) -> float:
        """For how long the step that runs now has been running; 0 between two steps."""
        since = self._stepping_since  # another thread changes it
        return 0.0 if since is None else boot_seconds() - since

    @property
    def alive(self) -> bool:
        """Whether the thread runs: false only before start and after stop."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            self._stepping_since = boot_seconds()
            wait = self._guarded_step()
            self._stepping_since = None
            self._wake.wait(wait)
            self._wake.clear()
        self._close()

    def _guarded_step(self) -> float:
        try:
            wait = self._step()
        except (DatabaseUnavailable, DatabaseBusy, SchemaMissing) as error:
            return self._back_off("database_away", error)
        except SlotkeeperError as error:
            return self._back_off("step_failed", error)
        except Exception as error:  # noqa: BLE001 - an actor must outlive any fault of one step, and says so
            _log.exception("step_crashed", actor=self.name)
            return self._back_off("step_crashed", error)
        if self._failures:
            _log.info("recovered", actor=self.name, failures=self._failures)
            self._failures = 0
        return wait

    def _back_off(self, event: str, error: Exception) -> float:
        self._failures += 1
        if self._failures & (self._failures - 1) == 0:  # the 1st, 2nd, 4th, 8th …: a long outage does not flood the log
            _log.warning(event, actor=self.name, failures=self._failures, error=str(error))
        return random.uniform(0, min(_LAST_BACK_OFF, _FIRST_BACK_OFF * 2.0 ** min(self._failures, 10)))  # noqa: S311

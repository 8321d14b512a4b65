"""The database's clock as this process expects it, from its last answer and our own monotonic clock.

Only for noticing that the database's clock was set forward, and for waits; nothing that it says is ever stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

#: Seconds that also pass while the machine is suspended, where the system tells them: clock_gettime(2), CLOCK_BOOTTIME.
boot_seconds: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


class DatabaseClock:
    """Carries the database's last told time forward."""

    def __init__(self) -> None:
        self._told: datetime | None = None
        self._at = 0.0

    def tell(self, moment: datetime, sent: float) -> None:
        """``moment`` was the database's time in an answer to what was sent at ``sent`` (boot_seconds).

        Counted from then, an answer that came late (a slow call, a frozen process) never makes the database's clock
        look as if it had been set forward.
        """
        self._told, self._at = moment, sent

    def expected(self) -> datetime | None:
        """The database's time by our own clock; None before it was told once."""
        return None if self._told is None else self._told + timedelta(seconds=boot_seconds() - self._at)

    def seconds_until(self, moment: datetime | None) -> float | None:
        """From now until ``moment`` of the database; None when either is unknown."""
        now = self.expected()
        return None if moment is None or now is None else (moment - now).total_seconds()

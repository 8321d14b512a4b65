"""A token bucket: so many a second on average, so many at once."""

from __future__ import annotations

from collections.abc import Callable


class TokenBucket:
    """Starts full. ``rate`` tokens a second, at most ``burst``; for one thread."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._at = burst, clock()

    def take(self) -> bool:
        """Takes a token if there is one."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

"""A histogram that a hot path can afford: it takes whole batches and keeps plain numbers.

For whoever counts; how it is shown is the business of ``metrics``. One thread observes, any may read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


class Histogram:
    """How many values were at most each of ``bounds`` (ascending), how many there were, and their sum."""

    __slots__ = ("bounds", "count", "sum", "within")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.within = [0] * len(bounds)
        self.count = 0
        self.sum = 0.0

    def observe(self, values: list[float]) -> None:
        """Adds a batch; sorts ``values`` in place, because then one look per bound is enough for all of them."""
        values.sort()
        below = 0
        for index, bound in enumerate(self.bounds):
            below = bisect_right(values, bound, below)
            self.within[index] += below
        self.count += len(values)
        self.sum += sum(values)

    def cumulative(self) -> tuple[list[int], int]:
        """(values within each bound, values in all), ascending even while another thread observes."""
        within = list(self.within)
        for index in range(1, len(within)):
            within[index] = max(within[index], within[index - 1])
        return within, max([self.count, *within[-1:]])

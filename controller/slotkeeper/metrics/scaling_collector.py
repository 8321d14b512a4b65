"""The numbers for autoscaling as Prometheus gauges; the series are absent while the numbers are stale."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from slotkeeper.metrics.scaling import PoolNumbers, StaleNumbers

#: Name, HELP, and the field of a PoolNumber.
_GAUGES = (
    ("slotkeeper_pool_workers_wanted", "Workers that the pool wants: the number to scale on.", "wanted"),
    ("slotkeeper_pool_claimable_runs", "Due runs of the pool's queues that could start now.", "claimable"),
    ("slotkeeper_pool_running_runs", "Runs that the pool's workers hold.", "running"),
    ("slotkeeper_pool_due_soon_runs", "Runs and slots of the pool's queues that are due soon.", "due_soon"),
    ("slotkeeper_pool_workers_holding_long_runs", "Workers that hold a run older than the drain time.", "holding"),
    ("slotkeeper_pool_workers", "Workers of the pool that have a lease.", "workers"),
    ("slotkeeper_pool_concurrency_runs", "Runs at a time of each of the pool's workers.", "concurrency"),
)  # fmt: skip
#: A scrape waits no longer (seconds) for numbers than this.
_WAIT = 0.5


class ScalingCollector(Collector):
    """For a Prometheus registry; every replica tells the same, so read it with ``max by (namespace, pool)``."""

    def __init__(self, numbers: PoolNumbers) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One family per part, without samples while the numbers are stale."""
        try:
            pools = self._numbers.all(wait_seconds=_WAIT)
        except StaleNumbers:
            pools = []
        for name, help_text, field in _GAUGES:
            family = GaugeMetricFamily(name, help_text, labels=("namespace", "pool"))
            value = attrgetter(field)
            for pool in pools:
                family.add_metric((pool.namespace, pool.pool), value(pool))
            yield family

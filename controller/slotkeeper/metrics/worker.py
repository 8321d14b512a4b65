"""What a worker shows: its own counters, and ready, oldest and dead of its queues, so that they are there without a
controller.

The counters are plain numbers that the worker keeps (``WorkerFacts``); the queues come from one question to the
database in ten seconds, and only while somebody scrapes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from prometheus_client.core import HistogramMetricFamily, Metric

from slotkeeper.histogram import Histogram
from slotkeeper.metrics import catalogue
from slotkeeper.metrics.common import SchemaSeen, build_families, database_families, lease_families, read_schema
from slotkeeper.metrics.reading import DatabaseReader
from slotkeeper.store.connection import Session
from slotkeeper.store.keeper import LostLease
from slotkeeper.store.metrics import OwnLaneDepth, own_queues

#: Seconds between two questions, and how many rows of a lane are looked at.
_SECONDS, _LIMIT = 10.0, 10_000

#: (namespace, queue).
Queue = tuple[str, str]


class LaneFacts(Protocol):
    """What a worker counts of one lane."""

    @property
    def outcomes(self) -> Mapping[str, int]: ...
    @property
    def delays(self) -> Histogram: ...
    @property
    def durations(self) -> Histogram: ...


class CountedFacts(Protocol):
    """What a worker counts."""

    @property
    def lanes(self) -> Mapping[int, LaneFacts]: ...
    @property
    def lease_expirations(self) -> Mapping[LostLease, int]: ...
    @property
    def leases_lost(self) -> int: ...


class WorkerFacts(Protocol):
    """What metrics ask of a worker, from another thread."""

    @property
    def worker_id(self) -> int: ...
    @property
    def ready(self) -> bool: ...
    @property
    def held(self) -> int: ...
    @property
    def counts(self) -> CountedFacts: ...


class _Known(NamedTuple):
    schema: SchemaSeen
    lanes: list[OwnLaneDepth]


class WorkerMetrics:
    """The families of one worker process. ``outcomes``: all that can become of an attempt."""

    def __init__(
        self, facts: WorkerFacts, reader: DatabaseReader, *, pool: str, concurrency: int, outcomes: Iterable[str]
    ) -> None:
        self._facts = facts
        self._pool, self._concurrency, self._outcomes = pool, concurrency, tuple(outcomes)
        self._known = reader.reading(self._read, seconds=_SECONDS)
        self._names: dict[int, Queue] = {}

    async def families(self) -> list[Metric]:
        """For one scrape."""
        known = await self._known.known()
        recent = known.recent
        if known.value is not None:
            # A lane's name never changes, so what was counted in a lane that is no longer served keeps its name.
            self._names.update({depth.lane: (depth.namespace, depth.queue) for depth in known.value.lanes})
        return [
            *build_families("worker"),
            *database_families(known, None if recent is None else recent.schema),
            *([] if known.at is None else [catalogue.QUEUES_READ.gauge(known.at)]),
            *_depth_families(() if recent is None else recent.lanes),
            *self._attempt_families(),
            *lease_families(
                self._facts.counts.lease_expirations, [(*queue, self._pool) for queue in set(self._names.values())]
            ),
            catalogue.WORKER_RUNS.gauge(self._facts.held),
            catalogue.WORKER_CONCURRENCY.gauge(self._concurrency),
            catalogue.WORKER_READY.gauge(float(self._facts.ready)),
            catalogue.LEASES_LOST.counter(self._facts.counts.leases_lost),
        ]

    def _read(self, session: Session) -> _Known:
        return _Known(read_schema(session), own_queues(session, self._facts.worker_id, _LIMIT))

    def _attempt_families(self) -> Iterable[Metric]:
        """A lane is a queue and a priority, so several may be one queue."""
        lanes = dict(self._facts.counts.lanes)
        by_queue: dict[Queue, list[LaneFacts]] = {queue: [] for queue in self._names.values()}
        for lane, counts in lanes.items():
            if lane in self._names:  # else it is told by the next scrape that knows its name
                by_queue[self._names[lane]].append(counts)
        attempts = catalogue.ATTEMPTS.counter()
        delays, durations = catalogue.START_DELAY.histogram(), catalogue.DURATION.histogram()
        for queue, of_queue in sorted(by_queue.items()):
            labels = [*queue, self._pool]
            for outcome in self._outcomes:
                attempts.add_metric([*labels, outcome], sum(counts.outcomes[outcome] for counts in of_queue))
            if of_queue:
                _add_histogram(delays, labels, [counts.delays for counts in of_queue])
                _add_histogram(durations, labels, [counts.durations for counts in of_queue])
        return attempts, delays, durations


def _depth_families(depths: Iterable[OwnLaneDepth]) -> Iterable[Metric]:
    runs, oldest = catalogue.QUEUE_RUNS.gauge(), catalogue.QUEUE_OLDEST.gauge()
    by_queue: dict[Queue, list[OwnLaneDepth]] = defaultdict(list)
    for depth in depths:
        by_queue[depth.namespace, depth.queue].append(depth)
    for queue, lanes in sorted(by_queue.items()):
        runs.add_metric([*queue, "ready"], sum(lane.ready for lane in lanes))
        runs.add_metric([*queue, "dead"], sum(lane.dead for lane in lanes))
        oldest.add_metric(queue, max(lane.oldest_ready_age for lane in lanes))
    return runs, oldest


def _add_histogram(family: HistogramMetricFamily, labels: list[str], histograms: list[Histogram]) -> None:
    bounds = histograms[0].bounds
    parts = [histogram.cumulative() for histogram in histograms]
    within = [sum(part[0][index] for part in parts) for index in range(len(bounds))]
    buckets = [(str(float(bound)), float(count)) for bound, count in zip(bounds, within, strict=True)]
    everything = float(sum(part[1] for part in parts))
    family.add_metric(labels, [*buckets, ("+Inf", everything)], sum(histogram.sum for histogram in histograms))

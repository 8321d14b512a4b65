"""What a controller shows: how late the ticker is, what waits where, who leads, and how its own loops fare.

Every replica shows what the database knows, so a rule takes the maximum over them; what a replica counts itself is
summed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from prometheus_client.core import Metric

from slotkeeper.metrics import catalogue
from slotkeeper.metrics.common import build_families, database_families, lease_families, read_schema
from slotkeeper.metrics.reading import DatabaseReader
from slotkeeper.store.connection import Session
from slotkeeper.store.keeper import LostLease
from slotkeeper.store.metrics import (
    LaneDepth,
    ScheduleTotals,
    ServedQueue,
    VitalSigns,
    needed_schema,
    queues,
    schedule_totals,
    served_queues,
    vital_signs,
)

#: Seconds between two questions, and how many rows of a lane are looked at.
_SECONDS, _LIMIT = 5.0, 100_000
_PROBE_SECONDS = 2.0
_RUN_STATES = ("scheduled", "ready", "waiting", "retrying", "running", "dead")
_SCHEDULE_STATES = ("active", "suspended", "held", "unwatched")
_OUTCOMES = ("done", "dead", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFacts:
    """What a replica counts itself.

    ``actor_failures``: failed steps in a row by name of the loop. ``leads`` is None without Kubernetes;
    ``pump_restarts``, ``braked`` (schedules not retired), ``failed`` and ``resync_ages`` (seconds; only where it leads)
    are by what is watched: a namespace, or ``*``. ``missing_permissions``: verb, resource, namespace or ``*``.
    ``retained_at``: when retention was last complete, by the database's clock; None: not yet.
    """

    slots_materialised: int
    lease_expirations: Mapping[LostLease, int]
    actor_failures: Mapping[str, int]
    leads: bool | None = None
    pump_restarts: Mapping[str, int] = field(default_factory=dict)
    braked: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, bool] = field(default_factory=dict)
    resync_ages: Mapping[str, float] = field(default_factory=dict)
    missing_permissions: Sequence[tuple[str, str, str]] = ()
    retained_at: float | None = None


class _Known(NamedTuple):
    signs: VitalSigns
    lanes: list[LaneDepth]
    served: list[ServedQueue]
    schedules: list[ScheduleTotals]


class ControllerMetrics:
    """The families of one replica; ``facts`` is asked at each scrape, from another thread.

    ``probe_reader`` asks whether the database answers, and must not be ``reader``: probes would wait behind its reads.
    """

    def __init__(
        self, facts: Callable[[], ControllerFacts], probe_reader: DatabaseReader, reader: DatabaseReader, cluster: str
    ) -> None:
        self._facts = facts
        self._cluster = cluster
        self._schema = probe_reader.reading(read_schema, seconds=_PROBE_SECONDS)
        self._known = reader.reading(self._read, seconds=_SECONDS)

    async def families(self) -> list[Metric]:
        """For one scrape."""
        known = await self._known.known()
        answered = await self._schema.known(0.2)
        facts = self._facts()
        found = [
            *build_families("controller"),
            *database_families(answered, answered.recent),
            *_own_families(facts),
            *lease_families(facts.lease_expirations, () if known.value is None else known.value.served),
        ]
        if known.at is not None:
            found.append(catalogue.QUEUES_READ.gauge(known.at))
        if known.recent is not None:
            found += [
                *_sign_families(known.recent.signs),
                *_queue_families(known.recent.lanes),
                *_schedule_families(known.recent.schedules),
            ]
        return found

    async def database_problem(self) -> str | None:
        """For the readiness probe: what is wrong with the database or its schema, or None."""
        known = await self._schema.known()
        if not known.answered or known.value is None:
            return "the database does not answer, or lacks the schema: run 'slotkeeper migrate'"
        stored, needed = known.value.version, needed_schema()
        if stored < needed:
            return (
                f"the schema is at migration {stored:04}, and this version needs {needed:04}: run 'slotkeeper migrate'"
            )
        return None

    def _read(self, session: Session) -> _Known:
        return _Known(
            vital_signs(session),
            queues(session, _LIMIT),
            served_queues(session),
            schedule_totals(session, self._cluster),
        )


def _own_families(facts: ControllerFacts) -> Iterable[Metric]:
    yield catalogue.SLOTS_MATERIALISED.counter(facts.slots_materialised)
    failures = catalogue.ACTOR_FAILURES.gauge()
    for actor, count in facts.actor_failures.items():
        failures.add_metric([actor], count)
    yield failures
    if facts.retained_at is not None:
        yield catalogue.RETENTION.gauge(facts.retained_at)
    if facts.leads is None:
        return
    yield catalogue.LEADER.gauge(float(facts.leads))
    restarts, braked, failed = (
        catalogue.PUMP_RESTARTS.counter(), catalogue.RESYNC_BRAKED.gauge(), catalogue.RESYNC_FAILED.gauge()
    )  # fmt: skip
    for watched, count in facts.pump_restarts.items():
        restarts.add_metric([watched], count)
        braked.add_metric([watched], facts.braked.get(watched, 0))
        failed.add_metric([watched], float(facts.failed.get(watched, False)))
    ages, missing = catalogue.RESYNC_AGE.gauge(), catalogue.PERMISSION_MISSING.gauge()
    for watched, age in facts.resync_ages.items():
        ages.add_metric([watched], age)
    for permission in facts.missing_permissions:
        missing.add_metric(permission, 1)
    yield from (restarts, braked, failed, ages, missing)


def _sign_families(signs: VitalSigns) -> Iterable[Metric]:
    yield catalogue.TICKER_LAG.gauge(signs.ticker_lag)
    yield catalogue.WATERMARK_AHEAD.gauge(signs.watermark_ahead)
    yield catalogue.REAPING_PAUSED.gauge(float(signs.reaping_paused))


def _queue_families(lanes: Iterable[LaneDepth]) -> Iterable[Metric]:
    """A lane is a queue and a priority, so several may be one queue."""
    runs, oldest = catalogue.QUEUE_RUNS.gauge(), catalogue.QUEUE_OLDEST.gauge()
    by_queue: dict[tuple[str, str], list[LaneDepth]] = defaultdict(list)
    for lane in lanes:
        by_queue[lane.namespace, lane.queue].append(lane)
    for queue, of_queue in sorted(by_queue.items()):
        for state in _RUN_STATES:
            runs.add_metric([*queue, state], sum(getattr(lane, state) for lane in of_queue))
        oldest.add_metric(queue, max(lane.oldest_ready_age for lane in of_queue))
    return runs, oldest


def _schedule_families(totals: Iterable[ScheduleTotals]) -> Iterable[Metric]:
    count, ended = catalogue.SCHEDULE_COUNT.gauge(), catalogue.SLOTS_ENDED.counter()
    for of_namespace in totals:
        for state in _SCHEDULE_STATES:
            count.add_metric([of_namespace.namespace, state], getattr(of_namespace, state))
        for outcome in _OUTCOMES:
            ended.add_metric([of_namespace.namespace, outcome], getattr(of_namespace, outcome))
    return count, ended

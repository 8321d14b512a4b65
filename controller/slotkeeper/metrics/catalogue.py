"""Every metric: its name, type, labels and text. What is shown is made from these, and so is docs/metric-names.md.

Names follow Prometheus' rules: one prefix, base units, ``_total`` for counters, ``_timestamp_seconds`` for moments.
The numbers for autoscaling have their own place, ``scaling``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

Where = Literal["controller", "worker", "schedules"]


@dataclass(frozen=True, slots=True)
class Definition:
    """``name`` as Prometheus knows it; ``where``: in whose /metrics it is, ``schedules`` for /metrics/schedules."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    text: str
    where: tuple[Where, ...]
    labels: tuple[str, ...] = ()

    def gauge(self, value: float | None = None) -> GaugeMetricFamily:
        """An empty family, or one with a single value."""
        return GaugeMetricFamily(self.name, self.text, value=value, labels=None if value is not None else self.labels)

    def counter(self, value: float | None = None) -> CounterMetricFamily:
        """The same of a counter."""
        return CounterMetricFamily(self.name, self.text, value=value, labels=None if value is not None else self.labels)

    def histogram(self) -> HistogramMetricFamily:
        """An empty family."""
        return HistogramMetricFamily(self.name, self.text, labels=self.labels)


BOTH: tuple[Where, ...] = ("controller", "worker")
CONTROLLER: tuple[Where, ...] = ("controller",)
WORKER: tuple[Where, ...] = ("worker",)
SCHEDULES: tuple[Where, ...] = ("schedules",)
EVERYWHERE: tuple[Where, ...] = (*BOTH, *SCHEDULES)
QUEUE = ("namespace", "queue")
SCHEDULE = ("namespace", "schedule")

BUILD_INFO = Definition(
    "slotkeeper_build_info",
    "gauge",
    "Always 1; the labels say what runs: the version, the worker protocol, the tz database that decides about "
    "slots, and Python.",
    BOTH,
    ("component", "version", "protocol", "tzdata", "python"),
)
DATABASE_UP = Definition(
    "slotkeeper_database_up",
    "gauge",
    "1 if the database answered the newest question of this endpoint, or was asked it less than 5 s ago and answered "
    "the one before; else 0. What it told before is shown for another minute, then left out.",
    EVERYWHERE,
)
DATABASE_LAST_CONTACT = Definition(
    "slotkeeper_database_last_contact_timestamp_seconds",
    "gauge",
    "When the database last answered this endpoint, by the clock of the pod. Left out before the first answer.",
    BOTH,
)
DATABASE_CLOCK_OFFSET = Definition(
    "slotkeeper_database_clock_offset_seconds",
    "gauge",
    "How far the database's clock was ahead of the pod's. Only the database's counts.",
    BOTH,
)
SCHEMA_VERSION = Definition(
    "slotkeeper_schema_version",
    "gauge",
    "The number of the newest migration that the database has.",
    BOTH,
)
QUEUE_RUNS = Definition(
    "slotkeeper_queue_runs",
    "gauge",
    "Runs of a queue by state: scheduled (due later), ready (due, could start now), waiting (behind another run "
    "of their schedule), retrying (due later, after an attempt), running, dead. Workers tell ready and dead, up "
    "to 10,000 per queue and priority; controllers all, up to 100,000. The same from everybody: max by "
    "(namespace, queue, state).",
    BOTH,
    (*QUEUE, "state"),
)
QUEUE_OLDEST = Definition(
    "slotkeeper_queue_oldest_ready_age_seconds",
    "gauge",
    "For how long the oldest ready run has been due, by the database's clock; 0 when none is. The same from "
    "everybody: max by (namespace, queue).",
    BOTH,
    QUEUE,
)
QUEUES_READ = Definition(
    "slotkeeper_queues_read_timestamp_seconds",
    "gauge",
    "When the figures of queues, which scrapes share for some seconds, were read from the database, by the clock of "
    "the pod. Left out before the first answer.",
    BOTH,
)
LEASE_EXPIRATIONS = Definition(
    "slotkeeper_lease_expirations_total",
    "counter",
    "Runs taken from a worker whose lease had ended: where they were queued, the worker's pool, and what they became "
    "(ready, dead, cancelled). Counted by the process that took them: sum over all. A worker whose login may not claim "
    "from the queue leaves the names empty.",
    BOTH,
    (*QUEUE, "pool", "became"),
)

ATTEMPTS = Definition(
    "slotkeeper_attempts_total",
    "counter",
    "Attempts of this worker by outcome: done, dead, cancelled, fenced (refused: another attempt owns the run); "
    "or, when the run comes back, failed, infrastructure, snoozed, interrupted, unstarted.",
    WORKER,
    (*QUEUE, "pool", "outcome"),
)
START_DELAY = Definition(
    "slotkeeper_attempt_start_delay_seconds",
    "histogram",
    "From the due time to the claim, by the database's clock: since the slot for the first attempt of a slot, "
    "since run_at for retries, manual and ad-hoc runs and under a spread. Attempts that have ended and whose "
    "handler had begun.",
    WORKER,
    (*QUEUE, "pool"),
)
DURATION = Definition(
    "slotkeeper_attempt_duration_seconds",
    "histogram",
    "How long handlers ran, whatever came of it.",
    WORKER,
    (*QUEUE, "pool"),
)
WORKER_RUNS = Definition(
    "slotkeeper_worker_runs",
    "gauge",
    "Runs in this worker's hand: running, about to begin, or not yet on record.",
    WORKER,
)
WORKER_CONCURRENCY = Definition(
    "slotkeeper_worker_concurrency_runs",
    "gauge",
    "How many runs this worker runs at a time.",
    WORKER,
)
WORKER_READY = Definition(
    "slotkeeper_worker_ready",
    "gauge",
    "1 while this worker has a lease and takes runs; 0 while it drains, registers or has fenced itself. What "
    "/readyz says.",
    WORKER,
)
LEASES_LOST = Definition(
    "slotkeeper_worker_leases_lost_total",
    "counter",
    "How often this worker let go of everything, because its own lease had ended or was in doubt.",
    WORKER,
)

LEADER = Definition(
    "slotkeeper_leader",
    "gauge",
    "1 on the replica that syncs objects and writes status. Left out with --no-kubernetes.",
    CONTROLLER,
)
TICKER_LAG = Definition(
    "slotkeeper_ticker_lag_seconds",
    "gauge",
    "For how long the most overdue schedule has had a due slot that is not decided, by the database's clock; 0 "
    "when none has. If it grows, slots do not become runs.",
    CONTROLLER,
)
WATERMARK_AHEAD = Definition(
    "slotkeeper_watermark_ahead_seconds",
    "gauge",
    "How far the watermark of a schedule is ahead of the database's clock; 0 when none is. Above 60 the clock "
    "was set back, and the schedule is silent until then.",
    CONTROLLER,
)
SLOTS_MATERIALISED = Definition(
    "slotkeeper_slots_materialised_total",
    "counter",
    "Runs that this replica's ticker planned and stored. One that then met a running one under Skip is in "
    "slotkeeper_slots_ended_total too. Sum over all replicas.",
    CONTROLLER,
)
SLOTS_ENDED = Definition(
    "slotkeeper_slots_ended_total",
    "counter",
    "Outcomes of all schedules of this cluster name since they were stored: done, dead, skipped (superseded "
    "ones too). From the database, so the same from every replica: max by (namespace, outcome).",
    CONTROLLER,
    ("namespace", "outcome"),
)
SCHEDULE_COUNT = Definition(
    "slotkeeper_schedules",
    "gauge",
    "Schedules of this cluster name by state: active, suspended, held, unwatched.",
    CONTROLLER,
    ("namespace", "state"),
)
REAPING_PAUSED = Definition(
    "slotkeeper_reaping_paused",
    "gauge",
    "1 while nobody's lease may be ended, after a restart, a failover or a step of the clock.",
    CONTROLLER,
)
RETENTION = Definition(
    "slotkeeper_retention_last_success_timestamp_seconds",
    "gauge",
    "When nothing was last kept longer than it should be (looked at once an hour, by one of the replicas), by the "
    "database's clock. Left out before the first time.",
    CONTROLLER,
)
PUMP_RESTARTS = Definition(
    "slotkeeper_watch_pump_restarts_total",
    "counter",
    "How often a watch ended by itself and was begun anew; watched is a namespace, or * for all.",
    CONTROLLER,
    ("watched",),
)
RESYNC_BRAKED = Definition(
    "slotkeeper_resync_braked_schedules",
    "gauge",
    "Schedules that the last full resync did not find and did not dare to retire; 0 when it believed its list.",
    CONTROLLER,
    ("watched",),
)
RESYNC_FAILED = Definition(
    "slotkeeper_resync_failed",
    "gauge",
    "1 if the last full resync could not list the objects.",
    CONTROLLER,
    ("watched",),
)
RESYNC_AGE = Definition(
    "slotkeeper_resync_age_seconds",
    "gauge",
    "Seconds since all objects were last listed and believed, on the replica that leads.",
    CONTROLLER,
    ("watched",),
)
PERMISSION_MISSING = Definition(
    "slotkeeper_permission_missing",
    "gauge",
    "1 for a right that the API server refuses this replica; namespace is * where it is wanted in all of them.",
    CONTROLLER,
    ("verb", "resource", "namespace"),
)
ACTOR_FAILURES = Definition(
    "slotkeeper_actor_failures",
    "gauge",
    "Steps of a loop of this replica that have failed in a row; 0 when its last one did not.",
    CONTROLLER,
    ("actor",),
)

SCHEDULE_INFO = Definition(
    "slotkeeper_schedule_info",
    "gauge",
    "Always 1; the queue of the schedule.",
    SCHEDULES,
    (*SCHEDULE, "queue"),
)
LAST_SUCCESS = Definition(
    "slotkeeper_schedule_last_success_timestamp_seconds",
    "gauge",
    "When a run last succeeded. Left out before the first success.",
    SCHEDULES,
    SCHEDULE,
)
LAST_FAILURE = Definition(
    "slotkeeper_schedule_last_failure_timestamp_seconds",
    "gauge",
    "When an attempt last failed. Left out before the first failure.",
    SCHEDULES,
    SCHEDULE,
)
CREATED = Definition(
    "slotkeeper_schedule_created_timestamp_seconds",
    "gauge",
    "When it was created; of one that was deleted and created anew, when that was.",
    SCHEDULES,
    SCHEDULE,
)
NEVER_SUCCEEDED = Definition(
    "slotkeeper_schedule_never_succeeded",
    "gauge",
    "1 until a run has succeeded since it was created.",
    SCHEDULES,
    SCHEDULE,
)
SUCCESS_DUE = Definition(
    "slotkeeper_schedule_success_due_timestamp_seconds",
    "gauge",
    "By when it should have succeeded again, from its own calendar: overdue once this has passed. Left out "
    "while none is expected: suspended, held, never firing.",
    SCHEDULES,
    SCHEDULE,
)
NEXT_SLOT = Definition(
    "slotkeeper_schedule_next_slot_timestamp_seconds",
    "gauge",
    "The next slot. Left out when there is none.",
    SCHEDULES,
    SCHEDULE,
)
OLDEST_PENDING = Definition(
    "slotkeeper_schedule_oldest_pending_timestamp_seconds",
    "gauge",
    "When its oldest run that could start now was due. Left out when none could.",
    SCHEDULES,
    SCHEDULE,
)
DEAD_RUNS = Definition(
    "slotkeeper_schedule_dead_runs",
    "gauge",
    "Dead runs on the dead-letter list.",
    SCHEDULES,
    SCHEDULE,
)
CONSECUTIVE_DEAD = Definition(
    "slotkeeper_schedule_consecutive_dead_runs",
    "gauge",
    "Dead runs since the last success.",
    SCHEDULES,
    SCHEDULE,
)
MISSED_SLOTS = Definition(
    "slotkeeper_schedule_missed_slots",
    "gauge",
    "Slots skipped or superseded since the last success.",
    SCHEDULES,
    SCHEDULE,
)
SUSPENDED = Definition(
    "slotkeeper_schedule_suspended",
    "gauge",
    "1 while suspended.",
    SCHEDULES,
    SCHEDULE,
)
HELD = Definition(
    "slotkeeper_schedule_held",
    "gauge",
    "1 while held.",
    SCHEDULES,
    SCHEDULE,
)
LEFT_OUT = Definition(
    "slotkeeper_schedules_left_out",
    "gauge",
    "Schedules that are not shown here because of --max-schedule-series; 0 when all are.",
    SCHEDULES,
)
SCHEDULES_READ = Definition(
    "slotkeeper_schedules_read_timestamp_seconds",
    "gauge",
    "When this was read from the database, by the clock of the pod; older while the database is away.",
    SCHEDULES,
)

DEFINITIONS: Sequence[Definition] = tuple(value for value in list(globals().values()) if isinstance(value, Definition))

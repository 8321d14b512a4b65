"""The status of a JobSchedule, from what is stored about it. Pure: from values to the JSON that the API server keeps.

Status is a cache of the database and never read back for a decision; only the times of conditions continue what was
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from slotkeeper.operator.applied import Applied
from slotkeeper.store.schedules import Health, HeldBy, StoredSchedule, Unserved
from slotkeeper.success_due import success_due
from slotkeeper.timetable import TZDATA_VERSION
from slotkeeper.timing import Timing

Json = dict[str, object]
ConditionStatus = Literal["True", "False", "Unknown"]

#: The condition types that are ours; others are left as they are.
OUR_CONDITIONS = frozenset({"Ready", "Stalled", "Healthy", "DiffersFromVixieCron"})
#: Those that can be told before any figures were read.
WITHOUT_FIGURES = OUR_CONDITIONS - {"Healthy"}
#: Fields of status that are ours, and how urgent a change of each is.
MEANING = (
    "observedGeneration", "acceptedGeneration", "effectiveTime", "resolvedSchedule", "timeZoneDataVersion",
)  # fmt: skip
NEXT = ("nextScheduleTime",)
FIGURES = (
    "lastScheduleTime", "lastSuccessfulTime", "lastSuccessfulSlot", "lastSkip", "deadRuns", "consecutiveDeadRuns",
)  # fmt: skip
# The CRD's maxima: a longer text would make the API server refuse the whole status.
_LONGEST_MESSAGE, _LONGEST_RESOLVED, _LONGEST_SKIP_REASON, _MOST_CONDITIONS = 32768, 4096, 128, 16


@dataclass(frozen=True, slots=True)
class Figures:
    """What is stored about a schedule at one instant, as far as status shows it; equal when status would be.

    ``last_slot`` is the latest slot that became a run; ``timing_since`` is when its timing was accepted, or it resumed
    or was released. ``unserved``: nobody has served its queue for long enough to say so.
    """

    next_slot: datetime | None
    suspended: bool
    held: bool
    last_slot: datetime | None
    created_at: datetime
    timing_since: datetime
    health: Health
    hold: HeldBy | None = None
    unserved: Unserved | None = None


def figures_of(row: StoredSchedule, health: Health, unserved: Unserved | None = None) -> Figures:
    """The figures of a stored schedule, its outcomes, and its queue if nobody serves it."""
    return Figures(
        next_slot=row.next_slot,
        suspended=row.suspended,
        held=row.held,
        last_slot=max((slot for slot in (row.live_slot, health.last_slot) if slot), default=None),
        created_at=row.created_at,
        timing_since=row.timing_since,
        health=health,
        hold=row.hold,
        unserved=unserved,
    )


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition without its times."""

    type: str
    status: ConditionStatus
    reason: str
    message: str


def status_of(applied: Applied, figures: Figures | None, now: datetime, observed: Mapping[str, object]) -> Json:
    """The whole status that ``applied`` should have at ``now``; ``observed`` is the status it has.

    ``figures`` None: they have not been read since the schedule was stored.
    """
    suspended = applied.suspended if figures is None else figures.suspended
    held = applied.held if figures is None else figures.held
    next_slot = applied.next_slot if figures is None else figures.next_slot
    status: Json = {
        "observedGeneration": applied.generation,
        "acceptedGeneration": applied.accepted_generation,
        "effectiveTime": _time(_effective_time(applied, figures)),
        "resolvedSchedule": _cut(applied.resolved_schedule, _LONGEST_RESOLVED),
        "timeZoneDataVersion": TZDATA_VERSION,
        "nextScheduleTime": None if suspended or held or applied.timing is None else _time(next_slot),
        **({name: observed.get(name) for name in FIGURES} if figures is None else _figures(figures)),
    }
    before = _observed_conditions(observed)
    hold = None if figures is None else figures.hold
    conditions = [*_ready(applied, next_slot, now, suspended=suspended, held=held, hold=hold)]
    if applied.accepted_generation is not None:
        conditions += [*_healthy(applied, figures, now), *_vixie(applied)]
    kept = OUR_CONDITIONS if figures is not None or applied.accepted_generation is None else WITHOUT_FIGURES
    status["conditions"] = _with_times(conditions, applied.generation, now, before, ours=kept)
    return {name: value for name, value in status.items() if value is not None}


def status_patch(desired: Mapping[str, object], observed: Mapping[str, object]) -> Json:
    """The merge patch that turns ``observed`` into ``desired``, of the fields that are ours; empty when they are
    equal.
    """
    ours = (*MEANING, *NEXT, *FIGURES, "conditions")
    patch = {name: desired.get(name) for name in ours if desired.get(name) != observed.get(name)}
    if "lastSkip" in patch and patch["lastSkip"] is not None and observed.get("lastSkip") is not None:
        # A merge patch keeps what it does not name.
        patch["lastSkip"] = {"slot": None, "reason": None, "time": None, **_mapping(patch["lastSkip"])}
    return patch


def _ready(
    applied: Applied, next_slot: datetime | None, now: datetime, *, suspended: bool, held: bool, hold: HeldBy | None
) -> Iterable[Condition]:
    if applied.refusal is not None:
        message = applied.refusal.message
        if applied.accepted_generation is not None:
            message += f" (generation {applied.accepted_generation} stays in force)"
        yield Condition("Ready", "False", applied.refusal.reason, message)
        yield Condition("Stalled", "True", applied.refusal.reason, message)
    elif suspended:
        yield Condition("Ready", "True", "Suspended", "spec.suspend is true: there are no slots")
    elif held:
        yield Condition("Ready", "True", "Held", _held(hold))
    elif next_slot is None and applied.timing is not None:
        yield _without_next_slot(applied.timing, now)
    else:
        yield Condition("Ready", "True", "Accepted", _accepted(applied.timing, now))


def _accepted(timing: Timing | None, now: datetime) -> str:
    """What is in force, and what the clock will do to it. The text changes only when such a change has passed."""
    changes = [] if timing is None else timing.timetable.clock_changes(now)
    if not changes:
        return "in force"
    return "in force. Next changes of the clock: " + ". ".join(change.told for change in changes)


def _held(hold: HeldBy | None) -> str:
    if hold is None:
        return "held in the database: there are no slots"
    what = "" if hold.name is not None else "everything is " if hold.namespace is None else "its namespace is "
    until = "until it is released" if hold.until is None else f"until {rfc3339(hold.until)}"
    return f"{what}held by {hold.held_by} (login {hold.login}) {until}: {hold.reason}"


def _without_next_slot(timing: Timing, now: datetime) -> Condition:
    if timing.timetable.previous(now) is not None:
        return Condition("Ready", "True", "Completed", "its last slot has passed")
    return Condition("Ready", "True", "NeverFires", "no instant matches: it runs only when it is triggered")


def _healthy(applied: Applied, figures: Figures | None, now: datetime) -> Iterable[Condition]:
    if figures is None or applied.spec is None or applied.timing is None:
        return
    health = figures.health
    if health.consecutive_dead >= 1:
        runs = "run is" if health.consecutive_dead == 1 else "runs are"
        yield Condition("Healthy", "False", "DeadRuns", f"{health.consecutive_dead} {runs} dead since the last success")
        return
    if figures.unserved is not None and not (figures.suspended or figures.held) and figures.next_slot is not None:
        # The reason why a success will be overdue, so it comes before that.
        yield Condition(
            "Healthy", "False", "NoWorker", _no_worker(applied.namespace, applied.spec.queue, figures.unserved)
        )
        return
    due = None
    if not figures.suspended and not figures.held:
        due = success_due(
            applied.spec, applied.timing,
            last_success=health.last_success_at, created_at=figures.created_at, timing_since=figures.timing_since,
        )  # fmt: skip
    overdue = due is not None and now > due
    # Successes of an object that was deleted and made anew are not this one's.
    succeeded = health.last_success_at is not None and health.last_success_at >= figures.created_at
    if overdue and succeeded:
        yield Condition("Healthy", "False", "SuccessOverdue", f"a success was due by {_time(due)}")
    elif overdue:
        yield Condition("Healthy", "False", "NeverSucceeded", f"a first success was due by {_time(due)}")
    elif not succeeded:
        yield Condition("Healthy", "True", "NotYetDue", "no success is due yet")
    else:
        yield Condition("Healthy", "True", "Succeeding", "it succeeds as often as it should")


def _vixie(applied: Applied) -> Iterable[Condition]:
    sentence = None if applied.timing is None else applied.timing.timetable.differs_from_vixie_cron
    if sentence is not None:
        yield Condition("DiffersFromVixieCron", "True", "DayFields", sentence)


def _figures(figures: Figures) -> Json:
    health = figures.health
    skip = None
    if health.last_skip_slot is not None:
        skip = {
            "slot": _time(health.last_skip_slot),
            "reason": _cut(health.last_skip_reason, _LONGEST_SKIP_REASON),
            "time": _time(health.last_skip_at),
        }
        skip = {name: value for name, value in skip.items() if value is not None}
    return {
        "lastScheduleTime": _time(figures.last_slot),
        "lastSuccessfulTime": _time(health.last_success_at),
        "lastSuccessfulSlot": _time(health.last_success_slot),
        "lastSkip": skip,
        "deadRuns": health.dead_runs,
        "consecutiveDeadRuns": health.consecutive_dead,
    }


def _with_times(
    conditions: Sequence[Condition],
    generation: int,
    now: datetime,
    observed: Sequence[Mapping[str, object]],
    *,
    ours: Set[str],
) -> list[Json]:
    """As the API server stores them; a condition keeps its time until its status flips."""
    before = {condition.get("type"): condition for condition in observed}
    told: list[Json] = []
    for condition in conditions:
        earlier = before.get(condition.type, {})
        since = earlier.get("lastTransitionTime") if earlier.get("status") == condition.status else None
        told.append(
            {
                "type": condition.type,
                "status": condition.status,
                "observedGeneration": generation,
                "lastTransitionTime": since or _time(now),
                "reason": condition.reason,
                "message": _cut(condition.message, _LONGEST_MESSAGE) or "",
            }
        )
    others = [dict(condition) for condition in observed if condition.get("type") not in ours]
    return (told + others)[:_MOST_CONDITIONS]


def _observed_conditions(observed: Mapping[str, object]) -> list[Mapping[str, object]]:
    conditions = observed.get("conditions")
    if not isinstance(conditions, list):
        return []
    return [condition for condition in conditions if isinstance(condition, Mapping)]


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _effective_time(applied: Applied, figures: Figures | None) -> datetime | None:
    # A release moves it without a new generation.
    return applied.effective_time if figures is None or applied.effective_time is None else figures.timing_since


def _no_worker(namespace: str, queue: str, unserved: Unserved) -> str:
    waiting = unserved.waiting_since
    runs = "" if waiting is None else f", and runs wait since {rfc3339(waiting)}"
    since = rfc3339(unserved.since)
    return f"no worker serves the queue {queue!r} of the namespace {namespace!r} (not since {since}){runs}"


def rfc3339(instant: datetime) -> str:
    """``instant`` in UTC, to the second, as Kubernetes writes times."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(instant: datetime | None) -> str | None:
    return None if instant is None else rfc3339(instant)


def _cut(text: str | None, longest: int) -> str | None:
    return text if text is None or len(text) <= longest else text[: longest - 1] + "…"

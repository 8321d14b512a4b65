"""From an accepted object to the columns that are stored of it. Pure; the numbers of enumerations are those of the
tables.
"""

from __future__ import annotations

import json
from datetime import datetime

from slotkeeper.operator.accept import Accepted, trigger_key_problem
from slotkeeper.spec import (
    Action,
    CatchUpPolicy,
    CommandAction,
    HttpAction,
    JobAction,
    OverlapPolicy,
    TaskAction,
    canonical,
)
from slotkeeper.store.schedules import ScheduleRow

_OVERLAP = {OverlapPolicy.SKIP: 0, OverlapPolicy.QUEUE: 1, OverlapPolicy.REPLACE: 2, OverlapPolicy.ALLOW: 3}
_CATCH_UP = {CatchUpPolicy.RUN_ONCE: 0, CatchUpPolicy.RUN_ALL: 1, CatchUpPolicy.SKIP: 2}


def schedule_row(
    cluster: str,
    verdict: Accepted,
    *,
    moment: datetime,
    since: datetime,
    new_uid: bool,
    timing_changed: bool = True,
) -> ScheduleRow:
    """What is stored of ``verdict``. Slots up to ``moment`` are decided; the next one is the first after ``since``.

    ``new_uid``: it is seen for the first time, so its trigger key is recorded and not run.
    """
    schedule, spec, catch_up = verdict.schedule, verdict.schedule.spec, verdict.timing.catch_up
    next_slot = verdict.next_slot(since)
    document = canonical(spec)
    payload = document.pop("payload")
    key = schedule.trigger_key
    return ScheduleRow(
        cluster=cluster,
        namespace=schedule.namespace,
        name=schedule.name,
        uid=schedule.uid,
        generation=schedule.generation,
        resource_version=schedule.resource_version,
        suspended=spec.suspend,
        trigger_key=key if new_uid and key is not None and trigger_key_problem(key) is None else None,
        spec=_json(document),
        payload=_json(payload),
        spec_hash=verdict.spec_hash,
        action=_action(spec.action),
        queue=spec.queue,
        priority=spec.priority,
        overlap=_OVERLAP[spec.overlap_policy],
        catch_up=_CATCH_UP[spec.catch_up.policy],
        max_runs=spec.catch_up.max_runs,
        late_reason=None if catch_up.start_within is None else catch_up.reason_too_late,
        spread_seconds=spec.spread_seconds,
        grace_seconds=spec.catch_up.grace_seconds,
        max_attempts=spec.retry.max_attempts,
        backoff_initial=spec.retry.initial_backoff_seconds,
        backoff_max=spec.retry.max_backoff_seconds,
        attempt_deadline=spec.attempt_deadline_seconds,
        active_deadline=spec.active_deadline_seconds,
        moment=moment,
        next_slot=next_slot,
        next_due=verdict.timing.due_time(next_slot),
        timing_changed=timing_changed,
    )


def _action(action: Action) -> str:
    match action:
        case TaskAction(task):
            return task
        case CommandAction():
            return "command"
        case HttpAction():
            return "http"
        case JobAction():
            return "job"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

"""A spec as one canonical JSON value: what is stored, hashed and compared.

Written so that two specs that mean the same by the schema give the same bytes; ``parse_spec`` reads it back.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime

from slotkeeper.spec.instants import format_instant
from slotkeeper.spec.jobschedule import (
    Action,
    CommandAction,
    DaylightSaving,
    Every,
    HttpAction,
    JobAction,
    JobScheduleSpec,
    TaskAction,
)

Json = dict[str, object]


def canonical(spec: JobScheduleSpec) -> Json:
    """``spec`` in the CRD's own words, defaults filled in, keys in one fixed order, unset fields left out.

    The law: ``parse_spec(canonical(spec)) == spec``.
    """
    value: Json = {
        "cron": None if spec.cron is None else list(spec.cron),
        "every": _every(spec.every),
        "at": None if spec.at is None else [format_instant(instant) for instant in spec.at],
        "timeZone": spec.time_zone,
        "daylightSaving": {
            "skippedTime": str(spec.daylight_saving.skipped_time),
            "repeatedTime": str(spec.daylight_saving.repeated_time),
        },
        "startTime": _instant(spec.start_time),
        "endTime": _instant(spec.end_time),
        "spreadSeconds": spec.spread_seconds,
        "suspend": spec.suspend,
        **_action(spec.action),
        "payload": spec.payload,
        "queue": spec.queue,
        "priority": spec.priority,
        "overlapPolicy": str(spec.overlap_policy),
        "catchUp": {
            "policy": str(spec.catch_up.policy),
            "maxRuns": spec.catch_up.max_runs,
            "graceSeconds": spec.catch_up.grace_seconds,
        },
        "startingDeadlineSeconds": spec.starting_deadline_seconds,
        "retry": {
            "maxAttempts": spec.retry.max_attempts,
            "initialBackoffSeconds": spec.retry.initial_backoff_seconds,
            "maxBackoffSeconds": spec.retry.max_backoff_seconds,
        },
        "attemptDeadlineSeconds": spec.attempt_deadline_seconds,
        "activeDeadlineSeconds": spec.active_deadline_seconds,
        "maxSuccessAgeSeconds": spec.max_success_age_seconds,
    }
    return {name: item for name, item in value.items() if item is not None}


def spec_hash(spec: JobScheduleSpec) -> str:
    """SHA-256 over the canonical JSON, 64 hexadecimal digits; the order of keys in it does not count."""
    text = json.dumps(canonical(spec), sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Timing:
    """What decides the slots of a schedule, and when they fall due; hashable, equal when no slot moves.

    ``time_zone`` and ``daylight_saving`` are None unless ``cron`` is set: nothing else is read in a zone.
    """

    cron: frozenset[str] | None
    every: Every | None
    at: frozenset[datetime] | None
    time_zone: str | None
    daylight_saving: DaylightSaving | None
    start_time: datetime | None
    end_time: datetime | None
    spread_seconds: int
    suspend: bool


def timing_of(spec: JobScheduleSpec) -> Timing:
    """The part of ``spec`` that decides slots: an edit that leaves it equal moves none.

    Order and blanks of expressions do not count, for they mean nothing.
    """
    cron = None if spec.cron is None else frozenset(" ".join(item.split()) for item in spec.cron)
    return Timing(
        cron=cron,
        every=spec.every,
        at=None if spec.at is None else frozenset(spec.at),
        time_zone=None if cron is None else spec.time_zone,
        daylight_saving=None if cron is None else spec.daylight_saving,
        start_time=spec.start_time,
        end_time=spec.end_time,
        spread_seconds=spec.spread_seconds,
        suspend=spec.suspend,
    )


def unsupported_fields(spec: JobScheduleSpec) -> list[str]:
    """Paths of the fields that this build cannot serve yet, for ``Ready=False``, ``NotYetSupported``."""
    if isinstance(spec.action, HttpAction):
        return ["spec.http"]
    if isinstance(spec.action, JobAction):
        return ["spec.job"]
    return []


def _instant(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _every(every: Every | None) -> Json | None:
    if every is None:
        return None
    return {"periodSeconds": every.period_seconds, "anchorTime": format_instant(every.anchor_time)}


def _action(action: Action) -> Json:
    match action:
        case TaskAction(task):
            return {"task": task}
        case CommandAction(arguments):
            return {"command": list(arguments)}
        case JobAction(template):
            return {"job": {"template": template}}
        case HttpAction():
            return {"http": _http(action)}


def _http(action: HttpAction) -> Json:
    value: Json = {"url": action.url, "method": action.method}
    if action.headers:
        value["headers"] = [{"name": header.name, "value": header.value} for header in action.headers]
    if action.headers_from:
        value["headersFrom"] = [
            {"name": header.name, "credential": header.credential} for header in action.headers_from
        ]
    if action.success_codes is not None:
        value["successCodes"] = list(action.success_codes)
    return value

"""The pages' values as JSON: names as in the views ``job`` and ``health``, instants as RFC 3339 in UTC.

The shapes are a contract (docs/dashboard.md): fields are only ever added.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from slotkeeper.store.web import DashboardRun, DashboardSchedule, Lane, WorkerProcess
from slotkeeper.web.history import Page
from slotkeeper.web.pages import QueuesPage, RunsPage, SchedulePage, SchedulesPage
from slotkeeper.web.parameters import RunFilter, ScheduleFilter, cursor_text
from slotkeeper.web.upcoming import Rule
from slotkeeper.web.wording import rfc3339

Json = dict[str, Any]
#: Keys of ours that say nothing to others.
_OURS = frozenset({"schedule_id", "owner", "run", "live", "spec"})


def schedules_json(page: SchedulesPage, wanted: ScheduleFilter) -> Json:
    """``/api/v1/schedules``."""
    return {
        "time": rfc3339(page.moment),
        "schedules": [_schedule(item.schedule, item.rule) for item in page.schedules],
        "counts": [
            {"state": state, "health": health, "schedules": count}
            for (state, health), count in sorted(page.counts.items())
        ],
        "next": None if page.next is None else "?" + urlencode({**wanted.query(), "after": "/".join(page.next)}),
    }


def schedule_json(page: SchedulePage, wanted: RunFilter) -> Json:
    """``/api/v1/schedules/CLUSTER/NAMESPACE/NAME``."""
    return {
        "time": rfc3339(page.moment),
        "schedule": _schedule(page.schedule, page.rule),
        "upcoming": [
            {"slot": rfc3339(item.slot), "local": item.local.isoformat(), "note": item.note} for item in page.upcoming
        ],
        "heat": [
            {"hour": rfc3339(cell.hour), "worst": cell.worst, "slots": cell.slots, "text": cell.text}
            for day in page.heat
            for cell in day.cells
            if cell.slots
        ],
        **_runs("runs", page.runs, wanted),
    }


def runs_json(page: RunsPage, wanted: RunFilter) -> Json:
    """``/api/v1/runs`` and ``/api/v1/dead``: what the filter excludes is absent."""
    told: Json = {"time": rfc3339(page.moment)}
    if page.live is not None:
        told["live"] = [_plain(run) for run in page.live]
        told["live_next"] = (
            None if page.live_next is None else "?" + urlencode({**wanted.query(), "after": str(page.live_next)})
        )
    if page.ended is not None:
        told |= _runs("ended", page.ended, wanted)
    return told


def queues_json(page: QueuesPage) -> Json:
    """``/api/v1/queues``."""
    return {
        "time": rfc3339(page.moment),
        "lanes": [_plain(lane) for lane in page.lanes],
        "workers": [_plain(worker) for worker in page.workers],
    }


def _runs(name: str, page: Page[DashboardRun], wanted: RunFilter) -> Json:
    return {
        name: [_plain(run) for run in page.rows],
        "next": None if page.next is None else "?" + urlencode({**wanted.query(), "before": cursor_text(page.next)}),
        "searched_to": None if page.searched_to is None else rfc3339(page.searched_to),
    }


def _schedule(schedule: DashboardSchedule, rule: Rule) -> Json:
    return {**_plain(schedule), "expression": rule.text, "time_zone": rule.zone}


def _plain(value: DashboardSchedule | DashboardRun | Lane | WorkerProcess) -> Json:
    return {field.name: _json(getattr(value, field.name)) for field in fields(value) if field.name not in _OURS}


def _json(value: object) -> object:
    return rfc3339(value) if isinstance(value, datetime) else value

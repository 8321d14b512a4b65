"""Schedules to look ahead for, from the spec as a person writes it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from slotkeeper.foresight import Schedule
from slotkeeper.spec import parse_spec
from slotkeeper.timing import timing


def schedule(name: str = "report", *, namespace: str = "billing", **spec: Any) -> Schedule:
    """With a task unless ``spec`` names another action."""
    if not {"task", "command", "http", "job"} & spec.keys():
        spec["task"] = "report"
    parsed = parse_spec(spec)
    return Schedule(namespace=namespace, name=name, spec=parsed, timing=timing(namespace, name, parsed))


def at(text: str) -> datetime:
    """An instant in UTC, such as ``2027-03-26 02:30``."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)

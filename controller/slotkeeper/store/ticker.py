"""The ticker's statements: which schedules are due, and what was decided about their slots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from slotkeeper.store.connection import Session, execute
from slotkeeper.store.versions import OwnerVersion, StoredVersion, version_parameters, versions_of
from slotkeeper.timetable import Plan, PlannedRun, Trigger

_TRIGGERS: dict[Trigger, int] = {"Schedule": 0, "CatchUp": 1}


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A schedule with a slot that is due; ``moment`` is the database's clock when it was read."""

    id: int
    owner: int
    version: int
    watermark: datetime
    moment: datetime


@dataclass(frozen=True, slots=True)
class DecidedSchedule:
    """All that was decided about the slots of one schedule in (watermark, until].

    Valid only while the schedule still has this version and watermark. ``exempt`` are runs whose due time is
    still to come (an edit of a schedule with a spread): overlap and superseding do not touch them.
    """

    id: int
    version: int
    watermark: datetime
    until: datetime
    next_slot: datetime | None
    next_due: datetime | None
    plan: Plan
    exempt: tuple[PlannedRun, ...] = ()


def due(session: Session, limit: int) -> list[DueSchedule]:
    """Up to ``limit`` schedules that have a slot due, the most overdue first."""
    return [DueSchedule(*row) for row in session.call("ticker.due", limit=limit)]


#: Where a look ahead stopped: the due time and the id of the last schedule that it saw.
LookedUntil = tuple[datetime, int]


def upcoming(
    session: Session, *, after: LookedUntil | None, horizon_seconds: float, limit: int
) -> tuple[list[OwnerVersion], LookedUntil | None]:
    """Versions whose slots fall due within the horizon and after ``after``, and where the next look begins."""
    moment, id_ = after or (None, None)
    rows = session.call("ticker.upcoming", after=moment, after_id=id_, horizon_seconds=horizon_seconds, limit=limit)
    return [(row.owner, row.version) for row in rows], (rows[-1].next_due, rows[-1].id) if rows else after


def versions(session: Session, keys: Iterable[OwnerVersion]) -> dict[OwnerVersion, StoredVersion]:
    """What these versions say, by (owner, version)."""
    return versions_of(session.call("ticker.versions", **version_parameters(keys)))


def seconds_to_next_due(session: Session) -> tuple[float | None, datetime]:
    """Until the next slot falls due, by the database's clock, and that clock.

    Negative when one is overdue, None when none will.
    """
    row = session.call("ticker.next_due")[0]
    return row.seconds, row.moment


def materialise(connection: psycopg.Connection[Any], decided: Sequence[DecidedSchedule]) -> set[int]:
    """Stores what was decided, in one call; returns the ids of schedules that are left for the next pass."""
    runs = [
        (schedule.id, run, place, exempt)
        for schedule in decided
        for place, (run, exempt) in enumerate(
            [*((run, False) for run in schedule.plan.runs), *((run, True) for run in schedule.exempt)],
            start=1,
        )
    ]
    skips = [(schedule.id, skipped) for schedule in decided for skipped in schedule.plan.skipped]
    rows = execute(
        connection,
        "ticker.materialise",
        {
            "ids": [schedule.id for schedule in decided],
            "versions": [schedule.version for schedule in decided],
            "watermarks": [schedule.watermark for schedule in decided],
            "until": [schedule.until for schedule in decided],
            "next_slots": [schedule.next_slot for schedule in decided],
            "next_dues": [schedule.next_due for schedule in decided],
            "run_ids": [id_ for id_, _, _, _ in runs],
            "run_slots": [run.slot for _, run, _, _ in runs],
            "run_ats": [run.run_at for _, run, _, _ in runs],
            "run_start_bys": [run.start_by for _, run, _, _ in runs],
            "run_triggers": [_TRIGGERS[run.trigger] for _, run, _, _ in runs],
            "run_places": [place for _, _, place, _ in runs],
            "run_exempt": [exempt for _, _, _, exempt in runs],
            "skip_ids": [id_ for id_, _ in skips],
            "skip_firsts": [skipped.first for _, skipped in skips],
            "skip_lasts": [skipped.last for _, skipped in skips],
            "skip_counts": [skipped.count for _, skipped in skips],
            "skip_reasons": [skipped.reason for _, skipped in skips],
        },
    )
    return set(rows[0].left_over)

"""Joins what a schedule says (`spec`) to the arithmetic of time (`timetable`), which do not know each other.

Pure. Used by the operator to accept a spec, by the ticker to decide slots, by a worker to tell a run its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from slotkeeper.spec import JobScheduleSpec
from slotkeeper.timetable import (
    CatchUp,
    CatchUpPolicy,
    Plan,
    PlannedRun,
    RepeatedTime,
    SkippedTime,
    Timetable,
    at_timetable,
    cron_timetable,
    every_timetable,
    plan,
    spread_offset,
)


@dataclass(frozen=True, slots=True)
class Timing:
    """When a schedule has slots, and what becomes of late ones. ``suspended``: it has none at all."""

    timetable: Timetable
    catch_up: CatchUp
    suspended: bool

    @property
    def offset(self) -> timedelta:
        """From a slot to its due time (``spreadSeconds``)."""
        return self.catch_up.offset

    def next_slot(self, after: datetime) -> datetime | None:
        """The first slot after an instant; None while suspended or when there is none."""
        return None if self.suspended else self.timetable.next(after)

    def due_time(self, slot: datetime | None) -> datetime | None:
        """When the ticker makes the row of a slot."""
        return None if slot is None else slot + self.offset

    def decide(self, *, after: datetime, until: datetime, now: datetime) -> Plan:
        """What becomes of every slot in (after, until]."""
        if self.suspended:
            return Plan((), ())
        return plan(self.timetable, self.catch_up, after=after, until=until, now=now)

    def still_to_come(self, *, after: datetime, until: datetime) -> tuple[PlannedRun, ...]:
        """The slots in (after, until] as runs at their due times, for an edit: their slot has come, their due
        time has not.
        """
        if self.suspended or after >= until:
            return ()
        limit = self.catch_up.start_within
        return tuple(
            PlannedRun(
                slot=slot,
                run_at=slot + self.offset,
                start_by=None if limit is None else slot + self.offset + limit,
                trigger="Schedule",
            )
            for slot in self.timetable.window(after, until)
        )


def timing(namespace: str, name: str, spec: JobScheduleSpec) -> Timing:
    """The timing of a schedule. Raises InvalidField or UnknownTimeZone, naming the field and what to write instead."""
    return Timing(
        timetable=timetable(spec),
        catch_up=CatchUp(
            policy=CatchUpPolicy(spec.catch_up.policy),
            max_runs=spec.catch_up.max_runs,
            grace=timedelta(seconds=spec.catch_up.grace_seconds),
            starting_deadline=(
                None if spec.starting_deadline_seconds is None else timedelta(seconds=spec.starting_deadline_seconds)
            ),
            offset=spread_offset(f"{namespace}/{name}", spec.spread_seconds),
        ),
        suspended=spec.suspend,
    )


def timetable(spec: JobScheduleSpec) -> Timetable:
    """When the slots of ``spec`` are, suspended or not."""
    if spec.cron is not None:
        return cron_timetable(
            spec.cron,
            spec.time_zone,
            skipped_time=SkippedTime(spec.daylight_saving.skipped_time),
            repeated_time=RepeatedTime(spec.daylight_saving.repeated_time),
            start=spec.start_time,
            end=spec.end_time,
        )
    if spec.every is not None:
        return every_timetable(
            timedelta(seconds=spec.every.period_seconds),
            spec.every.anchor_time.astimezone(UTC),
            zone=spec.time_zone,
            start=spec.start_time,
            end=spec.end_time,
        )
    return at_timetable(spec.at or (), zone=spec.time_zone, start=spec.start_time, end=spec.end_time)

"""Which slots of an outage become runs and which are skipped, with what reason. Pure: `now` is an argument.

The same rule serves a controller that was away for a year and an ordinary tick of a second. Not for
overlap, which needs to know what is running, and not for rows that are stored already.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from slotkeeper.timetable.timetable import Timetable, in_utc

Trigger = Literal["Schedule", "CatchUp"]
SkipReason = Literal["Late", "StartDeadlineExceeded", "CatchUpLimit", "Superseded"]

_ZERO = timedelta(0)
_INSTANT = timedelta(microseconds=1)  # the finest step of datetime: turns "before" into "up to"


class CatchUpPolicy(StrEnum):
    """What becomes of slots that could not run in time; see `plan`."""

    RUN_ONCE = "RunOnce"
    RUN_ALL = "RunAll"
    SKIP = "Skip"


@dataclass(frozen=True)
class CatchUp:
    """The settings of one schedule that say how it catches up.

    ``grace``: a run that starts within it of its due time is on time. ``starting_deadline``: counted from
    the due time too, under any policy. ``offset``: the schedule's spread; due time = slot + offset.
    Raises `ValueError` for a negative duration or fewer than one run.
    """

    policy: CatchUpPolicy = CatchUpPolicy.RUN_ONCE
    max_runs: int = 100
    grace: timedelta = timedelta(seconds=60)
    starting_deadline: timedelta | None = None
    offset: timedelta = _ZERO

    def __post_init__(self) -> None:
        if self.max_runs < 1:
            raise ValueError(f"max_runs must be at least 1, not {self.max_runs}")
        for name in ("grace", "starting_deadline", "offset"):
            duration = getattr(self, name)
            if duration is not None and duration < _ZERO:
                raise ValueError(f"{name} must not be negative, not {duration}")

    @property
    def start_within(self) -> timedelta | None:
        """How long after its due time a run may still start for the first time; None for ever."""
        limits = [self.grace] if self.policy is CatchUpPolicy.SKIP else []
        if self.starting_deadline is not None:
            limits.append(self.starting_deadline)
        return min(limits, default=None)

    @property
    def reason_too_late(self) -> SkipReason:
        """Which of the two limits it was that a slot missed."""
        by_policy = self.policy is CatchUpPolicy.SKIP and self.start_within == self.grace
        return "Late" if by_policy else "StartDeadlineExceeded"


@dataclass(frozen=True)
class PlannedRun:
    """A slot that becomes a run: due at ``run_at``, never started after ``start_by``."""

    slot: datetime
    run_at: datetime
    start_by: datetime | None
    trigger: Trigger


@dataclass(frozen=True)
class SkippedSlots:
    """``count`` consecutive slots, from ``first`` to ``last`` inclusive, that do not run, for one reason."""

    first: datetime
    last: datetime
    count: int
    reason: SkipReason


@dataclass(frozen=True)
class Plan:
    """Every slot of the window decided: in ``runs`` or in a range of ``skipped``; both oldest first."""

    runs: tuple[PlannedRun, ...]
    skipped: tuple[SkippedSlots, ...]


def plan(timetable: Timetable, catch_up: CatchUp, *, after: datetime, until: datetime, now: datetime) -> Plan:
    """Decide every slot in (after, until], as if none of them had been stored.

    A slot that can no longer start in time is skipped under every policy (`Late` where the grace of
    `Skip` was the nearest limit, else `StartDeadlineExceeded`). Of the other slots that are due by now,
    `RunOnce` keeps the newest (`Superseded`), `RunAll` the newest ``max_runs`` (`CatchUpLimit`), `Skip` all.
    A slot whose due time, for its offset, is still to come is planned under every policy: it is not late.

    Slots that do not run are counted, not listed, so that a minutely schedule away for a year is cheap.
    """
    after, until, now = in_utc(after), in_utc(until), in_utc(now)
    # The window falls into three: too late by now | due by now | not yet due. Each ends inclusively.
    too_late_until = _clamp(_earlier(now, catch_up.offset, catch_up.start_within, _INSTANT), after, until)
    due_until = _clamp(_earlier(now, catch_up.offset), too_late_until, until)

    due, passed_over = _due_slots(timetable, catch_up, too_late_until, due_until)
    skipped = (
        _slots_skipped(timetable, after, too_late_until, catch_up.reason_too_late),
        passed_over,
    )
    slots = due + timetable.window(due_until, until)
    return Plan(
        runs=tuple(_planned(slot, catch_up, now) for slot in slots),
        skipped=tuple(slots for slots in skipped if slots is not None),
    )


def spread_offset(key: str, spread_seconds: int) -> timedelta:
    """A stable offset in [0, spread_seconds) for this ``namespace/name``; zero without a spread.

    From SHA-256, so that it is the same in every process and every release.
    """
    if spread_seconds <= 0:
        return _ZERO
    digest = hashlib.sha256(key.encode("utf-8")).digest()
    return timedelta(seconds=int.from_bytes(digest[:8], "big") % spread_seconds)


def _due_slots(
    timetable: Timetable, catch_up: CatchUp, after: datetime, until: datetime
) -> tuple[list[datetime], SkippedSlots | None]:
    """What the policy makes of slots that are due and can still start: those kept, those passed over."""
    if catch_up.policy is CatchUpPolicy.SKIP:
        return timetable.window(after, until), None
    if catch_up.policy is CatchUpPolicy.RUN_ONCE:
        keep = 1
        reason: SkipReason = "Superseded"
    else:
        keep = catch_up.max_runs
        reason = "CatchUpLimit"
    kept = timetable.newest(after, until, keep)
    if not kept:
        return [], None
    return kept, _slots_skipped(timetable, after, kept[0] - _INSTANT, reason)


def _slots_skipped(timetable: Timetable, after: datetime, until: datetime, reason: SkipReason) -> SkippedSlots | None:
    count = timetable.count(after, until)
    if not count:
        return None
    first, last = timetable.window(after, until, limit=1), timetable.newest(after, until, 1)
    return SkippedSlots(first[0], last[0], count, reason)


def _planned(slot: datetime, catch_up: CatchUp, now: datetime) -> PlannedRun:
    run_at = slot + catch_up.offset
    trigger: Trigger = "CatchUp" if now - run_at > catch_up.grace else "Schedule"
    return PlannedRun(slot, run_at, _later(run_at, catch_up.start_within), trigger)


def _earlier(instant: datetime, *durations: timedelta | None) -> datetime | None:
    """``instant`` less the durations; None where one of them is unlimited, in effect or by name."""
    try:
        for duration in durations:
            if duration is None:
                return None
            instant -= duration
    except OverflowError:
        return None
    return instant


def _later(instant: datetime, duration: timedelta | None) -> datetime | None:
    try:
        return None if duration is None else instant + duration
    except OverflowError:
        return None


def _clamp(instant: datetime | None, low: datetime, high: datetime) -> datetime:
    """``instant`` within [low, high]; None lies before everything."""
    return low if instant is None else max(low, min(instant, high))

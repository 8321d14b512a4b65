"""By when a schedule should have succeeded again. Pure: the instants are arguments.

Calendar-true: a job on working days is not overdue on Sunday.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from slotkeeper.spec import JobScheduleSpec
from slotkeeper.timing import Timing

#: For the last slot of a schedule that sets no activeDeadlineSeconds.
_LONGEST_RUN = timedelta(hours=1)


def success_due(
    spec: JobScheduleSpec,
    timing: Timing,
    *,
    last_success: datetime | None,
    created_at: datetime,
    timing_since: datetime,
) -> datetime | None:
    """The instant after which a success is overdue; None when none is expected: suspended, or no slot is left.

    ``timing_since`` is when the current timing was accepted or the schedule last resumed. The latest of the three
    instants counts, and from it the second slot with its grace, or ``maxSuccessAgeSeconds``; with only one slot
    left, that slot with the time that a run of it may take.
    """
    since = max(instant for instant in (last_success, created_at, timing_since) if instant is not None)
    first = timing.next_slot(since)
    if first is None:
        return None
    grace = timing.offset + timedelta(seconds=spec.catch_up.grace_seconds)
    try:
        if spec.max_success_age_seconds is not None:
            return since + timedelta(seconds=spec.max_success_age_seconds)
        second = timing.next_slot(first)
        if second is not None:
            return second + grace
        return first + grace + _run_time(spec)
    except OverflowError:
        return None


def _run_time(spec: JobScheduleSpec) -> timedelta:
    seconds = spec.active_deadline_seconds
    return _LONGEST_RUN if seconds is None else timedelta(seconds=seconds)

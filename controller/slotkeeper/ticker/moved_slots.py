"""Looks whether stored next slots are still the next slots: a release of the tz database may have moved them.

What falls due is decided by the timetable, so no slot is lost or doubled without this; but nobody would look at a
schedule before the time that is stored. Another replica with another release may store that time again, so this is
repeated.
"""

from __future__ import annotations

import time

import structlog

from slotkeeper.store.connection import Session
from slotkeeper.store.zones import NextSlot, ZonedSchedule, correct_next_slots, zoned_schedules
from slotkeeper.ticker.decide import DecisionMaker

_log = structlog.stdlib.get_logger()

#: Seconds between two looks at all schedules.
_REPEAT_SECONDS = 3600.0


class MovedSlots:
    """For the ticker's thread."""

    def __init__(self, session: Session, decisions: DecisionMaker) -> None:
        self._session = session
        self._decisions = decisions
        self._after: int | None = None
        self._look_at = float("-inf")

    def step(self) -> bool:
        """Looks at some schedules if it is time for that; True when there are more. After an error it begins anew."""
        if self._after is None and time.monotonic() < self._look_at:
            return False
        after, self._after = self._after or 0, None
        page, more_after = zoned_schedules(self._session, after)
        self._correct(page)
        self._after = more_after
        if more_after is None:
            self._look_at = time.monotonic() + _REPEAT_SECONDS
        return more_after is not None

    def _correct(self, page: list[ZonedSchedule]) -> None:
        timings = self._decisions.timings([schedule.owner_version for schedule in page])
        corrections = []
        for schedule in page:
            timing = timings.get(schedule.owner_version)
            if timing is None:
                continue
            slot = timing.next_slot(schedule.watermark)
            if slot != schedule.next_slot:
                corrections.append(NextSlot(schedule, slot, timing.due_time(slot)))
        if corrections and (corrected := correct_next_slots(self._session, corrections)):
            _log.warning("next_slots_moved", schedules=corrected)

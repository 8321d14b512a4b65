"""From (version, watermark) of a schedule to what becomes of its slots. Reads versions, decides; stores nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from slotkeeper.decisions import decide_due, timing_of_version
from slotkeeper.store.connection import Session
from slotkeeper.store.ticker import DecidedSchedule, DueSchedule, versions
from slotkeeper.store.versions import OwnerVersion
from slotkeeper.timing import Timing

#: Compiled timings kept by (owner, version): about 2 kB each.
_KEPT = 200_000


class DecisionMaker:
    """Decides the due slots of schedules; keeps the compiled timing of every version that it has seen."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._timings: OrderedDict[OwnerVersion, Timing] = OrderedDict()

    def decide(self, due: Sequence[DueSchedule]) -> list[DecidedSchedule]:
        """Every slot of ``due`` whose due time has come; raises DatabaseUnavailable and the like."""
        missing = [key for schedule in due if (key := (schedule.owner, schedule.version)) not in self._timings]
        if missing:
            for key, stored in versions(self._session, missing).items():
                self._timings[key] = timing_of_version(stored)
        decided = [decide_due(schedule, self._timing(schedule)) for schedule in due]
        while len(self._timings) > _KEPT:
            self._timings.popitem(last=False)
        return decided

    def _timing(self, schedule: DueSchedule) -> Timing:
        key = (schedule.owner, schedule.version)
        self._timings.move_to_end(key)
        return self._timings[key]

"""From (version, watermark) of a schedule to what becomes of its slots. Reads versions, decides; stores nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import structlog

from slotkeeper.decisions import decide_due, timing_of_version
from slotkeeper.errors import SlotkeeperError
from slotkeeper.store.connection import Session
from slotkeeper.store.ticker import DecidedSchedule, DueSchedule, versions
from slotkeeper.store.versions import OwnerVersion, StoredVersion
from slotkeeper.timing import Timing

_log = structlog.stdlib.get_logger()

#: Compiled timings kept by (owner, version): about 2 kB each.
_KEPT = 200_000


class DecisionMaker:
    """Decides the due slots of schedules; keeps the compiled timing of every version that it has seen."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._timings: OrderedDict[OwnerVersion, Timing] = OrderedDict()
        self._complained: dict[str, str] = {}

    def decide(self, due: Sequence[DueSchedule]) -> list[DecidedSchedule]:
        """Every slot of ``due`` whose due time has come; raises DatabaseUnavailable and the like.

        A schedule that this version cannot read (a newer controller stored it, or our tz database lacks its zone) is
        left out: it must not stop the others.
        """
        self.learn([(schedule.owner, schedule.version) for schedule in due])
        decided = [
            decide_due(schedule, self._timing(schedule))
            for schedule in due
            if (schedule.owner, schedule.version) in self._timings
        ]
        while len(self._timings) > _KEPT:
            self._timings.popitem(last=False)
        return decided

    def learn(self, keys: Sequence[OwnerVersion]) -> None:
        """Compiles what is not known yet; a version that cannot be read stays unknown."""
        missing = [key for key in keys if key not in self._timings]
        if not missing:
            return
        for key, stored in versions(self._session, missing).items():
            try:
                self._timings[key] = timing_of_version(stored)
            except SlotkeeperError as error:
                self._complain(stored, error)

    def timings(self, keys: Sequence[OwnerVersion]) -> dict[OwnerVersion, Timing]:
        """The timings of these versions, as far as they can be read."""
        self.learn(keys)
        return {key: self._timings[key] for key in keys if key in self._timings}

    def _complain(self, stored: StoredVersion, error: SlotkeeperError) -> None:
        name = f"{stored.namespace}/{stored.name}"
        if self._complained.get(name) != str(error):
            self._complained[name] = str(error)
            _log.error("schedule_unreadable", schedule=name, error=str(error))

    def _timing(self, schedule: DueSchedule) -> Timing:
        key = (schedule.owner, schedule.version)
        self._timings.move_to_end(key)
        return self._timings[key]

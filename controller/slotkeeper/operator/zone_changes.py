"""Tells which schedules another release of the tz database moves: the rules that decided so far, against those in use.

An object's status says by which release its slots were last decided; what that release said of the zone is kept in
the database. Not for slots themselves, which the timetable in use decides alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from slotkeeper.operator.applied import Applied
from slotkeeper.operator.conditions import rfc3339
from slotkeeper.store.connection import Session
from slotkeeper.store.zones import kept_rules, note_rules
from slotkeeper.timetable import TZDATA_VERSION, MovedSlots, ZoneRules, moved_slots, zone_rules


class ZoneChanges:
    """For one thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._noted: set[str] = set()
        self._former: dict[tuple[str, str], ZoneRules | None] = {}

    def note(self, applied: Iterable[Applied], now: datetime) -> None:
        """Keeps what the release in use says of the zones of these schedules."""
        zones = {one.timing.timetable.zone for one in applied if one.timing is not None}
        for zone in sorted(zones - self._noted):
            note_rules(self._session, TZDATA_VERSION, zone_rules(zone, now))
            self._noted.add(zone)

    def told(self, applied: Applied, release: object, now: datetime) -> str | None:
        """A sentence about the slots that were decided by ``release`` until now and move; None: none do, or
        nobody knows what that release said.
        """
        if applied.timing is None or applied.suspended or not isinstance(release, str) or release == TZDATA_VERSION:
            return None
        timetable = applied.timing.timetable
        former = self._rules(timetable.zone, release)
        moved = None if former is None else moved_slots(timetable, former, now)
        return None if moved is None else _sentence(moved, release)

    def _rules(self, zone: str, release: str) -> ZoneRules | None:
        key = (zone, release)
        if key not in self._former:
            self._former[key] = kept_rules(self._session, zone, release)
        return self._former[key]


def _sentence(moved: MovedSlots, release: str) -> str:
    says = f"the tz database {TZDATA_VERSION} (before: {release}) has other rules for {moved.zone}"
    if moved.was is None:
        return f"{says}: the first slot that is new is {_shown(moved.becomes)}"
    if moved.becomes is None:
        return f"{says}: the first slot that is no more is {_shown(moved.was)}"
    return f"{says}: the first slot that moves was {_shown(moved.was)} and is {_shown(moved.becomes)}"


def _shown(slot: datetime | None) -> str:
    return "" if slot is None else rfc3339(slot)

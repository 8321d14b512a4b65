"""Statements about time zones whose rules change: what a release said, and next slots that another one moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from slotkeeper.store.connection import Session
from slotkeeper.store.versions import OwnerVersion
from slotkeeper.timetable import ZoneRules

_MINUTE = timedelta(minutes=1)
#: Schedules looked at in one call: a slot that falls due meanwhile waits for it.
_PAGE = 200


@dataclass(frozen=True, slots=True)
class ZonedSchedule:
    """An active schedule whose next slot depends on a zone's rules; ``next_slot`` is what is stored."""

    id: int
    owner: int
    version: int
    watermark: datetime
    next_slot: datetime | None

    @property
    def owner_version(self) -> OwnerVersion:
        """The key of what it says, for ``versions``."""
        return self.owner, self.version


@dataclass(frozen=True, slots=True)
class NextSlot:
    """The next slot of a schedule, computed anew, and its due time."""

    schedule: ZonedSchedule
    slot: datetime | None
    due: datetime | None


def note_rules(session: Session, version: str, rules: ZoneRules) -> None:
    """Keeps what this release of the tz database says of a zone; the first note of a zone and release stays."""
    session.call(
        "zones.note_rules", zone=rules.zone, version=version, since=rules.since, until=rules.until,
        instants=[at for at, _ in rules.changes], offset_minutes=[offset // _MINUTE for _, offset in rules.changes],
    )  # fmt: skip


def kept_rules(session: Session, zone: str, version: str) -> ZoneRules | None:
    """What that release said of the zone; None: nothing was kept."""
    for row in session.call("zones.rules", zone=zone, version=version):
        offsets = (minutes * _MINUTE for minutes in row.offset_minutes)
        return ZoneRules(row.zone, row.since, row.until, tuple(zip(row.instants, offsets, strict=True)))
    return None


def zoned_schedules(session: Session, after: int) -> tuple[list[ZonedSchedule], int | None]:
    """Of the next schedules by id those that are active and have cron expressions in a zone other than UTC.

    Also where the next look begins (``after``, at first 0); None when these were the last.
    """
    rows = session.call("zones.schedules", after=after, limit=_PAGE)
    return [ZonedSchedule(*row[:-1]) for row in rows if row.zoned], rows[-1].id if len(rows) == _PAGE else None


def correct_next_slots(session: Session, corrections: Sequence[NextSlot]) -> int:
    """Stores them where the schedule has not moved since it was read; returns how many."""
    corrected: int = session.call(
        "zones.correct",
        ids=[correction.schedule.id for correction in corrections],
        versions=[correction.schedule.version for correction in corrections],
        watermarks=[correction.schedule.watermark for correction in corrections],
        next_slots=[correction.slot for correction in corrections],
        next_dues=[correction.due for correction in corrections],
    )[0].corrected
    return corrected

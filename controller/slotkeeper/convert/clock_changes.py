"""Where a JobSchedule's times and a CronJob's part: the nights on which the clock changes.

A CronJob fires whenever the clock shows a minute that it names: never in a gap, twice in an overlap. That is
what ``daylightSaving: {skippedTime: Skip, repeatedTime: RunTwice}`` says, so both sides are timetables here.
Also what a zone that an annotation names would make of times written in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from slotkeeper.convert.conversion import Note, NoteKind
from slotkeeper.errors import UnknownTimeZone
from slotkeeper.timetable import (
    ClockChange,
    RepeatedTime,
    SkippedTime,
    Timetable,
    cron_timetable,
    load_zone,
    parse_expression,
)

#: The settings under which a JobSchedule has a CronJob's times.
AS_A_CRONJOB = {"skippedTime": str(SkippedTime.SKIP), "repeatedTime": str(RepeatedTime.RUN_TWICE)}

#: Zones whose clock no law changes.
WITHOUT_CHANGES = ("Etc/UTC", "UTC")

_HORIZON = timedelta(days=730)
# More than any zone has in two years.
_MOST_CHANGES = 16
_AROUND = timedelta(days=2)
_LISTED = 3

_WALL_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_MOST_SLOTS = 400


def cronjob_timetable(expressions: Sequence[str], zone: str) -> Timetable:
    """The times of a CronJob with these expressions, each of which a JobSchedule accepts."""
    return cron_timetable(expressions, zone, skipped_time=SkippedTime.SKIP, repeated_time=RepeatedTime.RUN_TWICE)


def may_be_touched(expressions: Sequence[str], zone: str) -> bool:
    """Whether a change of the clock could make a difference between the two, one that no law foresees yet included."""
    return zone not in WITHOUT_CHANGES and not all(parse_expression(text).follows_clock for text in expressions)


def differences(expressions: Sequence[str], zone: str, now: datetime) -> list[Note]:
    """A note for each change of the clock within two years of ``now`` at which the two part, and how to keep them
    together; empty if they do not part.
    """
    if all(parse_expression(text).follows_clock for text in expressions):
        return []
    theirs, ours = cronjob_timetable(expressions, zone), cron_timetable(expressions, zone)
    changes = [change for change in ours.clock_changes(now, _MOST_CHANGES) if change.at <= now + _HORIZON]
    notes = [
        Note(NoteKind.CHANGED, "spec.schedule", told)
        for told in (_told(change, theirs, ours) for change in changes)
        if told is not None
    ]
    if notes:
        keep = ", ".join(f"{name}: {word}" for name, word in AS_A_CRONJOB.items())
        text = (
            f"daylightSaving: {{{keep}}} would keep the CronJob's times when the clock changes (--keep-clock-changes)"
        )
        notes.append(Note(NoteKind.NOTE, "spec.schedule", text, shared=True))
    return notes


def _told(change: ClockChange, theirs: Timetable, ours: Timetable) -> str | None:
    around = change.at - _AROUND, change.at + _AROUND
    without, with_ = set(theirs.window(*around)), set(ours.window(*around))
    lost, added = sorted(without - with_), sorted(with_ - without)
    clauses = []
    if added:
        clauses.append(f"the CronJob has no run at {_list(added)}")
    if lost:
        clauses.append(f"the CronJob runs also at {_list(lost)}")
    return f"{change.told}; {' and '.join(clauses)}" if clauses else None


def _list(slots: list[datetime]) -> str:
    told = ", ".join(f"{slot:%Y-%m-%dT%H:%MZ}" for slot in slots[:_LISTED])
    return told if len(slots) <= _LISTED else f"{told} and {len(slots) - _LISTED} more"


def hint_of_a_zone(expression: str, annotations: Mapping[str, object], now: datetime) -> Note | None:
    """For a daily time in UTC beside an annotation that names a zone: what the clock there shows over a year.

    None unless the annotation's zone moves the one time of day that ``expression`` names.
    """
    named = next(((key, text) for key, text in annotations.items() if _is_zone(text)), None)
    if named is None or len(parse_expression(expression).minutes_of_day) != 1:
        return None
    key, zone = named
    table = cron_timetable([expression], str(zone))
    slots = cron_timetable([expression]).window(now, now + timedelta(days=366), limit=_MOST_SLOTS)
    local: dict[str, datetime] = {}
    for slot in slots:
        local.setdefault(f"{table.local(slot):%H:%M}", slot)
    if len(local) < 2:
        return None
    times = ", ".join(f"{time} (from {slot:%Y-%m-%d})" for time, slot in local.items())
    wanted = next((time for time in map(_wall_time, annotations.values()) if time in local), None)
    instead = "write the local time and timeZone instead if it is meant"
    if wanted is not None and all(table.local(slot).date() == slot.date() for slot in slots):
        hour, minute = wanted.split(":")
        fields = " ".join([str(int(minute)), str(int(hour)), *expression.split()[2:]])
        instead = f'cron: ["{fields}"] with timeZone: {zone} would keep {wanted}'
    return Note(
        NoteKind.WARNING,
        f"metadata.annotations.{key}",
        f"it names {zone}, where this fires at {times}; {instead}",
    )


def _is_zone(value: object) -> bool:
    try:
        return isinstance(value, str) and "/" in value and load_zone(value) is not None
    except UnknownTimeZone:
        return False


def _wall_time(value: object) -> str | None:
    match = _WALL_TIME.fullmatch(value) if isinstance(value, str) else None
    return f"{int(match[1]):02}:{match[2]}" if match else None

"""What an edit would change: slots added and removed, fields that differ, and what would fire at once.

An edit never fires retroactively: slots at or before it are decided under the old spec. So nothing fires now, but for
a new key of the annotation ``slotkeeper.dev/trigger``, which asks for a run by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from slotkeeper.foresight.schedule import Schedule
from slotkeeper.foresight.upcoming import Standstill, UpcomingSlot, shown_slots, upcoming
from slotkeeper.spec import canonical, timing_of
from slotkeeper.timing import Timing

Change = Literal["Created", "Deleted", "Edited", "Unchanged"]

_STORED = "runs that are stored keep the old one"
_FROM_NOW = "for slots that fall due from now on"
_MEANING = {
    **dict.fromkeys(
        ("task", "command", "http", "job", "payload", "retry", "attemptDeadlineSeconds", "activeDeadlineSeconds"),
        _STORED,
    ),
    **dict.fromkeys(("queue", "priority"), "runs that are stored and not running move, too"),
    **dict.fromkeys(("overlapPolicy", "catchUp", "startingDeadlineSeconds"), _FROM_NOW),
    "maxSuccessAgeSeconds": "for the object's health alone",
}


@dataclass(frozen=True, slots=True)
class SlotDifference:
    """One slot to come. ``due_before``: of a slot that is kept, its due time so far where the edit moves it."""

    kind: Literal["added", "removed", "kept"]
    slot: UpcomingSlot
    due_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field of the spec, as JSON values, None where it is unset; ``meaning``: for whom the new value counts."""

    field: str
    old: object
    new: object
    meaning: str


@dataclass(frozen=True, slots=True)
class Difference:
    """What an edit of one schedule, its creation or its deletion changes, if it were made now.

    ``slots``: the first of those that either spec has. ``standstills``: why the old and the new spec have none.
    ``decided``: slots that have come and, for their spread, are not yet due: they keep their old due time.
    ``triggered``: the key of the manual run that would be made at once; else nothing fires now.
    """

    key: tuple[str, str]
    change: Change
    slots: tuple[SlotDifference, ...]
    fields: tuple[FieldDifference, ...]
    standstills: tuple[Standstill | None, Standstill | None]
    decided: tuple[UpcomingSlot, ...]
    triggered: str | None

    def of(self, kind: str) -> tuple[SlotDifference, ...]:
        """The slots of one kind."""
        return tuple(slot for slot in self.slots if slot.kind == kind)


def difference(
    old: Schedule | None, new: Schedule | None, *, now: datetime, count: int, zone: str | None = None
) -> Difference:
    """From ``old`` to ``new``, of which one may be absent, over the next ``count`` slots of either.

    Raises ValueError when both are absent, and UnknownTimeZone for a zone that there is not.
    """
    either = new or old
    if either is None:
        raise ValueError("there is nothing to compare")
    if old and new and old.held is not None:
        new = replace(new, held=old.held)  # a hold outlives every edit
    fields = _fields(old, new) if old and new else ()
    triggered = new.trigger_key if old and new and new.trigger_key != old.trigger_key else None
    change: Change = "Created" if old is None else "Deleted" if new is None else "Edited"
    if change == "Edited" and not fields and triggered is None:
        change = "Unchanged"
    begin = now + timedelta(microseconds=1)  # what has come at this instant is the old spec's
    sides = [_side(schedule, begin, count, zone) for schedule in (old, new)]
    return Difference(
        either.key,
        change,
        _slots(sides[0][0], sides[1][0], count),
        fields,
        (sides[0][1], sides[1][1]),
        () if old is None or new is None else _decided(old, now, zone),
        triggered,
    )


def moves_slots(old: Schedule, new: Schedule) -> bool:
    """Whether anything that decides slots or their due times differs."""
    return timing_of(old.spec) != timing_of(new.spec)


def _side(
    schedule: Schedule | None, begin: datetime, count: int, zone: str | None
) -> tuple[tuple[UpcomingSlot, ...], Standstill | None]:
    if schedule is None:
        return (), None
    found = upcoming(schedule, begin=begin, count=count, zone=zone)
    return found.slots, found.standstill


def _slots(old: tuple[UpcomingSlot, ...], new: tuple[UpcomingSlot, ...], count: int) -> tuple[SlotDifference, ...]:
    """The first ``count`` of both together: no slot among them is beyond what either side was asked for."""
    before = {upcoming.slot: upcoming for upcoming in old}
    after = {upcoming.slot: upcoming for upcoming in new}
    found = []
    for slot in sorted(before.keys() | after.keys())[:count]:
        if slot not in before:
            found.append(SlotDifference("added", after[slot]))
        elif slot not in after:
            found.append(SlotDifference("removed", before[slot]))
        else:
            moved = before[slot].due != after[slot].due
            found.append(SlotDifference("kept", after[slot], before[slot].due if moved else None))
    return tuple(found)


def _fields(old: Schedule, new: Schedule) -> tuple[FieldDifference, ...]:
    before, after = canonical(old.spec), canonical(new.spec)
    moved = moves_slots(old, new)
    timing = "decides slots, from now on" if moved else "moves no slot"
    names = [*before, *(name for name in after if name not in before)]
    return tuple(
        FieldDifference(f"spec.{name}", before.get(name), after.get(name), _MEANING.get(name, timing))
        for name in names
        if before.get(name) != after.get(name)
    )


def _decided(old: Schedule, now: datetime, zone: str | None) -> tuple[UpcomingSlot, ...]:
    """Only of a schedule in force: of a file nobody knows since when it has been."""
    if old.decided_until is None or old.held is not None:
        return ()
    timing: Timing = old.timing
    after = max(min(old.decided_until, now), now - timing.offset)
    return shown_slots(
        timing, [run.slot for run in timing.still_to_come(after=after, until=now)], before=after, zone=zone
    )

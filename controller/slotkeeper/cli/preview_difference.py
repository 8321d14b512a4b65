"""How `slotkeeper preview --diff` tells what an edit would change: lines for people, JSON for programs."""

from __future__ import annotations

from typing import Any

from slotkeeper.cli.slot_output import aligned, slot_json
from slotkeeper.foresight import Difference, FieldDifference, SlotDifference
from slotkeeper.foresight.wording import clock_text, rfc3339
from slotkeeper.spec.wording import shown

_SIGNS = {"added": "+", "removed": "-", "kept": " "}
_CHANGES = {
    "Created": "new: a schedule of this name that was deleted before goes on from where it was",
    "Deleted": "gone: when it is deleted, its runs that are not running are cancelled (ScheduleDeleted)",
    "Edited": "edited",
    "Unchanged": "unchanged",
}
NOTHING = "nothing"


def difference_lines(found: Difference) -> list[str]:
    """For a terminal: what would fire, then slots, then fields."""
    return [
        f"{'/'.join(found.key)}: {_CHANGES[found.change]}",
        f"fires now: {_fires_now(found)}",
        *(
            f"still comes, under the old spec: {rfc3339(slot.slot)}, due {rfc3339(slot.due)}"
            for slot in found.decided
        ),
        *_standstills(found),
        *_slots(found),
        *(_field(difference) for difference in found.fields),
    ]  # fmt: skip


def difference_json(found: Difference) -> dict[str, Any]:
    """The same for programs; ``firesNow`` is a list of what would, empty but for a run by hand."""
    return {
        "namespace": found.key[0],
        "name": found.key[1],
        "change": found.change,
        "firesNow": [] if found.triggered is None else [{"trigger": "Manual", "key": found.triggered}],
        **{kind: [_slot_json(slot) for slot in found.of(kind)] for kind in _SIGNS},
        "stillToCome": [slot_json(slot) for slot in found.decided],
        "fields": [
            {"field": field.field, "old": field.old, "new": field.new, "meaning": field.meaning}
            for field in found.fields
        ],
    }  # fmt: skip


def _fires_now(found: Difference) -> str:
    if found.triggered is None:
        return NOTHING
    return f"one run by hand, for the new key {found.triggered!r} of the annotation slotkeeper.dev/trigger"


def _standstills(found: Difference) -> list[str]:
    return [
        f"{side} {still.reason}: {still.message}"
        for side, still in zip(("old:", "new:"), found.standstills, strict=True)
        if still is not None
    ]


def _slots(found: Difference) -> list[str]:
    if not found.slots:
        return []
    added, removed, kept = (found.of(kind) for kind in ("added", "removed", "kept"))
    moved = [slot for slot in kept if slot.due_before is not None]
    if not (added or removed or moved):
        return [f"slots: none added, none removed; the next one stays {rfc3339(kept[0].slot.slot)}"]
    until = rfc3339(found.slots[-1].slot.slot)
    return [
        f"slots until {until}: {len(added)} added, {len(removed)} removed, {len(kept)} kept",
        *aligned([_row(slot) for slot in found.slots]),
    ]


def _row(found: SlotDifference) -> list[str]:
    slot = found.slot
    notes = [slot.note] if slot.note else []
    if found.due_before is not None:
        notes.append(f"due {rfc3339(slot.due)} instead of {rfc3339(found.due_before)}")
    return [f"{_SIGNS[found.kind]} {rfc3339(slot.slot)}", clock_text(slot.local), "; ".join(notes)]


def _field(field: FieldDifference) -> str:
    old, new = ("unset" if value is None else shown(value) for value in (field.old, field.new))
    return f"{field.field}: {old} becomes {new}: {field.meaning}"


def _slot_json(found: SlotDifference) -> dict[str, Any]:
    told = slot_json(found.slot)
    if found.due_before is not None:
        told["dueBefore"] = rfc3339(found.due_before)
    return told

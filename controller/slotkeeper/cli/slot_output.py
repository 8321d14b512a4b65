"""Slots to come as JSON and as lines of a table: for `preview` and its `--diff`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slotkeeper.foresight import UpcomingSlot
from slotkeeper.foresight.wording import rfc3339


def slot_json(slot: UpcomingSlot) -> dict[str, Any]:
    """``slot`` in RFC 3339 UTC, ``local`` with its offset, ``note`` or null; ``due`` only where it is later."""
    due = {"due": rfc3339(slot.due)} if slot.due != slot.slot else {}
    return {"slot": rfc3339(slot.slot), "local": slot.local.isoformat(timespec="seconds"), "note": slot.note, **due}


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines, columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

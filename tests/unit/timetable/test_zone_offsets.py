"""Stretches of constant offset: what the clock repeats and skips, however the years are cut up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from slotkeeper.timetable import load_zone, zone_offsets
from slotkeeper.timetable.zone_offsets import ZoneOffsets
from unit.timetable.oracle import utc

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _minute(text: str) -> int:
    return (utc(text) - EPOCH) // timedelta(minutes=1)


def _wall(text: str) -> int:
    return _minute(text + "Z")


@pytest.mark.parametrize(
    ("zone", "change", "offset", "fresh", "skipped_from"),
    [
        ("Europe/Berlin", "2026-03-29T01:00Z", 120, "2026-03-29T03:00", "2026-03-29T02:00"),
        ("Europe/Berlin", "2026-10-25T01:00Z", 60, "2026-10-25T03:00", "2026-10-25T02:00"),
        ("Australia/Lord_Howe", "2026-10-03T15:30Z", 660, "2026-10-04T02:30", "2026-10-04T02:00"),
        ("Australia/Lord_Howe", "2026-04-04T15:00Z", 630, "2026-04-05T02:00", "2026-04-05T01:30"),
        # A day that never was is no gap to make up for; the clock simply goes on.
        ("Pacific/Apia", "2011-12-30T10:00Z", 840, "2011-12-31T00:00", "2011-12-31T00:00"),
        # -0:44:30 until 00:44:30Z, then UTC: the first whole minute of the new offset.
        ("Africa/Monrovia", "1972-01-07T00:45Z", 0, "1972-01-07T00:45", "1972-01-07T00:00"),
    ],
)
def test_the_stretch_after_a_change(zone: str, change: str, offset: int, fresh: str, skipped_from: str) -> None:
    offsets = ZoneOffsets(load_zone(zone))
    after, before = offsets.stretch_at(_minute(change)), offsets.stretch_at(_minute(change) - 1)
    assert after.start == before.end == _minute(change)
    assert (after.offset, after.fresh, after.skipped_from) == (offset, _wall(fresh), _wall(skipped_from))


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/Berlin", "2026-03-29T01:00Z"),
        ("Europe/Berlin", "2026-10-25T01:00Z"),
        ("Antarctica/Troll", "2026-10-25T01:00Z"),
        ("Antarctica/Troll", "2026-03-29T01:00Z"),
    ],
)
def test_where_a_year_is_cut_changes_nothing(monkeypatch: pytest.MonkeyPatch, zone: str, change: str) -> None:
    """With pieces of 32 minutes a cut falls into every overlap, as one between years could."""

    def told(offsets: ZoneOffsets) -> list[tuple[int, bool, int]]:
        minutes = range(_minute(change) - 200, _minute(change) + 200)
        stretches = [(minute, offsets.stretch_at(minute)) for minute in minutes]
        return [
            (s.offset, minute + s.offset < s.fresh, s.start + s.offset - s.skipped_from)
            if minute == s.start and s.start + s.offset - s.skipped_from
            else (s.offset, minute + s.offset < s.fresh, 0)
            for minute, s in stretches
        ]

    whole = told(ZoneOffsets(load_zone(zone)))
    monkeypatch.setattr(zone_offsets, "_CHUNK_BITS", 5)
    monkeypatch.setattr(zone_offsets, "_CHUNK", 32)
    assert told(ZoneOffsets(load_zone(zone))) == whole

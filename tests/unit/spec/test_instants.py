"""Instants in RFC 3339: read as the API server reads them, written in one way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.spec.instants import format_instant, parse_instant


@given(
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),  # noqa: DTZ001
    st.integers(-14 * 60, 14 * 60),
)
def test_written_and_read_back(local: datetime, minutes: int) -> None:
    instant = local.replace(tzinfo=UTC)
    assert parse_instant(format_instant(instant)) == instant
    offset = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    assert parse_instant(local.isoformat() + offset) == instant - timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01T00:00:00-00:00", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01T00:00:00+24:00", datetime(2025, 12, 31, tzinfo=UTC)),
        ("2026-01-01T00:00:00,5Z", datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-01-01T00:00:00.000000000Z", datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_read(text: str, expected: datetime) -> None:
    assert parse_instant(text) == expected


@pytest.mark.parametrize("fraction", [".5", ".0000001", ".9999999", ".000000000000000001"])
def test_a_fraction_never_passes_for_a_whole_second(fraction: str) -> None:
    assert parse_instant(f"2026-01-01T00:00:00{fraction}Z").microsecond != 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-01-01t00:00:00Z",
        "2026-01-01T00:00:00z",
        "2026-01-01T00:00:00+25:00",
        "2026-01-01T00:00:00+01:60",
        "2026-01-01T00:00:60Z",
        "2026-02-29T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59-01:00",
        "2026-01-01T00:00:00Z\n",
        "２026-01-01T00:00:00Z",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_instant(text)


def test_written_in_utc() -> None:
    assert format_instant(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00Z"

"""How instants and durations are written for people who look ahead. Text only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def rfc3339(instant: datetime) -> str:
    """``instant`` in UTC to the second, as Kubernetes writes times."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock_text(there: datetime) -> str:
    """An aware instant on its own clock, with weekday and offset: ``Sun 2027-03-28 03:00:00+02:00``."""
    return f"{there:%a %Y-%m-%d %H:%M:%S}{offset(there)}"


def offset(there: datetime) -> str:
    """The offset from UTC of an aware datetime: ``+02:00``."""
    text = there.strftime("%z")
    return f"{text[:3]}:{text[3:5]}"


def duration(length: timedelta | int) -> str:
    """A length of whole seconds, exactly: ``15 min 30 s``."""
    seconds = length if isinstance(length, int) else int(length.total_seconds())
    parts = []
    for size, unit in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts) or "0 s"

"""Instants as the API writes them: RFC 3339 text to an aware datetime in UTC, and back.

Not for local times and not for slots; those are the timetable's.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

# What the API server lets through once a rule has read the value: narrower than the schema's date-time (which
# takes "t" and "z" and any offset), wider than RFC 3339 (which knows no comma and no offset of 24 hours).
_INSTANT = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:[.,](\d+))?(?:Z|([+-])(\d{2}):(\d{2}))", re.ASCII
)


def parse_instant(text: str) -> datetime:
    """The instant that ``text`` names, in UTC. Raises ValueError, saying why, if it names none.

    A fraction is kept to the microsecond, and one that is finer never passes for a whole second.
    """
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise ValueError("not an instant in RFC 3339")
    *numbers, fraction, sign, hours, minutes = match.groups()
    year, month, day, hour, minute, second = (int(number) for number in numbers)
    if sign and (int(hours) > 24 or int(minutes) > 59):
        raise ValueError("its offset from UTC is not a time of day")
    offset = timedelta(hours=int(hours), minutes=int(minutes)) if sign else timedelta()
    local = datetime(year, month, day, hour, minute, second, _microseconds(fraction or ""), tzinfo=UTC)
    try:
        return local + offset if sign == "-" else local - offset
    except OverflowError:
        raise ValueError("its year in UTC is outside 1 to 9999") from None


def _microseconds(fraction: str) -> int:
    # Beyond six digits only whether there is anything at all counts.
    digits = fraction[:6].ljust(6, "0")
    return min(int(digits) + (1 if fraction[6:].strip("0") else 0), 999_999)


def format_instant(instant: datetime) -> str:
    """``instant`` as the API writes it: RFC 3339 in UTC with a ``Z``, a fraction only where there is one."""
    text = instant.astimezone(UTC).isoformat()
    return text.removesuffix("+00:00") + "Z"

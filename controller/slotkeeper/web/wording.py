"""How instants and durations are written on a page. Pure: "now" is an argument, and it is the database's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def instant(moment: datetime) -> str:
    """``moment`` in UTC to the second, without saying so: the page says it once."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def rfc3339(moment: datetime) -> str:
    """``moment`` in UTC as machines read it, with a fraction where there is one."""
    return moment.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


def local(moment: datetime, zone: tzinfo) -> str:
    """``moment`` on the clock of ``zone``, with the offset that holds then."""
    there = moment.astimezone(zone)
    return f"{there:%Y-%m-%d %H:%M:%S} {offset(there)}"


def offset(there: datetime) -> str:
    """The offset from UTC of an aware datetime: ``+02:00``."""
    text = there.strftime("%z")
    return f"{text[:3]}:{text[3:5]}"


def duration(length: timedelta | float) -> str:
    """A length in its two largest units: ``2 h 5 min``; below a minute in seconds."""
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds)
    for place, (size, unit) in enumerate(_UNITS):
        if whole >= size:
            count, rest = divmod(whole, size)
            smaller, name = _UNITS[place + 1]
            return f"{count} {unit} {rest // smaller} {name}" if rest >= smaller else f"{count} {unit}"
    return "0 s"


def relative(moment: datetime, now: datetime) -> str:
    """How far ``moment`` is from ``now``: ``in 3 min``, ``2 h 5 min ago``, ``now``."""
    seconds = (moment - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    length = duration(float(abs(int(seconds)))).replace(".0 s", " s")
    return f"in {length}" if seconds > 0 else f"{length} ago"

"""Time zones by IANA name, read from the bundled ``tzdata`` package and from nowhere else.

``zoneinfo.ZoneInfo(name)`` prefers the machine's own zone files, which may be years old: two replicas on
two images would then disagree about a slot. So the bytes come from the package here, with a cache of our
own, whatever ``PYTHONTZPATH`` says. Not for arithmetic: that is `zone_offsets`.
"""

from __future__ import annotations

import difflib
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]

from slotkeeper.errors import UnknownTimeZone

TZDATA_VERSION: str = tzdata.IANA_VERSION
"""Release of the tz database that decides about slots, as IANA names it (``2026f``)."""

_LONGEST_NAME = 64

# In the list of the tz database, yet no place: it stands for "nobody has set a zone".
_PLACEHOLDERS = frozenset({"Factory"})

# Names that elsewhere mean "whatever this machine is set to".
_MACHINE_NAMES = frozenset({"local", "localtime", "posixrules", "factory", "system"})


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    listed = resources.files("tzdata").joinpath("zones").read_text(encoding="ascii")
    return frozenset(listed.split()) - _PLACEHOLDERS


@lru_cache(maxsize=1)
def _names_by_lower_case() -> dict[str, str]:
    names = {name.lower(): name for name in sorted(_zone_names())}
    # A city alone is what people write most often; a name of its own ("Singapore") stays itself.
    for name in sorted(_zone_names()):
        names.setdefault(name.rpartition("/")[2].lower(), name)
    return names


def load_zone(name: str, field: str = "spec.timeZone") -> ZoneInfo:
    """Return the zone with exactly this IANA name; aliases (``US/Pacific``) are zones like any other.

    Raises `UnknownTimeZone` for anything else: another letter case, a path, a name that means the machine's
    own setting. The error suggests the nearest name. There is no fallback to UTC or to local time.
    """
    # The list of names is the gate: a path that leaves the package is in no list.
    if name in _zone_names():
        return _zone_from_package(name)
    raise UnknownTimeZone(field, _problem(name), instead=_suggestion(name))


@lru_cache(maxsize=1024)
def _zone_from_package(name: str) -> ZoneInfo:
    source = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with source.open("rb") as stream:
        return ZoneInfo.from_file(stream, key=name)


def _problem(name: str) -> str:
    if not name.strip():
        return f"{name!r} is empty"
    if name.lower() in _MACHINE_NAMES:
        return f"{name!r} would depend on the machine it is read on"
    shown = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…"
    return f"{shown!r} is not a zone of the tz database {TZDATA_VERSION}"


def _suggestion(name: str) -> str:
    wanted = name.strip().replace(" ", "_").lower()[:_LONGEST_NAME]
    if not wanted or wanted in _MACHINE_NAMES:
        return "write an IANA name such as 'Etc/UTC' or 'Europe/Berlin'"
    names = _names_by_lower_case()
    near = [wanted] if wanted in names else difflib.get_close_matches(wanted, names, n=1, cutoff=0.75)
    if near:
        return f"write {names[near[0]]!r}"
    return "write an IANA name such as 'Europe/Berlin', in exactly this spelling"

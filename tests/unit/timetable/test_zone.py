"""Zones by name, from the bundled package alone."""

from __future__ import annotations

import struct
import zoneinfo
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import pairwise
from pathlib import Path

import pytest
import tzdata

from slotkeeper.errors import InvalidField, UnknownTimeZone
from slotkeeper.timetable import TZDATA_VERSION, load_zone
from slotkeeper.timetable.zone import _zone_from_package, _zone_names
from slotkeeper.timetable.zone_offsets import _LOOK_EVERY
from unit.timetable.oracle import utc


def test_every_zone_of_the_database_loads() -> None:
    names = _zone_names()
    assert len(names) > 500
    for name in names:
        assert load_zone(name).key == name


@pytest.mark.parametrize(
    ("name", "problem", "instead"),
    [
        ("europe/berlin", "not a zone", "write 'Europe/Berlin'"),
        ("Europe/Berlin ", "not a zone", "write 'Europe/Berlin'"),
        ("Berlin", "not a zone", "write 'Europe/Berlin'"),
        ("Europe/Berln", "not a zone", "write 'Europe/Berlin'"),
        ("America/New York", "not a zone", "write 'America/New_York'"),
        ("utc", "not a zone", "write 'UTC'"),
        ("Mars/Olympus", "'Mars/Olympus' is not a zone of the tz database " + TZDATA_VERSION, "IANA name"),
        ("", "empty", "'Etc/UTC'"),
        ("  ", "empty", "'Etc/UTC'"),
        ("Local", "depend on the machine", "'Etc/UTC'"),
        ("localtime", "depend on the machine", "'Etc/UTC'"),
        ("posixrules", "depend on the machine", "'Etc/UTC'"),
        ("Factory", "depend on the machine", "'Etc/UTC'"),
        ("../zoneinfo/Etc/UTC", "not a zone", "IANA name"),
        ("/etc/localtime", "not a zone", "IANA name"),
        ("Europe/../Etc/UTC", "not a zone", "write"),
        ("Europe", "not a zone", "IANA name"),
        ("Europe/__init__.py", "not a zone", "write"),
        ("x" * 5000, "…", "IANA name"),
    ],
)
def test_other_names_are_refused(name: str, problem: str, instead: str) -> None:
    with pytest.raises(UnknownTimeZone) as caught:
        load_zone(name)
    assert caught.value.field == "spec.timeZone"
    assert problem in caught.value.problem
    assert instead in caught.value.instead
    assert isinstance(caught.value, InvalidField)


def test_the_machines_zone_files_do_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # A machine that calls UTC Berlin: zoneinfo believes it, we do not.
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "Berlin").write_bytes(_file_of("Etc/UTC").read_bytes())
    zoneinfo.reset_tzpath([tmp_path])
    try:
        fooled = zoneinfo.ZoneInfo.no_cache("Europe/Berlin")
        _zone_from_package.cache_clear()
        berlin = load_zone("Europe/Berlin")
    finally:
        zoneinfo.reset_tzpath()
    summer = utc("2026-07-01T00:00Z")
    assert f"{summer.astimezone(fooled):%H:%M}" == "00:00"
    assert f"{summer.astimezone(berlin):%H:%M}" == "02:00"


def test_the_version_is_that_of_the_package() -> None:
    assert TZDATA_VERSION == tzdata.IANA_VERSION


def _file_of(name: str) -> Traversable:
    return resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))


def _changes_in_table(data: bytes) -> Iterator[tuple[int, int]]:
    """(second, offset) of every change that a TZif file lists, from its 64-bit part (RFC 9636)."""

    def counts(at: int) -> tuple[int, ...]:
        return struct.unpack(">6l", data[at + 20 : at + 44])  # isut, isstd, leap, time, type, char

    isut, isstd, leap, time, kinds, chars = counts(0)
    second = 44 + time * 5 + kinds * 6 + chars + leap * 8 + isstd + isut
    _, _, _, time, kinds, _ = counts(second)
    at = second + 44
    seconds = struct.unpack(f">{time}q", data[at : at + 8 * time])
    indexes = data[at + 8 * time : at + 9 * time]
    types = at + 9 * time
    offsets = [struct.unpack(">l", data[types + 6 * k : types + 6 * k + 4])[0] for k in range(kinds)]
    offset = None
    for instant, index in zip(seconds, indexes, strict=True):
        if offsets[index] != offset:
            offset = offsets[index]
            yield instant, offset


def test_no_two_changes_are_nearer_than_we_look() -> None:
    """The search for changes would miss two that cancel out between two looks."""
    nearest = min(
        later - earlier
        for name in _zone_names()
        for (earlier, _), (later, _) in pairwise(_changes_in_table(_file_of(name).read_bytes()))
    )
    assert nearest >= 2 * _LOOK_EVERY * 60

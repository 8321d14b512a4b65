"""`slotkeeper lint`: refuses what a cluster would refuse and warns of what people regret, before anything is applied.

For CI: without a cluster and without a database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from slotkeeper.cli import options
from slotkeeper.cli.json_output import json_text
from slotkeeper.cli.runs import NOT_FOUND, REFUSED
from slotkeeper.cli.schedule_files import (
    ReadBefore,
    Refused,
    line_of,
    not_yet_supported,
    read_files,
    refused_at,
    schedule_of,
)
from slotkeeper.errors import InvalidField, NotYetSupported, SlotkeeperError, UnknownTimeZone
from slotkeeper.foresight import CODES, Finding, Level, Schedule, crowds, warnings_of
from slotkeeper.spec import Manifest, NothingThere, check
from slotkeeper.spec.wording import nearest

#: With --strict, warnings make the status "failed".
_FAILED = 1
_ERROR = "error"
#: No flag turns these off; to name them is no mistake.
_CODES_OF_ERRORS = ("InvalidSpec", "UnknownTimeZone", "NotYetSupported", "Unreadable", "Duplicate")


class CheckerMissing(SlotkeeperError):
    """What compares objects with the CRD is not installed."""


@dataclass(frozen=True, slots=True)
class Told:
    """One line of the output. ``key`` is empty where no object is meant."""

    file: Path
    line: int
    level: str
    code: str
    key: str
    field: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else str(self.file)
        what = f"{self.key}: " if self.key else ""
        return f"{where}: {self.level} {self.code}: {what}{self.message}"


@dataclass(frozen=True, slots=True)
class _Linted:
    """An object that a cluster would accept."""

    manifest: Manifest
    schedule: Schedule


def _codes(context: click.Context, parameter: click.Parameter, value: str | None) -> frozenset[str]:
    wanted = options.comma_separated(context, parameter, value)
    for code in wanted:
        if code not in CODES and code not in _CODES_OF_ERRORS:
            close = nearest(code, CODES)
            instead = f"write {close}" if close else f"the codes are {', '.join(sorted(CODES))}"
            raise click.BadParameter(f"{code!r} is the code of no warning and no note; {instead}")
    return frozenset(wanted)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE|DIR...")
@click.option("--strict", is_flag=True, help="Exit status 1 where there is a warning; notes do not count.")
@options.option("--ignore", callback=_codes, help="Codes of warnings and notes to leave out, comma-separated.")
@options.begin("what counts as now")
@options.option("--namespace", "-n", default="default", show_default=True, help="Of objects that name none.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
              help="json: a list of {file, line, level, code, namespace, name, field, message}.")  # fmt: skip
def lint(
    files: tuple[str, ...], strict: bool, ignore: frozenset[str], begin: datetime | None, namespace: str, output: str
) -> None:
    """Checks JobSchedules in files, in the files of folders, and (-) from standard input.

    Exit status: 0 nothing but warnings and notes, 1 a warning with --strict, 3 no such file, or nothing in it,
    4 something that a cluster refuses.
    """
    told: list[Told] = []
    linted: dict[tuple[str, str], _Linted] = {}
    missing = _read(files, namespace, linted, told)
    told += [line for line in _warnings(linted.values(), begin or datetime.now(UTC)) if line.code not in ignore]
    told.sort(key=lambda line: (str(line.file), line.line))
    if output == "json":
        click.echo(json_text([_json(line) for line in told]))
    else:
        for line in told:
            click.echo(str(line))
    count = {level: sum(line.level == level for line in told) for level in (_ERROR, Level.WARNING, Level.NOTE)}
    numbers = ", ".join(_number(number, level) for level, number in count.items())
    click.echo(f"{_number(len(linted), 'schedule')} accepted: {numbers}", err=True)
    refused = REFUSED if count[_ERROR] else 0
    raise SystemExit(refused or (NOT_FOUND if missing else _FAILED if strict and count[Level.WARNING] else 0))


def _read(files: Sequence[str], namespace: str, linted: dict[tuple[str, str], _Linted], told: list[Told]) -> bool:
    """Whether a file is missing, or one of the arguments has nothing in it: a green lint of nothing misleads."""
    missing = False
    before: set[str] = set()
    for argument in files:
        empty = True
        try:
            for read in read_files(argument, namespace, before):
                empty = False
                if not isinstance(read, ReadBefore):
                    _take(read, linted, told)
        except NothingThere as error:
            empty, missing = False, True
            click.echo(str(error), err=True)
        if empty:
            missing = True
            folders = "; folders inside it are not looked into" if Path(argument).is_dir() else ""
            click.echo(f"{argument}: there is no object in it{folders}", err=True)
    return missing


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _take(read: Manifest | Refused, linted: dict[tuple[str, str], _Linted], told: list[Told]) -> None:
    if isinstance(read, Refused):
        told.append(Told(read.file, read.line, _ERROR, "Unreadable", "", "", read.message))
        return
    if read.ignored:
        return
    refusals = _refusals(read)
    if refusals:
        told += [_error(read, error) for error in refusals]
        return
    schedule = schedule_of(read.object)
    twice = linted.get(schedule.key)
    if twice is not None:
        message = f"is also in {twice.manifest.where()}: the later one would win; write it once"
        told.append(_told(read, _ERROR, "Duplicate", "metadata.name", message))
        return
    unsupported = not_yet_supported(schedule)
    if unsupported is not None:
        told.append(_error(read, unsupported))
    linted[schedule.key] = _Linted(read, schedule)


def _refusals(manifest: Manifest) -> Sequence[InvalidField]:
    """All that the CRD refuses, or else the first thing that the controller would refuse."""
    try:
        found = check(manifest.object)
    except ImportError as error:
        raise CheckerMissing(
            f"lint needs what compares with the CRD: pip install 'slotkeeper[lint]' ({error})"
        ) from error
    if found:
        return found
    try:
        schedule_of(manifest.object)
    except InvalidField as error:
        return [error]
    return []


def _warnings(linted: Collection[_Linted], now: datetime) -> Iterator[Told]:
    for one in linted:
        for finding in warnings_of(one.schedule, now):
            yield _finding(one.manifest, finding)
    by_key = {one.schedule.key: one.manifest for one in linted}
    for schedule, finding in crowds([one.schedule for one in linted], now):
        yield _finding(by_key[schedule.key], finding)


def _error(manifest: Manifest, error: InvalidField) -> Told:
    code = type(error).__name__ if isinstance(error, UnknownTimeZone | NotYetSupported) else "InvalidSpec"
    refused = refused_at(manifest, error)
    return _told(manifest, _ERROR, code, refused.field, refused.message)


def _finding(manifest: Manifest, finding: Finding) -> Told:
    return _told(manifest, finding.level, finding.code, finding.field, f"{finding.field}: {finding.message}")


def _told(manifest: Manifest, level: str, code: str, field: str, message: str) -> Told:
    return Told(
        manifest.file, line_of(manifest, field), str(level), code, "/".join(manifest.key).strip("/"), field, message
    )  # fmt: skip


def _json(told: Told) -> dict[str, Any]:
    namespace, _, name = told.key.rpartition("/")
    return {
        "file": str(told.file),
        "line": told.line,
        "level": told.level,
        "code": told.code,
        "namespace": namespace,
        "name": name,
        "field": told.field,
        "message": told.message,
    }

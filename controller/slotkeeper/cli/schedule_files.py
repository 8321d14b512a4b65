"""JobSchedules of files, folders and standard input, judged as a cluster would: for `preview` and `lint`.

Without a database and without a cluster. `slotkeeper dev` applies what it reads; here nothing is applied.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from slotkeeper.errors import InvalidField, NotYetSupported
from slotkeeper.foresight import Schedule
from slotkeeper.spec import (
    Manifest,
    NothingThere,
    UnreadableManifest,
    apply_defaults,
    manifest_files,
    manifests_in,
    parse_object,
    read_manifests,
    unsupported_fields,
)
from slotkeeper.timing import timing

#: Standard input as an argument, and its name in messages.
STANDARD_INPUT, _STANDARD_INPUT_FILE = "-", Path("<stdin>")


@dataclass(frozen=True, slots=True)
class Refused:
    """What of a file cannot be accepted, and where. ``field`` is empty for a file that cannot be read."""

    file: Path
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


@dataclass(frozen=True, slots=True)
class ReadBefore:
    """In the place of a file's objects where an argument before, perhaps its folder, named the same file."""

    file: Path


def read_files(argument: str, namespace: str, before: set[str]) -> Iterator[Manifest | Refused | ReadBefore]:
    """Every object of a file, of the files of a folder, or of ``-``; in the place of a file that cannot be read, why.

    ``namespace`` is given to objects that name none. ``before`` has the files that were read already, and gets these.
    Raises NothingThere where there is no such file or folder.
    """
    standard_input = argument == STANDARD_INPUT
    try:
        files = [_STANDARD_INPUT_FILE] if standard_input else manifest_files(Path(argument))
    except NothingThere:
        raise
    except UnreadableManifest as error:
        yield Refused(error.file, error.line, "", error.problem)
        return
    for file in files:
        place = STANDARD_INPUT if standard_input else os.path.realpath(file)
        if place in before:
            yield ReadBefore(file)
            continue
        before.add(place)
        try:
            if standard_input:
                yield from manifests_in(_standard_input(), file, namespace)
            else:
                yield from read_manifests(file, namespace)
        except UnreadableManifest as error:
            yield Refused(error.file, error.line, "", error.problem)


def _standard_input() -> bytes:
    stream: TextIO | None = sys.stdin  # None where it was closed before we began
    if stream is None:
        raise UnreadableManifest(_STANDARD_INPUT_FILE, 0, "cannot be read: it is closed")
    try:
        return stream.buffer.read()
    except OSError as error:
        raise UnreadableManifest(_STANDARD_INPUT_FILE, 0, f"cannot be read: {error.strerror}") from error


def schedule_of(obj: Mapping[str, object]) -> Schedule:
    """What the object says. Raises InvalidField for the first thing that cannot be accepted."""
    try:
        parsed = parse_object(apply_defaults(obj))
        return Schedule(
            namespace=parsed.namespace,
            name=parsed.name,
            spec=parsed.spec,
            timing=timing(parsed.namespace, parsed.name, parsed.spec),
            trigger_key=parsed.trigger_key,
        )
    except (ValueError, OverflowError) as error:  # only of an object that no schema has checked
        raise InvalidField("spec", f"cannot be read: {error}") from error


def not_yet_supported(schedule: Schedule) -> NotYetSupported | None:
    """Why this version cannot run it yet, though its slots are known; None when it can."""
    fields = unsupported_fields(schedule.spec)
    if not fields:
        return None
    problem = "this version of slotkeeper cannot run it yet"
    return NotYetSupported(fields[0], problem, instead="write spec.task or spec.command")


def refused_at(manifest: Manifest, problem: InvalidField) -> Refused:
    """``problem`` with the line of its field."""
    return Refused(manifest.file, line_of(manifest, problem.field), problem.field, str(problem))


def line_of(manifest: Manifest, field: str) -> int:
    """The line of a field, or of the nearest one around it."""
    return int(manifest.where(field).rpartition(":")[2])

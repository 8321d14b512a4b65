"""`slotkeeper convert`: CronJobs of files or standard input as JobSchedules, with a report of differences.

Reads and writes; what becomes of an object is `slotkeeper.convert`. Asks no cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TextIO

import click

from slotkeeper.cli import options
from slotkeeper.cli.json_output import json_text, takes_every_character
from slotkeeper.cli.runs import NOT_FOUND, REFUSED
from slotkeeper.cli.schedule_files import ReadBefore, Refused, read_files
from slotkeeper.convert import (
    Conversion,
    Options,
    Verdict,
    refused,
    report_json,
    report_text,
    yaml_text,
)
from slotkeeper.convert import (
    convert as converted,
)
from slotkeeper.errors import InvalidField, UnknownTimeZone
from slotkeeper.spec import Manifest, NothingThere
from slotkeeper.spec.instants import parse_instant
from slotkeeper.timetable import load_zone


def _zone(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else load_zone(value, "--time-zone").key
    except UnknownTimeZone as error:
        raise click.BadParameter(f"{error.problem}; {error.instead}") from None


def _start_time(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    try:
        instant = None if value is None else parse_instant(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: {error}; write one such as 2026-12-01T12:30:00Z") from None
    if instant is not None and instant.microsecond:
        raise click.BadParameter(f"{value!r} has a fraction of a second; leave it out")
    return instant


@click.command()
@click.argument("paths", metavar="FILE|DIR|-...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Choice(["yaml", "json", "report"]), default="yaml", show_default=True,
              help="Of stdout: the objects, or the report as JSON alone.")  # fmt: skip
@options.option("--report", type=click.File("w", encoding="utf-8", errors="backslashreplace"),
                help="Writes the report, as text, to this file. Default: stderr.")  # fmt: skip
@options.option("--namespace", "-n",
                help="Of objects that name none. Default: they stay so, and kubectl's -n decides.")  # fmt: skip
@options.option("--time-zone", callback=_zone,
                help="Of CronJobs that name none: that of your kube-controller-manager. Default: Etc/UTC.")  # fmt: skip
@options.option("--keep-clock-changes", is_flag=True,
                help="When the clock changes, skip and double times as the CronJob does.")  # fmt: skip
@options.option("--start-time", metavar="TIME", callback=_start_time,
                help="RFC 3339: the JobSchedules have no slots before it, so that you can apply them now.")  # fmt: skip
@options.begin("where the two years begin in which times are compared")
def convert(
    paths: tuple[str, ...], output: str, report: TextIO | None, namespace: str | None, time_zone: str | None,
    keep_clock_changes: bool, start_time: datetime | None, begin: datetime | None,
) -> None:  # fmt: skip
    """Converts CronJobs to JobSchedules on stdout; what is different is told on stderr.

    Asks no cluster: give it files, folders, or - for standard input, such as `kubectl get cronjobs -o yaml` prints.
    What is no CronJob is passed over. Exit status 4 if something was refused; the rest is converted all the same.
    """
    wanted, now = Options(time_zone, keep_clock_changes, start_time), begin or datetime.now(UTC)
    unreadable: list[Refused] = []
    conversions: list[tuple[Manifest, Conversion]] = []
    places: dict[str, str] = {}
    for found in _read(paths, namespace or ""):
        if isinstance(found, Refused):
            unreadable.append(found)
        else:
            conversion = converted(found.object, now, wanted)
            conversions.append((found, _named_once(found, conversion, places)))
    _write(output, report, conversions, unreadable)
    verdicts = {conversion.verdict for _, conversion in conversions}
    if unreadable or Verdict.REFUSED in verdicts:
        sys.exit(REFUSED)
    if not verdicts - {Verdict.IGNORED}:
        click.echo("slotkeeper: there is no CronJob in it", err=True)
        sys.exit(NOT_FOUND)


def _read(paths: Sequence[str], namespace: str) -> list[Manifest | Refused]:
    before: set[str] = set()
    try:
        found = [one for path in paths for one in read_files(path, namespace, before)]
        return [one for one in found if not isinstance(one, ReadBefore)]
    except NothingThere as error:
        click.echo(f"slotkeeper: {error}", err=True)
        sys.exit(NOT_FOUND)


def _named_once(manifest: Manifest, conversion: Conversion, places: dict[str, str]) -> Conversion:
    """A second object of the same name is refused: applied, it would silently take the place of the first.

    ``places`` has where each name was first, and gets this one.
    """
    if conversion.job_schedule is None:
        return conversion
    first = places.get(conversion.key)
    if first is None:
        places[conversion.key] = manifest.where()
        return conversion
    finding = InvalidField("metadata.name", f"{conversion.key} is also in {first}", instead="leave one of them out")
    return refused(manifest.object, [finding])


def _write(
    output: str,
    report: TextIO | None,
    conversions: Sequence[tuple[Manifest, Conversion]],
    unreadable: Sequence[Refused],
) -> None:
    objects = [conversion.job_schedule for _, conversion in conversions if conversion.job_schedule is not None]
    told = [(manifest.where, conversion) for manifest, conversion in conversions]
    text = "".join(f"{problem}\n" for problem in unreadable) + report_text(told)
    if report is not None:
        report.write(text)
    elif output != "report":
        click.echo(text, err=True, nl=False)
    if output == "yaml":
        click.echo(yaml_text(objects, every_character=takes_every_character()), nl=False)
    elif output == "json":
        click.echo(json_text({"apiVersion": "v1", "kind": "List", "items": objects}))
    else:
        problems = [{"where": f"{file.file}:{file.line}", "problem": file.message} for file in unreadable]
        click.echo(json_text({"objects": report_json(told), "unreadable": problems}))

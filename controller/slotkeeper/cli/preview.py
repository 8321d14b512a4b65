"""`slotkeeper preview`: the slots to come of schedules in files or in force, and what an edit would change.

Reads only; nothing is applied, stored or fired.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from slotkeeper.cli import options
from slotkeeper.cli.json_output import json_text
from slotkeeper.cli.preview_difference import difference_json, difference_lines
from slotkeeper.cli.runs import NOT_FOUND, REFUSED
from slotkeeper.cli.schedule_files import Refused, not_yet_supported, read_files, refused_at, schedule_of
from slotkeeper.cli.slot_output import aligned, slot_json
from slotkeeper.cli.stored_schedule import Name, Places, find, name_or_file
from slotkeeper.errors import InvalidField, SlotkeeperError
from slotkeeper.foresight import Schedule, Upcoming, difference, upcoming
from slotkeeper.foresight.upcoming import first_instant, remarks
from slotkeeper.foresight.wording import clock_text, rfc3339
from slotkeeper.spec import Manifest, NothingThere, apply_defaults, check
from slotkeeper.spec.metadata import metadata_findings
from slotkeeper.timetable import load_zone

#: Slots of one schedule at most.
_MOST_SLOTS = 10_000


@dataclass(frozen=True)
class _Problem:
    """What is wrong; ``key``: with that object alone, None: with a whole file or argument."""

    status: int
    words: str
    key: tuple[str, str] | None = None


@dataclass
class _Found:
    """What the arguments stand for, what of them is wrong, and what is worth saying. ``files``: those it has read."""

    schedules: list[Schedule] = field(default_factory=list)
    problems: list[_Problem] = field(default_factory=list)
    files: set[str] = field(default_factory=set)

    @cached_property
    def by_key(self) -> dict[tuple[str, str], Schedule]:
        return {schedule.key: schedule for schedule in self.schedules}

    def only(self, keys: Collection[tuple[str, str]]) -> _Found:
        """The same without what concerns other objects only."""
        return _Found(
            [schedule for schedule in self.schedules if schedule.key in keys],
            [problem for problem in self.problems if problem.key is None or problem.key in keys],
        )

    def knows(self, key: tuple[str, str]) -> bool:
        """Whether it can be said if that object is there, and what it is."""
        wrong = {problem.key for problem in self.problems}
        return key not in wrong and (key in self.by_key or None not in wrong)

    def say(self) -> int:
        """Tells on stderr what is wrong; the exit status that follows from it."""
        for schedule in self.schedules:
            unsupported = not_yet_supported(schedule)
            if unsupported is not None:
                click.echo(f"{schedule}: {unsupported}", err=True)
        for problem in self.problems:
            click.echo(problem.words, err=True)
        return max((problem.status for problem in self.problems), default=0)


def _zone(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        load_zone(value, "--zone")
    return value


@click.command()
@click.argument("what", nargs=-1, required=True, metavar="FILE|NAME...")
@click.option("--diff", is_flag=True, help="Of two: what an edit from the first to the second would change.")
@options.begin("the first slot at or after it")
@options.option("--count", type=click.IntRange(1, _MOST_SLOTS), default=10, show_default=True,
                help="Slots of each schedule.")  # fmt: skip
@options.option("--zone", callback=_zone, help="Local times in this zone. Default: the schedule's own.")
@options.option("--namespace", "-n", help="Of names, and of objects in files that name none. Default: the context's; "
                                          "of files `default`.")  # fmt: skip
@options.option("--kubeconfig", type=click.Path(exists=True, path_type=Path),
                help="Where names are looked up. Default: the pod's account, or the user's configuration.")  # fmt: skip
@options.option("--context", help="Of the kubeconfig.")
@options.option("--dsn", help="Look names up in this database, as they are in force, instead of the cluster.")
@options.option("--cluster-name", default="default", show_default=True, help="In the database: whose schedules.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
              help="json: a list of {namespace, name, slots: [{slot, local, note}]}.")  # fmt: skip
def preview(
    what: tuple[str, ...], diff: bool, begin: datetime | None, count: int, zone: str | None, namespace: str | None,
    kubeconfig: Path | None, context: str | None, dsn: str | None, cluster_name: str, output: str,
) -> None:  # fmt: skip
    """Shows the slots to come, in UTC and local time, with changes of the clock marked.

    Each argument is a FILE (or a folder, or - for standard input), or the NAME or NAMESPACE/NAME of a schedule that
    is there already. --diff OLD NEW: slots added and removed by an edit, and what would fire at once.
    """
    places = Places(kubeconfig, context, _database(dsn, kubeconfig, context), cluster_name)
    if diff:
        _difference(what, places, namespace, begin or datetime.now(UTC), count, zone, output)
        return
    found = _Found()
    for argument in what:
        name = name_or_file(argument, namespace)
        _look_up(name, places, found) if name else _read(argument, namespace or "default", found)
    now = datetime.now(UTC)
    ahead = [
        (schedule, upcoming(schedule, begin=begin or first_instant(schedule, now), count=count, zone=zone))
        for schedule in found.schedules
    ]
    if output == "json":
        click.echo(json_text([_json(*pair) for pair in ahead]))
    else:
        click.echo("\n\n".join("\n".join(_lines(*pair, zone)) for pair in ahead), nl=bool(ahead))
    raise SystemExit(found.say())


def _database(dsn: str | None, kubeconfig: Path | None, context: str | None) -> str | None:
    """Of two places that are named, the one that a flag names: the environment may name the other for good."""
    if dsn is None or not (kubeconfig or context):
        return dsn
    source = click.get_current_context().get_parameter_source
    by_flag = {name for name in ("dsn", "kubeconfig", "context") if source(name) is ParameterSource.COMMANDLINE}
    if "dsn" in by_flag and len(by_flag) > 1:
        raise InvalidField("--dsn", "is another place than --kubeconfig and --context", instead="name one of them")
    return dsn if "dsn" in by_flag or not by_flag else None


def _difference(
    what: Sequence[str], places: Places, namespace: str | None, now: datetime, count: int, zone: str | None, output: str
) -> None:
    if len(what) != 2:
        raise InvalidField("--diff", f"compares two, not {len(what)}", instead="preview --diff OLD NEW")
    names = [name_or_file(argument, namespace) for argument in what]
    sides = [_Found(), _Found()]
    # The names first: what a file calls nothing else is then of their namespace.
    for name, side in zip(names, sides, strict=True):
        if name is not None:
            _look_up(name, places, side)
    named = {schedule.key for side in sides for schedule in side.schedules}
    around = namespace or next((of for of, _ in named), "default")
    for argument, name, side in zip(what, names, sides, strict=True):
        if name is None:
            _read(argument, around, side)
    concerned = named or {(name.namespace or around, name.name) for name in names if name is not None}
    if concerned:
        sides = [side.only(concerned) for side in sides]
    for argument, name, side in zip(what, names, sides, strict=True):
        if name is None and named and not side.problems and not side.schedules:
            side.problems.append(_Problem(NOT_FOUND, f"{argument}: {'/'.join(next(iter(named)))} is not in it"))
    keys = dict.fromkeys(key for side in sides for key in side.by_key)
    found = [
        difference(*(side.by_key.get(key) for side in sides), now=now, count=count, zone=zone)
        for key in keys
        if all(side.knows(key) for side in sides)
    ]
    if output == "json":
        click.echo(json_text([difference_json(one) for one in found]))
    else:
        click.echo("\n\n".join("\n".join(difference_lines(one)) for one in found), nl=bool(found))
    raise SystemExit(max(side.say() for side in sides))


def _look_up(name: Name, places: Places, found: _Found) -> None:
    try:
        schedule = find(name, places)
    except InvalidField as error:
        if error.field.startswith("-"):  # a flag of ours
            error.add_note(_no_file(name))
            raise
        found.problems.append(_Problem(REFUSED, f"{name}: {error}"))
        return
    except SlotkeeperError as error:
        error.add_note(_no_file(name))
        raise
    if schedule is None:
        where = "the cluster" if places.dsn is None else f"the database, as of the cluster {places.cluster_name!r}"
        words = f"{name}: there is no such JobSchedule in {where}, and no such file here"
        found.problems.append(_Problem(NOT_FOUND, words))
    else:
        found.schedules.append(schedule)


def _no_file(name: Name) -> str:
    return f"{name}: there is no such file here either"


def _read(argument: str, namespace: str, found: _Found) -> None:
    empty = True
    try:
        for read in read_files(argument, namespace, found.files):
            if isinstance(read, Manifest) and read.ignored:
                continue
            empty = False
            if isinstance(read, Refused):
                found.problems.append(_Problem(REFUSED, str(read)))
            elif isinstance(read, Manifest):
                _take(read, found)
    except NothingThere as error:
        found.problems.append(_Problem(NOT_FOUND, str(error)))
        return
    if empty:
        found.problems.append(_Problem(NOT_FOUND, f"{argument}: there is no JobSchedule in it"))


def _take(manifest: Manifest, found: _Found) -> None:
    refusals = _refusals(manifest)
    if not refusals:
        try:
            schedule = schedule_of(manifest.object)
        except InvalidField as error:
            refusals = [error]
        else:
            if any(schedule.key == other.key for other in found.schedules):
                words = f"{manifest.where()}: {schedule} is there twice"
                found.problems.append(_Problem(REFUSED, words, schedule.key))
            else:
                found.schedules.append(schedule)
    found.problems += [_Problem(REFUSED, str(refused_at(manifest, error)), manifest.key) for error in refusals]


def _refusals(manifest: Manifest) -> list[InvalidField]:
    try:
        return check(manifest.object)
    except ImportError:  # without the extra: what the controller checks, and not the CRD's bounds
        return metadata_findings(apply_defaults(manifest.object))


def _json(schedule: Schedule, ahead: Upcoming) -> dict[str, Any]:
    told: dict[str, Any] = {
        "namespace": schedule.namespace,
        "name": schedule.name,
        "slots": [slot_json(slot) for slot in ahead.slots],
    }
    if ahead.standstill is not None:
        told |= {"reason": ahead.standstill.reason, "message": ahead.standstill.message}
    if said := remarks(schedule):
        told["remarks"] = said
    return told


def _lines(schedule: Schedule, ahead: Upcoming, zone: str | None) -> list[str]:
    timetable = schedule.timing.timetable
    title = [f"{schedule}: {timetable.resolved} ({timetable.zone})", *remarks(schedule)]
    if ahead.standstill is not None:
        return [*title, f"{ahead.standstill.reason}: {ahead.standstill.message}"]
    spread = bool(schedule.timing.offset)
    head = ["SLOT", *(["DUE"] if spread else []), f"LOCAL ({zone or timetable.zone})", "NOTE"]
    rows = [
        [rfc3339(slot.slot), *([rfc3339(slot.due)] if spread else []), clock_text(slot.local), slot.note or ""]
        for slot in ahead.slots
    ]
    return [*title, *aligned([head, *rows]), *(["no slot follows"] if ahead.is_last else [])]

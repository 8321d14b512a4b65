"""`slotkeeper hold`, `release` and `holds`: no slots for a while, without touching the objects."""

from __future__ import annotations

import getpass
import os
import re
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from slotkeeper.cli import options
from slotkeeper.cli.json_output import json_text
from slotkeeper.cli.runs import NOT_FOUND, REFUSED
from slotkeeper.errors import InvalidField
from slotkeeper.holds import hold_covered
from slotkeeper.store import holds as store
from slotkeeper.store import schedules
from slotkeeper.store.connection import Session
from slotkeeper.store.holds import Hold, Target

_DURATION = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?")
#: Of a reason and of a name: they become part of a condition's message.
_LONGEST_TEXT = 1000
#: Schedules that somebody else works on at this moment are tried again for so long (seconds).
_PATIENCE, _PAUSE = 10.0, 0.05

_target = click.argument("schedule", required=False, metavar="[NAMESPACE/SCHEDULE]")
_namespace = options.option("--namespace", help="Every schedule of this namespace, later ones too.")
_everything = click.option("--all", "everything", is_flag=True, help="Every schedule of the cluster, later ones too.")
_cluster_name = options.option(
    "--cluster-name", default="default", show_default=True, help="Whose schedules, as the controller names the cluster."
)


@click.command()
@options.dsn
@_target
@_namespace
@_everything
@_cluster_name
@options.option("--reason", required=True, help="Why; shown in the object's status.")
@options.option("--until", metavar="TIME|DURATION", help="RFC 3339, or such as 2h30m. Default: until it is released.")
@options.option("--by", help="Who holds, beside the database login. Default: the user of this machine.")
def hold(
    dsn: str, schedule: str | None, namespace: str | None, everything: bool, cluster_name: str, reason: str,
    until: str | None, by: str | None,
) -> None:  # fmt: skip
    """Holds a schedule, a namespace or everything: no slots until it is released, and none made up afterwards.

    The objects stay as they are. What was due before still runs, and so does what is triggered by hand. A second
    hold on the same target takes the place of the first.
    """
    target = _chosen(schedule, namespace, everything, cluster_name)
    reason, by = _text("--reason", reason), _text("--by", _user() if by is None else by)
    with closing(Session(dsn, "hold")) as session:
        end = None if until is None else _instant(until, schedules.clock(session))
        if not _exists(session, target):
            click.echo(f"{target}: there is no such schedule in the cluster {cluster_name!r}", err=True)
            raise SystemExit(NOT_FOUND)
        with session.transaction() as connection:
            replaced = store.add(connection, target, held_by=by, reason=reason, until=end)
            # An earlier hold may end at another time now.
            store.release_held(connection, everything=True)
            hold_covered(connection)
        left = _settle(session)
    click.echo(f"{target} is held {_shown_until(end)}" + (" (there was a hold already)" if replaced else ""))
    _say_busy(left)


@click.command()
@options.dsn
@_target
@_namespace
@_everything
@_cluster_name
def release(dsn: str, schedule: str | None, namespace: str | None, everything: bool, cluster_name: str) -> None:
    """Ends the hold on a schedule, a namespace or everything; other holds stay. Nothing fires for the time held."""
    target = _chosen(schedule, namespace, everything, cluster_name)
    with closing(Session(dsn, "release")) as session:
        with session.transaction() as connection:
            removed = store.remove(connection, target)
            store.release_held(connection, everything=True)
        wider = [hold for hold in store.holds(session, cluster_name) if target.within(hold.target)]
        left = _settle(session) if removed else 0
    if not removed:
        for hold in wider:
            click.echo(f"{target} is held by the hold on {hold.target}: release that", err=True)
        if not wider:
            click.echo(f"there is no hold on {target} in the cluster {cluster_name!r}", err=True)
        raise SystemExit(REFUSED if wider else NOT_FOUND)
    click.echo(f"{target} is released")
    for hold in wider:
        click.echo(f"{target} is still held by the hold on {hold.target}", err=True)
    _say_busy(left)


@click.command()
@options.dsn
@_cluster_name
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Form.")
def holds(dsn: str, cluster_name: str, output: str) -> None:
    """Lists the holds that are in force: on what, who, why, since and until when."""
    with closing(Session(dsn, "holds")) as session:
        found = store.holds(session, cluster_name)
    if output == "json":
        click.echo(json_text([_json(hold) for hold in found]))
    elif found:
        _table(
            ("ON", "SCHEDULES", "HELD BY", "LOGIN", "SINCE", "UNTIL", "REASON"),
            [
                (
                    str(hold.target), str(hold.schedules), hold.held_by, hold.login, _time(hold.since),
                    "released" if hold.until is None else _time(hold.until), hold.reason,
                )
                for hold in found
            ],
        )  # fmt: skip
    else:
        click.echo("nothing is held", err=True)


def _chosen(schedule: str | None, namespace: str | None, everything: bool, cluster: str) -> Target:
    if (schedule is not None) + (namespace is not None) + everything != 1:
        raise InvalidField(
            "SCHEDULE", "says not exactly what is meant", instead="give one of NAMESPACE/SCHEDULE, --namespace, --all"
        )
    if schedule is None:
        return Target(cluster, namespace)
    namespace, slash, name = schedule.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise InvalidField("SCHEDULE", f"{schedule!r} is not NAMESPACE/SCHEDULE", instead="billing/nightly-report")
    return Target(cluster, namespace, name)


def _text(field: str, text: str) -> str:
    text = text.strip()
    if not text or len(text) > _LONGEST_TEXT or not text.isprintable():
        raise InvalidField(
            field, f"{text[:40]!r} is empty, too long or not printable", instead=f"1 to {_LONGEST_TEXT} characters"
        )
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's uid without a name
        return f"uid {os.getuid()}"


def _instant(text: str, now: datetime) -> datetime:
    """On a whole second, as slots are: a hold that ends within a second ends with it."""
    instead = "a time such as 2026-11-30T10:45:00Z, or a duration such as 2h30m"
    duration = _DURATION.fullmatch(text)
    try:
        if text and duration:
            days, hours, minutes, seconds = (int(part or 0) for part in duration.groups())
            instant = now + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        else:
            instant = datetime.fromisoformat(text)
        whole = instant + timedelta(microseconds=-instant.microsecond % 1_000_000)
    except (ValueError, OverflowError) as error:
        raise InvalidField("--until", f"{text!r} is neither a time nor a duration", instead=instead) from error
    if instant.tzinfo is None:
        raise InvalidField("--until", f"{text!r} has no offset", instead=instead)
    if instant <= now:
        raise InvalidField("--until", f"{text!r} is not after {_time(now)}, the database's time", instead=instead)
    return whole


def _exists(session: Session, target: Target) -> bool:
    """A name that was mistyped holds nothing, and nobody would notice; of everything there may be nothing yet."""
    if target.namespace is None:
        return True
    if target.name is not None:
        found = schedules.find(session, target.cluster, [(target.namespace, target.name)])
        return any(not schedule.retired for schedule in found.values())
    stored = schedules.stored_schedules(session, target.cluster)
    return any(schedule.namespace == target.namespace for schedule in stored)


def _settle(session: Session) -> int:
    """Until every schedule is as the holds want it; how many are not when patience ends."""
    deadline = time.monotonic() + _PATIENCE
    while left := store.outstanding(session):
        with session.transaction() as connection:
            store.release_held(connection, everything=True)
            done = hold_covered(connection)
        if time.monotonic() > deadline:
            return left
        if not done:
            time.sleep(_PAUSE)
    return 0


def _say_busy(left: int) -> None:
    if left:
        click.echo(f"{left} schedules are busy at this moment; a controller sees to them within seconds", err=True)


def _shown_until(end: datetime | None) -> str:
    return "until it is released" if end is None else f"until {_time(end)}"


def _time(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(hold: Hold) -> dict[str, Any]:
    return {
        "cluster": hold.target.cluster,
        "namespace": hold.target.namespace,
        "name": hold.target.name,
        "heldBy": hold.held_by,
        "login": hold.login,
        "reason": hold.reason,
        "heldAt": _time(hold.since),
        "heldUntil": None if hold.until is None else _time(hold.until),
        "schedules": hold.schedules,
    }


def _table(head: tuple[str, ...], lines: list[tuple[str, ...]]) -> None:
    widths = [max(len(line[column]) for line in (head, *lines)) for column in range(len(head))]
    for line in (head, *lines):
        click.echo("   ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())

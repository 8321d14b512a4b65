"""`slotkeeper requeue` and `slotkeeper cancel`: what people do to runs."""

from __future__ import annotations

from datetime import datetime

import click

from slotkeeper.cli import options
from slotkeeper.errors import InvalidField
from slotkeeper.store.connection import Session
from slotkeeper.store.runs import cancel as cancel_runs
from slotkeeper.store.runs import find
from slotkeeper.store.runs import requeue as requeue_runs

#: Exit statuses of every command: 0 done, 1 failed, 2 usage, 3 not found, 4 refused.
NOT_FOUND, REFUSED = 3, 4
#: Digits of a run id, which is a bigint.
_LONGEST_ID = 18
_TEXTS = {
    "ready": "is ready again",
    "live": "is refused: it is live already",
    "gone": "is not there",
    "cancelled": "is cancelled",
    "running": "is running; its worker is told at its next beat",
}


@click.command()
@options.dsn
@click.argument("runs", nargs=-1, required=True, metavar="RUN|NAMESPACE/SCHEDULE[@SLOT]...")
def requeue(dsn: str, runs: tuple[str, ...]) -> None:
    """Makes dead runs live again: by run id, or all dead runs of a schedule, or the one of a slot (RFC 3339)."""
    session = Session(dsn, "requeue")
    _report(requeue_runs(session, _ids(session, runs, ["dead"])))


@click.command()
@options.dsn
@click.argument("runs", nargs=-1, required=True, metavar="RUN|NAMESPACE/SCHEDULE[@SLOT]...")
def cancel(dsn: str, runs: tuple[str, ...]) -> None:
    """Cancels live runs: by run id, or all live runs of a schedule, or the one of a slot (RFC 3339)."""
    session = Session(dsn, "cancel")
    _report(cancel_runs(session, _ids(session, runs, ["ready", "running"])))


def _ids(session: Session, runs: tuple[str, ...], statuses: list[str]) -> list[int]:
    ids: list[int] = []
    for text in runs:
        if text.isascii() and text.isdecimal():
            if len(text) > _LONGEST_ID:
                raise InvalidField("RUN", f"{text[:_LONGEST_ID]}… is longer than any run id", instead="see --help")
            ids.append(int(text))
            continue
        schedule, _, slot = text.partition("@")
        namespace, slash, name = schedule.partition("/")
        if not slash:
            raise InvalidField("RUN", f"{text!r} is neither a run id nor NAMESPACE/SCHEDULE", instead="see --help")
        try:
            instant = datetime.fromisoformat(slot) if slot else None
        except ValueError as error:
            raise InvalidField("RUN", f"{slot!r} is not an RFC 3339 time", instead="2026-11-30T10:45:00Z") from error
        ids += find(session, namespace, name, statuses, instant)
    return ids


def _report(became: dict[int, str]) -> None:
    for id_, what in became.items():
        click.echo(f"run {id_} {_TEXTS[what]}")
    if not became or set(became.values()) == {"gone"}:
        if not became:
            click.echo("no such run", err=True)
        raise SystemExit(NOT_FOUND)
    if "live" in became.values():
        raise SystemExit(REFUSED)

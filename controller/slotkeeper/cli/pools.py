"""`slotkeeper pools` and `slotkeeper declare-pool`: how many workers each pool wants and why, and pools to come."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import click

from slotkeeper.cli import options
from slotkeeper.metrics.scaling import ScalingSettings, as_json
from slotkeeper.store.connection import Session
from slotkeeper.store.scaling import PoolNumber
from slotkeeper.store.scaling import declare_pool as declare

_COLUMNS = (
    "NAMESPACE", "POOL", "WANTED", "WORKERS", "CLAIMABLE", "RUNNING", "DUE SOON", "HOLDING", "CONCURRENCY",
)  # fmt: skip


@click.command()
@options.dsn
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
              help="json: a list of objects as the scaling endpoint gives them.")  # fmt: skip
@options.scaling
def pools(dsn: str, output: str, scaling: ScalingSettings) -> None:
    """Lists worker pools with the number that autoscaling uses, and its parts.

    WANTED is CLAIMABLE + RUNNING + DUE SOON runs, divided by CONCURRENCY and rounded up, but at least HOLDING: workers
    that hold a run which is older than the drain time.
    """
    with closing(Session(dsn, "pools")) as session:
        numbers = scaling.read(session)
    if output == "json":
        click.echo(json.dumps([as_json(number) for number in numbers], indent=2))
        return
    for line in _table([_COLUMNS, *(_row(number) for number in numbers)]):
        click.echo(line)


@click.command("declare-pool")
@options.dsn
@click.argument("pool", metavar="NAMESPACE/NAME", callback=lambda _, __, value: options.pool(value))
@options.option("--namespaces", callback=options.comma_separated,
                help="Whose queues they claim from, comma-separated, or *. Default: the pool's own.")  # fmt: skip
@options.option("--queues", callback=options.comma_separated, default="default", show_default=True,
                help="Comma-separated, or *.")  # fmt: skip
@options.option("--concurrency", type=click.IntRange(1, 10_000), default=20, show_default=True,
                help="Runs at a time of each worker.")  # fmt: skip
def declare_pool(
    dsn: str, pool: options.Pool, namespaces: tuple[str, ...], queues: tuple[str, ...], concurrency: int
) -> None:
    """Makes a pool known before its first worker, so that it may begin with none; or changes it.

    Its workers should be given the same; once it is declared here, what they say changes nothing about it.
    """
    with closing(Session(dsn, "declare-pool")) as session:
        declare(
            session, namespace=pool.namespace, name=pool.name, namespaces=namespaces or (pool.namespace,),
            queues=queues, concurrency=concurrency,
        )  # fmt: skip


def _row(number: PoolNumber) -> tuple[Any, ...]:
    return (
        number.namespace, number.pool, number.wanted, number.workers, number.claimable, number.running, number.due_soon,
        number.holding, number.concurrency,
    )  # fmt: skip


def _table(rows: list[tuple[Any, ...]]) -> list[str]:
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(_COLUMNS))]
    return ["  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

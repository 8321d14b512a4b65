"""`slotkeeper migrate`: brings the schema to this version."""

from __future__ import annotations

import click

from slotkeeper.cli import options
from slotkeeper.store.migrate import ROLES
from slotkeeper.store.migrate import migrate as migrate_schema


@click.command()
@options.dsn
@options.option(
    "--grant", multiple=True, metavar="LOGIN=ROLE", help=f"Roles: {', '.join(ROLES)}. May be given more than once."
)
def migrate(dsn: str, grant: tuple[str, ...]) -> None:
    """Brings the schema to this version; may be repeated, and by several at once.

    Needs a direct connection and, at first, a login that may create roles and a schema.
    """
    report = migrate_schema(dsn, grant, say=lambda line: click.echo(line, err=True))
    click.echo(
        f"schema is up to date: {len(report.migrations)} migrations and {len(report.functions)} function files applied"
    )

"""The command `slotkeeper` and what it does with errors."""

from __future__ import annotations

import io
import sys

import click

from slotkeeper import __version__
from slotkeeper.cli.holds import hold, holds, release
from slotkeeper.cli.migrate import migrate
from slotkeeper.cli.pools import declare_pool, pools
from slotkeeper.cli.runs import cancel, requeue
from slotkeeper.cli.worker import worker
from slotkeeper.errors import InvalidField, SlotkeeperError
from slotkeeper.timetable import TZDATA_VERSION


class _LazyGroup(click.Group):
    """Commands whose imports are heavy are imported when they are called: kopf alone takes half a second."""

    lazy = {  # noqa: RUF012
        "dev": "slotkeeper.cli.dev",
        "controller": "slotkeeper.cli.controller",
        "convert": "slotkeeper.cli.convert",
        "external-metrics": "slotkeeper.cli.external_metrics",
        "lint": "slotkeeper.cli.lint",
        "preview": "slotkeeper.cli.preview",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self.lazy])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.lazy:
            name = cmd_name.replace("-", "_")
            module = __import__(self.lazy[cmd_name], fromlist=[name])
            command: click.Command = getattr(module, name)
            return command
        return super().get_command(ctx, cmd_name)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    __version__, prog_name="slotkeeper", message=f"%(prog)s, version %(version)s, tz database {TZDATA_VERSION}"
)
def commands() -> None:
    """Scheduled and background jobs for Kubernetes, with Postgres as the one source of truth.

    Exit status: 0 done, 1 failed, 2 usage, 3 not found, 4 refused.
    """


commands.add_command(worker)
commands.add_command(migrate)
commands.add_command(requeue)
commands.add_command(cancel)
commands.add_command(pools)
commands.add_command(declare_pool)
commands.add_command(hold)
commands.add_command(release)
commands.add_command(holds)


def main(prog_name: str = "slotkeeper") -> None:
    """The entry point: our errors are lines on stderr, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # it is None where it was closed before we began
            # What a terminal or a pipe cannot have is written as an escape.
            stream.reconfigure(errors="backslashreplace")
    try:
        commands.main(prog_name=prog_name, standalone_mode=True)
    except SlotkeeperError as error:
        for line in (f"slotkeeper: {error}", *getattr(error, "__notes__", ())):
            click.echo(line, err=True)
        sys.exit(2 if isinstance(error, InvalidField) else 1)


def kubectl_main() -> None:
    """The same as a plugin: kubectl runs the program ``kubectl-slotkeeper`` for ``kubectl slotkeeper …``."""
    main("kubectl slotkeeper")

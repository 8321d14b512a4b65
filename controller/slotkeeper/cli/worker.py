"""`slotkeeper worker`: claims runs and runs them."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import signal
import socket
import sys
from pathlib import Path

import click

from slotkeeper import __version__
from slotkeeper.cli import options
from slotkeeper.cli.logs import set_up_logs
from slotkeeper.errors import InvalidField
from slotkeeper.worker import Supervisor, WorkerSettings
from slotkeeper.worker.settings import ACTIONS
from slotkeeper.worker.supervisor import exit_process

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def _own_namespace() -> str:
    """Of this pod; `default` outside a cluster."""
    return _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else "default"


def _actions(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    actions = options.comma_separated(context, parameter, value)
    for action in actions:
        if action not in ACTIONS:
            raise click.BadParameter(f"{action!r} is not an action; allow {', '.join(ACTIONS)}")
    return actions


@click.command()
@options.dsn
@options.option("--app", multiple=True, help="A module that registers handlers; may be given more than once.")
@options.option("--namespaces", callback=options.comma_separated, help="Comma-separated, or *. Default: the pod's own.")
@options.option(
    "--queues", callback=options.comma_separated, default="default", show_default=True, help="Comma-separated, or *."
)
@options.option("--pool", default="default", show_default=True, help="The pool that this worker belongs to.")
@options.option("--concurrency", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Runs at a time.")
@options.option("--allow", callback=_actions, default="task", show_default=True, help=f"Actions: {', '.join(ACTIONS)}.")
@options.option("--lease-seconds", type=click.IntRange(1, 3600), default=60, show_default=True,
                help="Without a sign of life for so long, its runs go to others.")  # fmt: skip
@options.option("--poll-seconds", type=click.FloatRange(0.05, 60), default=5.0, show_default=True,
                help="The longest sleep of an idle worker.")  # fmt: skip
@options.option("--drain-seconds", type=click.FloatRange(0), default=30.0, show_default=True,
                help="On SIGTERM: how long running handlers may go on.")  # fmt: skip
@options.option("--name", help="Default: host name and process id.")
@options.log_format
@options.log_level
def worker(
    dsn: str, app: tuple[str, ...], namespaces: tuple[str, ...], queues: tuple[str, ...], pool: str, concurrency: int,
    allow: tuple[str, ...], lease_seconds: int, poll_seconds: float, drain_seconds: float, name: str | None,
    log_format: str, log_level: str,
) -> None:  # fmt: skip
    """Claims runs under a lease and runs them.

    SIGTERM or Ctrl-C: no new runs; those not begun are given back at once, running ones may go on for
    --drain-seconds; a second signal gives them back too.
    """
    set_up_logs(log_format, log_level)
    sys.path.insert(0, str(Path.cwd()))
    for module in app:
        _import(module)
    settings = WorkerSettings(
        dsn=dsn, name=name or f"{socket.gethostname()}-{os.getpid()}", namespace=_own_namespace(), pool=pool,
        namespaces=namespaces or (_own_namespace(),), queues=queues, concurrency=concurrency, allow=frozenset(allow),
        lease_seconds=lease_seconds, poll_seconds=poll_seconds, drain_seconds=drain_seconds,
    )  # fmt: skip
    # What was imported lives as long as the process, and runs leave no cycles: the collector need not look so often.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    status = asyncio.run(_serve(settings))
    sys.stderr.flush()
    exit_process(status)


def _import(module: str) -> None:
    """Imports what registers handlers; what fails inside it is shown with its traceback."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise InvalidField("--app", f"there is no module {module!r} here", instead="a module on PYTHONPATH") from error


async def _serve(settings: WorkerSettings) -> int:
    supervisor = Supervisor(settings, __version__)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.drain)
    return await supervisor.run()

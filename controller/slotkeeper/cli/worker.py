"""`slotkeeper worker`: claims runs and runs them."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from slotkeeper import __version__
from slotkeeper.cli import options
from slotkeeper.cli.app_modules import import_app
from slotkeeper.cli.handler_process import program
from slotkeeper.cli.logs import set_up_logs
from slotkeeper.metrics.address import EVERYWHERE, Address
from slotkeeper.worker import Supervisor, WorkerSettings
from slotkeeper.worker.settings import ACTIONS
from slotkeeper.worker.supervisor import exit_process

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def _own_namespace() -> str:
    """Of this pod; `default` outside a cluster."""
    return _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else "default"


def _own_pool(_: click.Context, __: click.Parameter, value: str) -> options.Pool:
    return options.pool(value, namespace=_own_namespace())


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
@options.option("--pool", default="default", show_default=True, callback=_own_pool,
                help="NAME or NAMESPACE/NAME of its pool; of NAME the pod's own namespace.")  # fmt: skip
@options.option("--concurrency", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Runs at a time.")
@options.option("--allow", callback=_actions, default="task", show_default=True, help=f"Actions: {', '.join(ACTIONS)}.")
@options.option("--lease-seconds", type=click.IntRange(1, 3600), default=60, show_default=True,
                help="Without a sign of life for so long, its runs go to others.")  # fmt: skip
@options.option("--poll-seconds", type=click.FloatRange(0.05, 60), default=5.0, show_default=True,
                help="The longest sleep of an idle worker.")  # fmt: skip
@options.option("--drain-seconds", type=click.FloatRange(0), default=30.0, show_default=True,
                help="On SIGTERM: how long running handlers may go on.")  # fmt: skip
@options.option("--isolation", type=click.Choice(["thread", "process"]), default="thread", show_default=True,
                help="Where handlers run: in threads of the worker, or each in a process of its own.")  # fmt: skip
@options.listen(EVERYWHERE)
@options.option("--name", help="Default: host name and process id.")
@options.log_format
@options.log_level
def worker(
    dsn: str, app: tuple[str, ...], namespaces: tuple[str, ...], queues: tuple[str, ...], pool: options.Pool,
    concurrency: int, allow: tuple[str, ...], lease_seconds: int, poll_seconds: float, drain_seconds: float,
    isolation: str, listen: Address | None, name: str | None, log_format: str, log_level: str,
) -> None:  # fmt: skip
    """Claims runs under a lease and runs them.

    SIGTERM or Ctrl-C: no new runs; those not begun are given back at once, running ones may go on for
    --drain-seconds; a second signal gives them back too.
    """
    set_up_logs(log_format, log_level)
    import_app(app)
    settings = WorkerSettings(
        dsn=dsn, name=name or f"{socket.gethostname()}-{os.getpid()}", namespace=pool.namespace, pool=pool.name,
        namespaces=namespaces or (_own_namespace(),), queues=queues, concurrency=concurrency, allow=frozenset(allow),
        lease_seconds=lease_seconds, poll_seconds=poll_seconds, drain_seconds=drain_seconds,
        handler_process=program(log_format, log_level, app) if isolation == "process" else (),
    )  # fmt: skip
    serve = _server(listen)
    # What was imported lives as long as the process, and runs leave no cycles: the collector need not look so often.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    status = asyncio.run(_serve(settings, serve))
    sys.stderr.flush()
    exit_process(status)


def _server(listen: Address | None) -> Callable[[Supervisor, WorkerSettings], object]:
    """Starts what this worker serves over HTTP, until the process ends."""
    if listen is None:
        return lambda _, __: None
    from slotkeeper.cli.worker_http import serve_worker

    return partial(serve_worker, listen)


async def _serve(settings: WorkerSettings, serve: Callable[[Supervisor, WorkerSettings], object]) -> int:
    supervisor = Supervisor(settings, __version__)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.drain)
    serve(supervisor, settings)
    return await supervisor.run()

"""`slotkeeper controller`: operator, ticker and keeper in one process."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from slotkeeper.cli import options
from slotkeeper.cli.logs import set_up_logs
from slotkeeper.keeper import Keeper
from slotkeeper.metrics.address import EVERYWHERE, Address
from slotkeeper.metrics.scaling import ScalingSettings
from slotkeeper.operator import Operator
from slotkeeper.ticker import Ticker
from slotkeeper.web.listen import ListenAddress


@click.command()
@options.dsn
@options.option("--direct-dsn", help="To the server itself, where --dsn leads to a pooler: for leadership.")
@options.option("--cluster-name", default="default", show_default=True, help="Part of every schedule's key.")
@options.option("--namespaces", callback=options.comma_separated, help="Watch only these. Default: all.")
@options.option("--adopt", is_flag=True, help="Take over the schedules that another cluster stored under this name.")
@options.option("--kubernetes/--no-kubernetes", default=True, show_default=True,
                help="Without: only ticker and keeper, for schedules that are stored already.")  # fmt: skip
@options.option("--kubeconfig", type=click.Path(exists=True, path_type=Path), help="Default: the pod's own account.")
@options.option("--resync-seconds", type=click.FloatRange(1), default=300.0, show_default=True,
                help="Between two full looks at every object.")  # fmt: skip
@options.listen(EVERYWHERE)
@options.dashboard_listen
@options.option("--max-schedule-series", type=click.IntRange(0), default=10_000, show_default=True,
                help="How many schedules /metrics/schedules shows.")  # fmt: skip
@options.scaling
@options.option("--scaling-token-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="Whoever asks for a pool's number must present the bearer token in this file.")  # fmt: skip
@options.log_format
@options.log_level
def controller(
    dsn: str, direct_dsn: str | None, cluster_name: str, namespaces: tuple[str, ...], adopt: bool, kubernetes: bool,
    kubeconfig: Path | None, resync_seconds: float, listen: Address | None,
    dashboard_listen: ListenAddress | None, max_schedule_series: int,
    scaling: ScalingSettings, scaling_token_file: Path | None, log_format: str, log_level: str,
) -> None:  # fmt: skip
    """Keeps schedules equal to JobSchedules, turns their slots into runs, and keeps the tables in order.

    Run as many as you like: every replica ticks and reaps, one syncs and writes status.
    """
    set_up_logs(log_format, log_level)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    ticker, keeper = Ticker(dsn), Keeper(dsn)
    operator = served = dashboard = None
    if kubernetes:
        operator = Operator(
            dsn, direct_dsn=direct_dsn, cluster=cluster_name, namespaces=namespaces or None, kubeconfig=kubeconfig,
            adopt=adopt, resync_seconds=resync_seconds,
        )  # fmt: skip
    actors = [ticker.actor, *keeper.actors]
    if listen is not None:
        from slotkeeper.cli.controller_http import ControllerParts, controller_http

        served = controller_http(
            listen, ControllerParts(ticker, keeper, stop, operator), dsn=dsn, cluster=cluster_name,
            most_schedules=max_schedule_series, scaling=scaling, scaling_token_file=scaling_token_file,
        )  # fmt: skip
    if operator is not None:
        operator.start()
    for actor in actors:
        actor.start()
    if served is not None:
        served.start()
    if dashboard_listen is not None:
        from slotkeeper.web.server import Dashboard

        dashboard = Dashboard(dsn, dashboard_listen)
        dashboard.start()
    stop.wait()
    if dashboard is not None:
        dashboard.stop()
    if operator is not None:
        operator.stop()
    for actor in actors:
        actor.stop()
    if served is not None:
        served.stop()

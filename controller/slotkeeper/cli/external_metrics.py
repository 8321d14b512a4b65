"""`slotkeeper external-metrics`: the number of workers for a plain HPA, as an API of the cluster."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click
import structlog

from slotkeeper.cli import options
from slotkeeper.cli.logs import set_up_logs
from slotkeeper.metrics.external_metrics import external_metrics_app
from slotkeeper.metrics.external_metrics_server import TlsFiles, TlsServer
from slotkeeper.metrics.scaling import PoolNumbers, ScalingSettings

_log = structlog.stdlib.get_logger()
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
#: After SIGTERM requests are answered for so long (seconds) while the cluster learns that this replica goes.
_LINGER = 3.0


@click.command("external-metrics")
@options.dsn
@options.option("--tls-cert-file", type=_FILE, required=True, help="PEM: the serving certificate and its chain.")
@options.option("--tls-private-key-file", type=_FILE, required=True, help="PEM: its key.")
@options.option("--requestheader-client-ca-file", type=_FILE, required=True,
                help="PEM: the CA of the API server's front-proxy client certificate.")  # fmt: skip
@options.option("--requestheader-allowed-names", callback=options.comma_separated,
                help="Common names of that certificate, comma-separated. Default: any.")  # fmt: skip
@options.option("--secure-port", type=click.IntRange(0, 65535), default=8443, show_default=True, help="Of HTTPS.")
@options.scaling
@options.log_format
@options.log_level
def external_metrics(
    dsn: str, tls_cert_file: Path, tls_private_key_file: Path, requestheader_client_ca_file: Path,
    requestheader_allowed_names: tuple[str, ...], secure_port: int, scaling: ScalingSettings, log_format: str,
    log_level: str,
) -> None:  # fmt: skip
    """Serves external.metrics.k8s.io/v1beta1, so that a plain HPA scales worker pools.

    One provider of this API per cluster: not beside KEDA or prometheus-adapter's external metrics.
    """
    set_up_logs(log_format, log_level)
    numbers = PoolNumbers(dsn, scaling)
    files = TlsFiles(tls_cert_file, tls_private_key_file, requestheader_client_ca_file)
    numbers.actor.start()
    asyncio.run(_serve(numbers, files, secure_port, requestheader_allowed_names))
    numbers.actor.stop()


async def _serve(numbers: PoolNumbers, files: TlsFiles, port: int, allowed_names: tuple[str, ...]) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    app = external_metrics_app(numbers, allowed_names=allowed_names, ready=lambda: not stopping.is_set())
    server = TlsServer(app, files, port=port)
    await server.start()
    _log.info("serving", port=server.port)
    follower = asyncio.create_task(server.follow_files())
    await stopping.wait()
    await asyncio.sleep(_LINGER)
    follower.cancel()
    await server.stop()

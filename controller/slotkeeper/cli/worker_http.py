"""What a worker serves over HTTP: joins probes and metrics with its supervisor.

Imported only where something is to be served: the HTTP library costs every start a fifth of a second.
"""

from __future__ import annotations

import asyncio

import structlog

from slotkeeper.metrics.address import Address
from slotkeeper.metrics.exposition import metrics_routes
from slotkeeper.metrics.reading import DatabaseReader
from slotkeeper.metrics.server import HttpServer, probe_routes, turns
from slotkeeper.metrics.worker import WorkerMetrics
from slotkeeper.worker import Supervisor, WorkerSettings
from slotkeeper.worker.counts import OUTCOMES

_log = structlog.stdlib.get_logger()

#: A worker's loop that does not turn within this time (seconds) does not keep its lease either.
_TURN_SECONDS = 3.0


def serve_worker(address: Address, supervisor: Supervisor, settings: WorkerSettings) -> HttpServer:
    """Serves probes and metrics of the worker whose event loop is the running one. Raises InvalidField that names
    ``--listen`` when it cannot listen there.
    """
    loop = asyncio.get_running_loop()
    metrics = WorkerMetrics(
        supervisor,
        DatabaseReader(settings.dsn, "metrics"),
        pool=settings.pool,
        concurrency=settings.concurrency,
        outcomes=OUTCOMES,
    )

    async def live_problem() -> str | None:
        return None if await turns(loop, _TURN_SECONDS) else f"its loop has not turned for {_TURN_SECONDS:.0f} s"

    async def ready_problem() -> str | None:
        return None if supervisor.ready else "takes no runs: it drains, or has no lease"

    server = HttpServer(address, (probe_routes(live_problem, ready_problem), metrics_routes(metrics.families)))
    server.start()
    _log.info("listening", port=server.port)
    return server

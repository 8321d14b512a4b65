"""What a controller serves over HTTP: joins probes, metrics and the numbers for autoscaling with its actors.

Imported only where something is to be served: the HTTP library costs every start a fifth of a second.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from slotkeeper.actor import Actor
from slotkeeper.keeper import Keeper
from slotkeeper.metrics.address import Address
from slotkeeper.metrics.controller import ControllerFacts, ControllerMetrics
from slotkeeper.metrics.exposition import metrics_routes
from slotkeeper.metrics.reading import DatabaseReader
from slotkeeper.metrics.scaling import PoolNumbers, ScalingSettings
from slotkeeper.metrics.scaling_collector import ScalingCollector
from slotkeeper.metrics.scaling_endpoint import add_scaling_routes
from slotkeeper.metrics.schedules import ScheduleMetrics
from slotkeeper.metrics.server import HttpServer, probe_routes
from slotkeeper.ticker import Ticker

if TYPE_CHECKING:
    from slotkeeper.operator import Operator

_log = structlog.stdlib.get_logger()

#: A step of a controller's loop that takes longer than this (seconds) hangs. A database that is away or slow ends a
#: step much sooner, and is no reason to restart anything.
STUCK_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class ControllerParts:
    """The actors of one controller process; ``stopping`` is set when it begins to end."""

    ticker: Ticker
    keeper: Keeper
    stopping: threading.Event
    operator: Operator | None = None

    @property
    def actors(self) -> Sequence[Actor]:
        """Every loop of this process that works on the database."""
        operator = self.operator
        of_operator = [] if operator is None else [operator.syncer.actor, operator.statuses.actor]
        return [self.ticker.actor, *self.keeper.actors, *of_operator]

    def facts(self) -> ControllerFacts:
        """What this process counts itself."""
        failures = {actor.name: actor.failures for actor in self.actors}
        slots, expirations = self.ticker.slots_materialised, self.keeper.lease_expirations
        retained_at = self.keeper.retained_at
        if self.operator is None:
            return ControllerFacts(
                slots_materialised=slots,
                lease_expirations=expirations,
                actor_failures=failures,
                retained_at=retained_at,
            )
        leads, report = self.operator.leadership.leads, self.operator.syncer.last_resync
        missing = self.operator.gateway.permissions.missing
        return ControllerFacts(
            slots_materialised=slots,
            lease_expirations=expirations,
            actor_failures=failures,
            leads=leads,
            pump_restarts={pump.namespace or "*": pump.restarts for pump in self.operator.pumps},
            braked={} if report is None else report.braked,
            failed={} if report is None else dict.fromkeys(report.failed, True),
            resync_ages=self.operator.syncer.resync_ages if leads else {},
            missing_permissions=[(entry.verb, entry.resource, entry.place) for entry in missing],
            retained_at=retained_at,
        )

    async def live_problem(self) -> str | None:
        """For the liveness probe."""
        if self.stopping.is_set():
            return None
        dead = [actor.name for actor in self.actors if not actor.alive]
        if self.operator is not None and not self.operator.alive:
            dead.append("operator")
        stuck = [actor.name for actor in self.actors if actor.step_seconds > STUCK_SECONDS]
        if dead or stuck:
            return f"loops that have ended: {', '.join(dead) or 'none'}; that hang: {', '.join(stuck) or 'none'}"
        return None


def controller_http(
    address: Address, parts: ControllerParts, *, dsn: str, cluster: str, most_schedules: int,
    scaling: ScalingSettings | None = None, scaling_token_file: Path | None = None,
) -> ControllerHttp:  # fmt: skip
    """Probes, metrics and the numbers for autoscaling, to be started with the actors. Raises InvalidField that names
    ``--listen`` when it cannot listen there.
    """
    readers = [DatabaseReader(dsn, name) for name in ("probes", "metrics", "schedule metrics")]
    probe_reader, reader, schedule_reader = readers
    numbers = PoolNumbers(dsn, scaling)
    metrics = ControllerMetrics(parts.facts, probe_reader, reader, cluster)

    async def ready_problem() -> str | None:
        return "stopping" if parts.stopping.is_set() else await metrics.database_problem()

    def scaling_routes(application: web.Application) -> None:
        add_scaling_routes(application, numbers, scaling_token_file)

    routes = (
        probe_routes(parts.live_problem, ready_problem),
        metrics_routes(metrics.families, collectors=[ScalingCollector(numbers)]),
        ScheduleMetrics(schedule_reader, cluster, most_schedules).register,
        scaling_routes,
    )
    return ControllerHttp(HttpServer(address, routes), readers, numbers)


class ControllerHttp:
    """A controller's server with what reads for it."""

    def __init__(self, server: HttpServer, readers: Sequence[DatabaseReader], numbers: PoolNumbers) -> None:
        self._server = server
        self._readers = readers
        self._numbers = numbers

    @property
    def port(self) -> int:
        """That it listens on."""
        return self._server.port

    def start(self) -> None:
        """Serves."""
        self._numbers.actor.start()
        self._server.start()
        _log.info("listening", port=self._server.port)

    def stop(self) -> None:
        """The last to end: until then the probes tell that the rest is ending."""
        self._server.stop()
        self._numbers.actor.stop(seconds=1)
        for reader in self._readers:
            reader.close()

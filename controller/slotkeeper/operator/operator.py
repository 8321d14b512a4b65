"""Wires the operator together: a pump per watched scope, the syncer, the status writer, and who leads.

The libraries for Kubernetes are imported when an operator is made, so that whoever only applies objects does not
need them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slotkeeper.operator.leadership import Leadership
from slotkeeper.operator.resync import scopes_of
from slotkeeper.operator.status import StatusWriter
from slotkeeper.operator.syncer import Syncer


class Operator:
    """One replica's. Any number may run; one of them leads.

    ``direct_dsn`` leads to the server itself, not to a pooler. ``namespaces`` None: all of them. ``adopt``: take
    over the schedules that are stored under this cluster's name though another cluster made them. ``kubeconfig``
    None: the pod's service account, or else the user's configuration.
    """

    def __init__(
        self,
        dsn: str,
        *,
        direct_dsn: str | None = None,
        cluster: str = "default",
        namespaces: Sequence[str] | None = None,
        kubeconfig: Path | None = None,
        context: str | None = None,
        adopt: bool = False,
        resync_seconds: float = 300,
    ) -> None:
        from slotkeeper.operator.kubernetes_gateway import KubernetesGateway
        from slotkeeper.operator.pump import Pump

        self.gateway = KubernetesGateway(kubeconfig, context=context)
        self.leadership = Leadership(direct_dsn or dsn, cluster)
        self.statuses = StatusWriter(dsn, cluster, self.gateway, self.leadership)
        self.syncer = Syncer(
            dsn,
            cluster,
            self.gateway,
            self.leadership,
            self.statuses,
            namespaces=namespaces,
            adopt=adopt,
            resync_seconds=resync_seconds,
        )
        self.pumps = [
            Pump(scope, self.gateway, self.syncer.mark, self.syncer.watch_began) for scope in scopes_of(namespaces)
        ]
        self._started = False

    def start(self) -> None:
        """Starts every thread and returns at once; what is not there yet (database, API server, CRD) is waited for.

        Raises InvalidField, and starts nothing, when ``direct_dsn`` leads through a pooler.
        """
        self.leadership.refuse_pooler()
        self._started = True
        self.syncer.actor.start()
        self.statuses.actor.start()
        for pump in self.pumps:
            pump.start()

    def stop(self, *, seconds: float = 10) -> None:
        """Ends every thread, gives leadership up at once, and waits for each thread at most ``seconds``."""
        for pump in self.pumps:
            pump.request_stop()
        self.gateway.request_stop()
        if self._started:
            self.syncer.actor.stop(seconds=seconds)
            self.statuses.actor.stop(seconds=seconds)
        else:
            self.syncer.close()
            self.statuses.close()
        self.leadership.close()
        for pump in self.pumps:
            pump.stop(seconds=seconds)
        self.gateway.close()

    @property
    def alive(self) -> bool:
        """Whether every thread runs: for the liveness probe."""
        return self.syncer.actor.alive and self.statuses.actor.alive and all(pump.alive for pump in self.pumps)

    @property
    def ready(self) -> bool:
        """Whether this replica does its part: it leads and has synced once, or another one leads."""
        return not self.leadership.leads or self.syncer.last_resync is not None

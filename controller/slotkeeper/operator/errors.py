"""What can go wrong between the operator and a Kubernetes API server."""

from __future__ import annotations

from slotkeeper.errors import SlotkeeperError


class KubernetesError(SlotkeeperError):
    """The API server refused a request; ``status`` is the HTTP status, 0 when there was no answer."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class KubernetesForbidden(KubernetesError):
    """The API server answered 403. Where it lacks a right, the gateway has told which; it may be there later."""


class KubernetesUnavailable(KubernetesError):
    """The API server cannot be reached, is overloaded or failed (429, 5xx), after several tries; try again later."""


class AnotherCluster(SlotkeeperError):
    """The cluster's name is bound to another identity in the database: nothing is synced until it is told to adopt."""


class LeadershipLost(SlotkeeperError):
    """Another replica leads, or none that is known: this one writes nothing more."""

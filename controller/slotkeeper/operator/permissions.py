"""Which permissions the API server refuses, so that the log and a metric can name them and nobody keeps knocking.

Filled from what the API server answers; knows no Kubernetes client and asks nothing itself. What is refused in one
namespace is no reason to stop in another, so every entry has a verb, a resource and a namespace.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from slotkeeper.spec import API_GROUP

_log = structlog.stdlib.get_logger()

#: Seconds between two warnings of one permission. Those of a namespace that are found together are one warning.
QUIET_SECONDS = 600.0

JOBSCHEDULES, STATUS, EVENTS, NAMESPACES = "jobschedules", "jobschedules/status", "events", "namespaces"
#: The namespace whose UID says which cluster this is.
SYSTEM_NAMESPACE = "kube-system"


@dataclass(frozen=True, slots=True)
class Permission:
    """One verb on one resource. ``namespace`` None: in all of them."""

    verb: str
    resource: str
    namespace: str | None

    @property
    def group(self) -> str:
        """The resource's API group; empty for the core."""
        return "" if self.resource in (EVENTS, NAMESPACES) else API_GROUP

    @property
    def place(self) -> str:
        """The namespace as it is shown: ``*`` for all of them."""
        return self.namespace or "*"


def needed(scopes: Sequence[str | None]) -> list[Permission]:
    """All that a controller of these scopes uses; a scope is a namespace, or None for all of them."""
    uses = [
        *((JOBSCHEDULES, verb) for verb in ("get", "list", "watch")),
        (STATUS, "patch"), *((EVENTS, verb) for verb in ("create", "patch")),
    ]  # fmt: skip
    return [
        Permission("get", NAMESPACES, SYSTEM_NAMESPACE),
        *(Permission(verb, resource, scope) for scope in scopes for resource, verb in uses),
    ]


class Permissions:
    """Those of one API server that are missing now. Safe between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._missing: set[Permission] = set()
        self._warned_at: dict[Permission, float] = {}

    def refused(self, permission: Permission) -> bool:
        """The API server does not allow it. True: there was no warning of it lately, so ``tell``."""
        with self._lock:
            if permission.namespace is not None and self._everywhere(permission) in self._missing:
                return False
            self._missing.add(permission)
            return self._is_news(permission)

    def tell(self, namespace: str | None, said: str) -> None:
        """One warning of all that is missing in a namespace and was not warned of lately; none if there is nothing."""
        with self._lock:
            news = [entry for entry in self._missing if entry.namespace == namespace and self._is_news(entry)]
            self._warned_at.update(dict.fromkeys(news, self._clock()))
        if news:
            _log.warning(
                "permission_missing",
                namespace=namespace or "*",
                missing=", ".join(sorted(f"{entry.verb} {entry.resource}" for entry in news)),
                said=said,
                hint="all else goes on; grant it by the chart's rbac.create, or by a Role and RoleBinding of your own",
            )

    def granted(self, permission: Permission) -> None:
        """The API server allows it."""
        if permission not in self._missing:
            return  # nearly always
        with self._lock:
            self._missing.discard(permission)
        _log.info(
            "permission_granted",
            verb=permission.verb,
            resource=permission.resource,
            namespace=permission.place,
        )

    def forget(self, permission: Permission) -> None:
        """Nobody knows whether it is missing still: whoever needs it may try."""
        with self._lock:
            self._missing.discard(permission)

    def is_missing(self, permission: Permission) -> bool:
        """Whether it was refused when it was last asked for, there or in all namespaces."""
        return permission in self._missing or self._everywhere(permission) in self._missing

    @property
    def missing(self) -> list[Permission]:
        """All that are missing, in order."""
        with self._lock:
            return sorted(self._missing, key=lambda entry: (entry.place, entry.resource, entry.verb))

    def _is_news(self, permission: Permission) -> bool:
        return self._clock() - self._warned_at.get(permission, float("-inf")) >= QUIET_SECONDS

    @staticmethod
    def _everywhere(permission: Permission) -> Permission:
        return Permission(permission.verb, permission.resource, None)

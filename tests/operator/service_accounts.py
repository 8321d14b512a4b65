"""ServiceAccounts for controllers, with the rules that the chart renders, less what a test takes away."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from api_server import ApiServer

from helm_chart import DATABASE, render

Object = dict[str, Any]
#: (verb, resource), as `slotkeeper.operator.permissions` names them.
Right = tuple[str, str]
_RBAC = "rbac.authorization.k8s.io"
_LABEL = {"slotkeeper-test": str(os.getpid())}
_numbers = itertools.count(1)


def rules_of_the_chart(*, system: bool = False) -> list[Object]:
    """The rules of the controller's Role in a namespace that it watches, or of the one in kube-system."""
    values = {**DATABASE, "controller": {"namespaces": ["watched"]}, "rbac": {"aggregateClusterRoles": False}}
    namespace = "kube-system" if system else "watched"
    [role] = [
        obj for obj in render(values) if obj["kind"] == "Role" and obj["metadata"]["namespace"] == namespace
    ]  # fmt: skip
    rules: list[Object] = role["rules"]
    return rules


def rights_of(rules: Iterable[Object]) -> list[Right]:
    return [(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]]


def without(rules: Iterable[Object], missing: Right | None) -> list[Object]:
    """The rules with one verb on one resource taken out."""
    kept = []
    for rule in rules:
        for resource in rule["resources"]:
            verbs = [verb for verb in rule["verbs"] if (verb, resource) != missing]
            if verbs:
                kept.append({**rule, "resources": [resource], "verbs": verbs})
    return kept


@dataclass(frozen=True)
class ServiceAccount:
    """One, and its way to the API server."""

    name: str
    namespace: str
    kubeconfig: Path

    def role(self, namespace: str, rules: Sequence[Object]) -> list[Object]:
        """A Role with these rules and its binding, to be applied."""
        metadata = {"name": self.name, "namespace": namespace, "labels": _LABEL}
        return [
            {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": list(rules)},
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "RoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": self.name},
                "subjects": [{"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}],
            },
        ]


def new_service_account(api_server: ApiServer, namespace: str, folder: Path) -> ServiceAccount:
    """Without any rights yet."""
    name = f"controller-{os.getpid()}-{next(_numbers)}"
    api_server.kubectl("-n", namespace, "create", "serviceaccount", name)
    token = api_server.kubectl("-n", namespace, "create", "token", name).stdout.strip()
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    config["users"] = [{"name": config["contexts"][0]["context"]["user"], "user": {"token": token}}]
    kubeconfig = folder / f"{name}.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    return ServiceAccount(name, namespace, kubeconfig)


@contextmanager
def roles_removed(api_server: ApiServer) -> Iterator[None]:
    """What the block gave in kube-system is gone after it; the tests' own namespaces nobody uses again."""
    try:
        yield
    finally:
        [(label, value)] = _LABEL.items()
        api_server.kubectl("-n", "kube-system", "delete", "role,rolebinding", "-l", f"{label}={value}")

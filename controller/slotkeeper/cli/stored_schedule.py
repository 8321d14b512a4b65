"""A schedule by its name: as the cluster has the object, or as the database has it in force. Only reads."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slotkeeper.cli.schedule_files import schedule_of
from slotkeeper.errors import InvalidField
from slotkeeper.foresight import Schedule
from slotkeeper.spec import parse_spec
from slotkeeper.spec.instants import format_instant, parse_instant
from slotkeeper.spec.metadata import is_label, is_subdomain
from slotkeeper.store import schedules as store
from slotkeeper.store.connection import Session
from slotkeeper.timing import timing

#: In front of a name it says that this is none of a file, as with kubectl.
_TYPES = ("jsched", "jobschedule", "jobschedules", "jobschedules.slotkeeper.dev")
_FILE_BEGINNINGS, _FILE_ENDINGS = ("./", "../", "/", "~"), (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Name:
    """A schedule of the cluster; ``namespace`` None: that of the kubeconfig's context."""

    namespace: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Places:
    """Where schedules are looked for by name: the database if there is a DSN, else the cluster."""

    kubeconfig: Path | None
    context: str | None
    dsn: str | None
    cluster_name: str


def name_or_file(argument: str, namespace: str | None) -> Name | None:
    """The name that an argument is; None where it means a file: there is one, or it is written as one.

    Raises InvalidField where it can be neither.
    """
    type_, slash, rest = argument.partition("/")
    if slash and type_ in _TYPES:
        return _name(argument, namespace, rest)
    written_as_file = (
        argument == "-" or argument.startswith(_FILE_BEGINNINGS) or argument.endswith(_FILE_ENDINGS)
    )  # fmt: skip
    if written_as_file or argument.count("/") > 1 or os.path.exists(argument):  # noqa: PTH110 - Path's raises where a folder is closed or the name too long
        return None
    return _name(argument, type_, rest) if slash else _name(argument, namespace, argument)


def _name(argument: str, namespace: str | None, name: str) -> Name:
    if not is_subdomain(name) or not (namespace is None or is_label(namespace)):
        raise InvalidField(
            "FILE|NAME",
            f"{argument!r} is no file here, and not the name of a schedule",
            instead="write a file, NAME, or NAMESPACE/NAME",
        )
    return Name(namespace, name)


def find(name: Name, places: Places) -> Schedule | None:
    """The schedule of that name, None when there is none.

    Raises InvalidField when the object says what cannot be accepted, and KubernetesError or DatabaseError.
    """
    return _in_cluster(name, places) if places.dsn is None else _in_database(name, places.dsn, places.cluster_name)


def _in_cluster(name: Name, places: Places) -> Schedule | None:
    # The client is slow to import, and files need none.
    from slotkeeper.operator.kubernetes_gateway import KubernetesGateway

    with closing(KubernetesGateway(places.kubeconfig, context=places.context)) as gateway:
        found = gateway.get(name.namespace or gateway.own_namespace(), name.name)
    if found is None:
        return None
    status = _mapping(found.get("status"))
    try:
        schedule = schedule_of(found)
    except InvalidField as error:
        raise _with_generation_in_force(error, status) from error
    ready = _condition(status, "Ready")
    held = str(ready.get("message")) if ready.get("reason") == "Held" else None
    since = status.get("effectiveTime") if _is_in_force(found, status) else None
    return replace(schedule, held=held, decided_until=None if since is None else parse_instant(str(since)))


def _in_database(name: Name, dsn: str, cluster: str) -> Schedule | None:
    key = (name.namespace or "default", name.name)
    with closing(Session(dsn, "preview")) as session:
        row = store.find(session, cluster, [key]).get(key)
        if row is None or row.retired:
            return None
        with session.transaction() as connection:
            version = store.versions(connection, [row.owner_version])[row.owner_version]
    spec = parse_spec({**version.spec, "payload": json.loads(version.payload)})
    # While the newest spec is refused, its `suspend` is honoured all the same.
    spec = replace(spec, suspend=row.suspended)
    return Schedule(
        namespace=row.namespace,
        name=row.name,
        spec=spec,
        timing=timing(row.namespace, row.name, spec),
        trigger_key=row.trigger_key,
        held=_held(row),
        decided_until=row.watermark,
    )


def _held(row: store.StoredSchedule) -> str | None:
    if row.unwatched:
        return "its namespace is not watched any more: there are no new slots"
    if not row.held:
        return None
    if row.hold is None:
        return "held: there are no slots"
    until = "until it is released" if row.hold.until is None else f"until {format_instant(row.hold.until)}"
    return f"held by {row.hold.held_by} (login {row.hold.login}) {until}: {row.hold.reason}"


def _is_in_force(obj: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    generation: object = _mapping(obj.get("metadata")).get("generation")
    return generation is not None and status.get("acceptedGeneration") == generation


def _with_generation_in_force(error: InvalidField, status: Mapping[str, Any]) -> InvalidField:
    accepted = status.get("acceptedGeneration")
    if accepted is None:
        return error
    problem = f"{error.problem} (generation {accepted} stays in force; --dsn shows its slots)"
    return type(error)(error.field, problem, instead=error.instead)


def _condition(status: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    conditions = status.get("conditions") or ()
    return next((entry for entry in conditions if entry.get("type") == type_), {})


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

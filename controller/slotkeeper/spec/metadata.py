"""What the API server asks of an object's apiVersion, kind and metadata, for objects that come from a file.

The CRD's schema says nothing about these; the rules are Kubernetes' own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from slotkeeper.errors import InvalidField
from slotkeeper.spec.wording import instead_of_unknown, json_type, shown

API_GROUP = "slotkeeper.dev"
API_VERSION = f"{API_GROUP}/v1beta1"
KIND = "JobSchedule"

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_DNS_LABEL = re.compile(_LABEL, re.ASCII)
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_METADATA_FIELDS = {
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
}


def metadata_findings(obj: Mapping[str, object]) -> list[InvalidField]:
    """Every finding in ``obj``'s apiVersion, kind and metadata."""
    return list(_findings(obj))


def is_subdomain(text: str) -> bool:
    """Whether ``text`` is a DNS subdomain of at most 253 characters, as names of objects are."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Whether ``text`` is a DNS label of at most 63 characters, as names of namespaces are."""
    return len(text) <= 63 and _DNS_LABEL.fullmatch(text) is not None


def _findings(obj: Mapping[str, object]) -> Iterator[InvalidField]:
    for field, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if obj.get(field) != wanted:
            yield InvalidField(field, f"{shown(obj.get(field))} is not known", instead=f"write {wanted}")
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        problem = "is required" if metadata is None else f"must be of type object, not {json_type(metadata)}"
        yield InvalidField("metadata", problem, instead="write metadata: {name: …}")
        return
    for name in metadata:
        if name not in _METADATA_FIELDS:
            instead = instead_of_unknown(str(name), _METADATA_FIELDS, {})
            yield InvalidField(f"metadata.{name}", "unknown field", instead=instead)
    yield from _names(metadata)
    yield from _texts(metadata, "labels")
    yield from _texts(metadata, "annotations")


def _names(metadata: Mapping[str, object]) -> Iterator[InvalidField]:
    name, namespace = metadata.get("name"), metadata.get("namespace", "default")
    if name is None:
        yield InvalidField("metadata.name", "is required", instead="write the name of the schedule")
    elif not isinstance(name, str) or not is_subdomain(name):
        yield InvalidField(
            "metadata.name",
            f"{shown(name)} is not the name of an object",
            instead="write up to 253 lower-case letters, digits, '-' and '.', with no sign at an end",
        )
    if not isinstance(namespace, str) or not is_label(namespace):
        yield InvalidField(
            "metadata.namespace",
            f"{shown(namespace)} is not the name of a namespace",
            instead="write up to 63 lower-case letters, digits and '-', with no sign at an end",
        )


def _texts(metadata: Mapping[str, object], field: str) -> Iterator[InvalidField]:
    values = metadata.get(field, {})
    if not isinstance(values, Mapping):
        yield InvalidField(
            f"metadata.{field}",
            f"must be of type object, not {json_type(values)}",
            instead="write key: value",
        )
        return
    for key, value in values.items():
        path = f"metadata.{field}.{key}"
        # Kubernetes lets annotations, but not labels, have capitals in front of the slash.
        if not _is_qualified(str(key).lower() if field == "annotations" else str(key)):
            yield InvalidField(path, "its key is not a label name", instead="write it as example.com/name")
        if not isinstance(value, str):
            problem = f"must be of type string, not {json_type(value)}: {shown(value)}"
            yield InvalidField(path, problem, instead=f'write it in quotes: "{value}"')
        elif field == "labels" and value and (len(value) > 63 or not _QUALIFIED.fullmatch(value)):
            yield InvalidField(
                path,
                f"{shown(value)} is not the value of a label",
                instead="write at most 63 letters, digits, '-', '_' and '.', or make it an annotation",
            )


def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix):
        return False
    return 0 < len(name) <= 63 and _QUALIFIED.fullmatch(name) is not None

"""The CRD as the one place of defaults and rules: filling in and checking as the API server does.

For files that never meet an API server (``slotkeeper dev``, ``lint``). The operator needs only ``parse``.
Checking needs jsonschema and cel-python, which come with the extra ``slotkeeper[dev]`` and are imported on
first use.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cache

import yaml

from slotkeeper.errors import InvalidField
from slotkeeper.resources import resource_folder
from slotkeeper.spec.metadata import metadata_findings

Schema = Mapping[str, object]


@cache
def custom_resource_definition() -> Mapping[str, object]:
    """The CustomResourceDefinition of JobSchedule, as in ``crds/jobschedules.yaml``; do not change it."""
    text = (resource_folder("crds") / "jobschedules.yaml").read_text(encoding="utf-8")
    definition = yaml.safe_load(text)
    if not isinstance(definition, dict):
        raise TypeError("crds/jobschedules.yaml does not hold one object")
    return definition


@cache
def object_schema() -> Schema:
    """The OpenAPI v3 schema of the one version of JobSchedule."""
    spec = custom_resource_definition()["spec"]
    assert isinstance(spec, dict)  # noqa: S101 - our own file
    (version,) = spec["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def apply_defaults(obj: Mapping[str, object]) -> dict[str, object]:
    """A copy of ``obj`` as client-side apply and the API server would store it.

    Nulls are removed from objects at every level, the payload included; then defaults are filled in, those of
    the children of a defaulted parent too.
    """
    result = _without_nulls(obj)
    assert isinstance(result, dict)  # noqa: S101 - a mapping stays one
    _fill_in(result, object_schema())
    return result


def check(obj: Mapping[str, object]) -> list[InvalidField]:
    """All that the API server would refuse in ``obj`` under strict validation, in the order of the fields.

    Defaults are filled in first, on a copy. Empty when the object would be stored. Of the status only unknown
    fields are told: the API server drops what a user writes there. Raises ImportError, saying which extra to
    install, where jsonschema or cel-python is missing.
    """
    try:
        from slotkeeper.spec.rules import rule_findings
        from slotkeeper.spec.structure import structure_findings
    except ImportError as error:
        raise ImportError(f"checking needs the extra slotkeeper[dev]: {error}") from error
    stored = apply_defaults(obj)
    findings = [*metadata_findings(stored), *structure_findings(stored, object_schema())]
    spec = stored.get("spec")
    if isinstance(spec, dict):
        findings += rule_findings(spec, properties(object_schema())["spec"], "spec", findings)
    return findings


def properties(schema: Schema) -> Mapping[str, Schema]:
    """The schemas of an object's fields by name; empty for anything else."""
    value = schema.get("properties", {})
    assert isinstance(value, Mapping)  # noqa: S101 - our own file
    return value


def item_schema(schema: Schema) -> Schema | None:
    """The schema of a list's items, None for anything but a list."""
    value = schema.get("items")
    assert value is None or isinstance(value, Mapping)  # noqa: S101 - our own file
    return value


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every field of ``schema`` with its path, parents first; items of a list are ``path[]``."""
    for name, child in properties(schema).items():
        child_path = f"{path}.{name}" if path else name
        yield child_path, child
        yield from walk(child, child_path)
    items = item_schema(schema)
    if items is not None:
        yield f"{path}[]", items
        yield from walk(items, f"{path}[]")


def _without_nulls(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _fill_in(value: object, schema: Schema) -> None:
    if isinstance(value, dict):
        for name, child in properties(schema).items():
            if name not in value and "default" in child:
                value[name] = copy.deepcopy(child["default"])
            if name in value:
                _fill_in(value[name], child)
    elif isinstance(value, list):
        items = item_schema(schema)
        if items is not None:
            for item in value:
                _fill_in(item, items)

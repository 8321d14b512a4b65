"""The CRD itself: what users read in `kubectl explain`, and what later versions could not mend."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from slotkeeper.spec import JobScheduleSpec, TaskAction, canonical, custom_resource_definition
from slotkeeper.spec.jobschedule import Every, HttpAction
from slotkeeper.spec.schema import apply_defaults, object_schema, properties, walk
from slotkeeper.spec.structure import CHECKED_KEYWORDS

FIELDS = dict(walk(object_schema()))
OURS = {path: field for path, field in FIELDS.items() if path != "metadata"}
NOT_CHECKED = {
    "default",
    "description",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}


def _version() -> dict[str, Any]:
    definition: Any = custom_resource_definition()
    (version,) = definition["spec"]["versions"]
    result: dict[str, Any] = version
    return result


def test_names() -> None:
    definition: Any = custom_resource_definition()
    assert definition["metadata"]["name"] == "jobschedules.slotkeeper.dev"
    assert definition["spec"]["names"]["shortNames"] == ["jsched"]
    assert definition["spec"]["names"]["categories"] == ["slotkeeper"]
    assert [field["jsonPath"] for field in _version()["selectableFields"]] == [".spec.suspend", ".spec.queue"]
    assert _version()["subresources"] == {"status": {}}


def test_columns() -> None:
    columns = _version()["additionalPrinterColumns"]
    always = [column["name"].upper() for column in columns if not column.get("priority")]
    wide = [column["name"].upper() for column in columns if column.get("priority") == 1]
    assert always == ["SCHEDULE", "TZ", "SUSPEND", "LAST", "LAST OK", "NEXT", "READY", "AGE"]
    assert wide == ["DEAD", "QUEUE", "OVERLAP", "CATCHUP", "HEALTHY"]
    # kubectl prints a date that lies in the future as <invalid>.
    assert {column["name"]: column["type"] for column in columns}["Next"] == "string"


@pytest.mark.parametrize("path", OURS)
def test_every_field_is_described(path: str) -> None:
    assert str(OURS[path].get("description", "")).endswith((".", "both run."))


@pytest.mark.parametrize("path", [path for path, field in OURS.items() if path.startswith("spec.")])
def test_descriptions_tell_defaults_and_bounds(path: str) -> None:
    """`kubectl explain` shows neither."""
    field = FIELDS[path]
    text = str(field["description"])
    for bound in ("minimum", "maximum"):
        if bound in field:
            assert str(field[bound]) in text
    if "maxLength" in field:
        assert str(field["maxLength"]) in text
    if "maxItems" in field:
        assert str(field["maxItems"]) in text
    if field.get("default", {}) != {}:
        assert f"Default {_as_written(field['default'])}" in text


def _as_written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@pytest.mark.parametrize("path", OURS)
def test_everything_is_bounded_and_atomic(path: str) -> None:
    field: Any = OURS[path]
    if field["type"] == "array":
        assert "maxItems" in field
        wanted = "map" if path == "status.conditions" else "atomic"
        assert field["x-kubernetes-list-type"] == wanted
    if field["type"] == "string" and "enum" not in field and path not in ("apiVersion", "kind"):
        assert "maxLength" in field or field["format"] == "date-time"
    if (
        field["type"] == "object"
        and "properties" in field
        and "required" not in field
        and path not in ("spec", "status")
    ):
        nested_defaults = any("default" in child for child in properties(field).values())
        assert ("default" in field) == nested_defaults
    for rule in field.get("x-kubernetes-validations", ()):
        assert rule["message"]


@pytest.mark.parametrize("path", OURS)
def test_only_keywords_that_are_checked_offline(path: str) -> None:
    assert set(OURS[path]) <= CHECKED_KEYWORDS | NOT_CHECKED


def test_an_object_nobody_has_seen_is_not_healthy() -> None:
    assert FIELDS["status"]["default"] == {"observedGeneration": -1}


def test_the_payload_belongs_to_one_manager() -> None:
    assert FIELDS["spec.payload"]["x-kubernetes-map-type"] == "atomic"
    assert FIELDS["spec.payload"]["x-kubernetes-preserve-unknown-fields"] is True


def test_defaults_of_the_dataclasses_are_those_of_the_crd() -> None:
    minimal = {"spec": {"task": "t", "every": {"periodSeconds": 60}}}
    spec = JobScheduleSpec(action=TaskAction("t"), every=Every(60))
    assert canonical(spec) == apply_defaults(minimal)["spec"]


def test_defaults_of_an_http_action_are_those_of_the_crd() -> None:
    minimal = {"spec": {"cron": ["@daily"], "http": {"url": "https://example.com"}}}
    spec = JobScheduleSpec(action=HttpAction("https://example.com"), cron=("@daily",))
    assert canonical(spec) == apply_defaults(minimal)["spec"]


def test_every_field_of_the_spec_has_a_typed_one() -> None:
    """A field added to the CRD alone would be NotYetSupported for ever."""
    typed = {field.name for field in dataclasses.fields(JobScheduleSpec)}
    named = {_snake(name) for name in properties(FIELDS["spec"])}
    assert named - {"task", "command", "http", "job"} == typed - {"action"}


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)

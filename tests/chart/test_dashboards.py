"""The Grafana dashboards: well-formed by what Grafana needs of them, and about metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from exported_metrics import exported, named
from helm_chart import CHART, find, render

FILES = sorted((CHART / "files" / "dashboards").glob("*.json"))
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_TEXT = {"type": "string", "minLength": 1}
#: What Grafana 10 and later read, as far as we use it.
SCHEMA = {
    "type": "object",
    "required": ["uid", "title", "description", "schemaVersion", "tags", "templating", "panels", "time"],
    "not": {"required": ["id"]},
    "properties": {
        "uid": {"type": "string", "pattern": "^slotkeeper-[a-z-]{1,29}$"},
        "title": _TEXT,
        "schemaVersion": {"type": "integer", "minimum": 36},
        "tags": {"type": "array", "contains": {"const": "slotkeeper"}},
        "templating": {
            "type": "object",
            "properties": {
                "list": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["type", "name", "query"],
                        "properties": {"type": {"enum": ["datasource", "query"]}, "name": _TEXT},
                    },
                }
            },
        },
        "panels": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["id", "type", "title", "gridPos"],
                "properties": {
                    "id": {"type": "integer", "minimum": 1},
                    "type": {"enum": ["row", "stat", "timeseries", "table"]},
                    "title": _TEXT,
                    "gridPos": {
                        "type": "object",
                        "required": ["x", "y", "w", "h"],
                        "properties": {
                            "x": {"type": "integer", "minimum": 0, "maximum": 23},
                            "w": {"type": "integer", "minimum": 1, "maximum": 24},
                            "y": {"type": "integer", "minimum": 0},
                            "h": {"type": "integer", "minimum": 1},
                        },
                    },
                },
                "if": {"properties": {"type": {"not": {"const": "row"}}}},
                "then": {
                    "required": ["datasource", "targets", "fieldConfig", "options"],
                    "properties": {
                        "datasource": {"const": DATASOURCE},
                        "targets": {
                            "type": "array",
                            "minItems": 1,
                            "items": {
                                "type": "object",
                                "required": ["refId", "expr", "datasource"],
                                "properties": {"datasource": {"const": DATASOURCE}, "expr": _TEXT},
                            },
                        },
                    },
                },
            },
        },
    },
}
each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _expressions(dashboard: Any) -> Iterator[str]:
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", []))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


@each_file
def test_it_is_well_formed(file: Path) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(_read(file))


@each_file
def test_panels_have_their_own_numbers_and_places(file: Path) -> None:
    panels = _read(file)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        targets = [target["refId"] for target in panel.get("targets", [])]
        assert len(set(targets)) == len(targets), panel["title"]


def test_dashboards_have_their_own_names() -> None:
    assert {file.stem for file in FILES} == {"fleet", "schedule"}
    assert len({_read(file)["uid"] for file in FILES}) == len(FILES)


@each_file
def test_it_reads_metrics_that_exist(file: Path) -> None:
    known = exported()
    for expression in _expressions(_read(file)):
        metrics = named(expression)
        assert metrics, expression
        assert metrics <= known.keys(), expression


@each_file
def test_variables_are_declared_and_used(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    dashboard = _read(file)
    declared = [variable["name"] for variable in dashboard["templating"]["list"]]
    assert declared[0] == "datasource"
    used = set(re.findall(r"\$\{?([a-z]\w*)", "".join(_expressions(dashboard)))) | {"datasource"}
    assert used == set(declared)
    # A variable's choices may only depend on those before it.
    for earlier, later in pairwise(dashboard["templating"]["list"]):
        assert f"${later['name']}" not in json.dumps(earlier)
    # Counters are read over what Grafana thinks is enough scrapes.
    assert not re.search(r"\[\d+[smh]\]", text)


def test_links_lead_to_a_dashboard_that_is_there() -> None:
    uids = {_read(file)["uid"] for file in FILES}
    for file in FILES:
        assert set(re.findall(r'"/d/([\w-]+)', file.read_text(encoding="utf-8"))) <= uids


def test_the_sidecar_finds_them_as_they_are() -> None:
    objects = render(CHART / "ci" / "everything-values.yaml")
    for file in FILES:
        found = find(objects, "ConfigMap", f"slotkeeper-dashboard-{file.stem}")
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        ((name, text),) = found["data"].items()
        assert name.endswith(".json")
        assert json.loads(text) == _read(file)


def test_none_without_being_asked() -> None:
    minimal = yaml.safe_load((CHART / "ci" / "minimal-values.yaml").read_text(encoding="utf-8"))
    assert not [obj for obj in render(minimal) if obj["kind"] == "ConfigMap"]

"""Thirty wrong objects: each is caught where wrong.yaml says, at the field and in the words that it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from slotkeeper.errors import InvalidField
from slotkeeper.spec import apply_defaults, check, parse_object, read_manifests, unsupported_fields

HERE = Path(__file__).parent
INDEX: list[dict[str, Any]] = yaml.safe_load((HERE / "wrong.yaml").read_text())
# Caught by the timetable: grammar of expressions, names of zones.
MEANING = ("spec.cron", "spec.timeZone")


def _object(entry: dict[str, Any]) -> dict[str, Any]:
    (manifest,) = read_manifests(HERE / "wrong" / entry["file"])
    return manifest.object


def _ids(entries: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entry", entries, ids=lambda entry: entry["file"].removesuffix(".yaml"))


def test_the_index_names_every_file() -> None:
    assert [entry["file"] for entry in INDEX] == sorted(file.name for file in (HERE / "wrong").iterdir())
    assert {entry["caught"] for entry in INDEX} == {"schema", "controller"}
    assert all(("server" in entry) == (entry["caught"] == "schema") for entry in INDEX)
    assert all(("reason" in entry) == (entry["caught"] == "controller") for entry in INDEX)


@_ids([entry for entry in INDEX if entry["caught"] == "schema"])
def test_refused_by_the_schema(entry: dict[str, Any]) -> None:
    (finding,) = check(_object(entry))
    assert finding.field == entry["field"]
    assert entry["text"] in str(finding)


@_ids([entry for entry in INDEX if entry["caught"] == "controller"])
def test_let_through_by_the_schema(entry: dict[str, Any]) -> None:
    assert check(_object(entry)) == []


@_ids([e for e in INDEX if e.get("reason") == "InvalidSpec" and not e["field"].startswith(MEANING)])
def test_refused_by_the_parser(entry: dict[str, Any]) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_object(apply_defaults(_object(entry)))
    assert caught.value.field == entry["field"]
    assert entry["text"] in str(caught.value)


@_ids([entry for entry in INDEX if entry.get("reason") == "NotYetSupported"])
def test_not_yet_supported(entry: dict[str, Any]) -> None:
    schedule = parse_object(apply_defaults(_object(entry)))
    assert unsupported_fields(schedule.spec) == [entry["field"]]


@_ids([entry for entry in INDEX if entry["field"].startswith(MEANING) and entry["caught"] == "controller"])
def test_what_only_the_timetable_refuses_parses(entry: dict[str, Any]) -> None:
    parse_object(apply_defaults(_object(entry)))

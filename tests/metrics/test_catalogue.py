"""Names follow the rules of Prometheus, and the page of names says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slotkeeper.metrics.catalogue import DEFINITIONS, Definition
from slotkeeper.metrics.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "metric-names.md"
UNITS = ("_seconds", "_bytes", "_ratio", "_info")
#: What counts things, names them last.
THINGS = ("_runs", "_slots", "_schedules", "_total", "_restarts_total")
#: Zero or one, or a count of failures.
FLAGS = (
    "_up", "_ready", "_suspended", "_held", "_paused", "_leader", "_failed", "_failures", "_version", "_left_out",
    "_missing", "_never_succeeded",
)  # fmt: skip


def test_the_page_is_made_from_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "run python -m slotkeeper.metrics.reference > docs/metric-names.md"
    )


def test_no_name_is_used_twice() -> None:
    names = [definition.name for definition in DEFINITIONS]
    assert len(names) == len(set(names)) > 30


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.name)
def test_a_name_follows_the_rules(definition: Definition) -> None:
    name = definition.name
    assert re.fullmatch(r"slotkeeper_[a-z]+(_[a-z]+)*", name)
    assert (definition.kind == "counter") == name.endswith("_total")
    assert definition.kind != "histogram" or name.endswith("_seconds")
    assert name.endswith((*UNITS, *THINGS, *FLAGS)), "it names neither a unit nor what it counts"
    assert not name.endswith(("_created", "_bucket", "_count", "_sum"))
    assert not re.search(r"_(ms|minutes|hours|milliseconds)(_|$)", name)
    # A moment is said to be one, and a span of time is not named like one.
    assert ("timestamp" in name) == bool(re.search(r"_timestamp_seconds$", name))


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.name)
def test_a_text_is_one_short_paragraph(definition: Definition) -> None:
    assert re.fullmatch(r"[^\n|\\]{10,400}\.", definition.text)
    assert len(definition.labels) == len(set(definition.labels))
    assert "le" not in definition.labels

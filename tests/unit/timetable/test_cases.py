"""Literal cases: slots worked out elsewhere, refusals by their words, and expressions found in public."""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from slotkeeper.errors import InvalidField
from slotkeeper.timetable import cron_timetable, parse_expression
from unit.timetable.oracle import utc

DATA = Path(__file__).parent / "data"
CASES: list[dict[str, Any]] = yaml.safe_load((DATA / "cases.yaml").read_text())
with (DATA / "expressions.csv").open(newline="") as stream:
    EXPRESSIONS = list(csv.DictReader(stream))


def _named(case: dict[str, Any]) -> str:
    return f"{case['case']}-{case['expression']}"


@pytest.mark.parametrize("case", [c for c in CASES if "slots" in c and "rule" not in c], ids=_named)
def test_slots(case: dict[str, Any]) -> None:
    timetable = cron_timetable([case["expression"]], case["zone"])
    before = utc(case["from"]) - timedelta(seconds=1)
    until = utc(case["to"]) - timedelta(seconds=1)
    assert timetable.window(before, until) == [utc(slot) for slot in case["slots"]]


@pytest.mark.parametrize("case", [c for c in CASES if "refused" in c], ids=_named)
def test_refusals(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidField) as caught:
        cron_timetable(["0 0 * * *", case["expression"]])
    assert caught.value.field == "spec.cron[1]"
    for words in case["refused"]:
        assert words in str(caught.value)


@pytest.mark.parametrize("case", [c for c in CASES if c.get("rule") == "vixie"], ids=_named)
def test_a_different_day_rule_is_told(case: dict[str, Any]) -> None:
    timetable = cron_timetable([case["expression"]], case["zone"])
    assert "Vixie" in (timetable.differs_from_vixie_cron or "")
    slots = timetable.window(utc(case["from"]) - timedelta(seconds=1), utc(case["to"]))
    assert set(slots) > {utc(slot) for slot in case["slots"]}


@pytest.mark.parametrize("row", EXPRESSIONS, ids=lambda row: row["id"])
def test_expressions_found_in_public(row: dict[str, str]) -> None:
    text, zone = row["expression"], row["zone"]
    if row["verdict"].startswith(("refuse", "convert")):
        with pytest.raises(InvalidField):
            parse_expression(text)
    if row["verdict"].startswith("convert: zone"):
        # What convert makes of it: the prefix becomes the zone.
        found = re.fullmatch(r"CRON_TZ=(\S+) (.*)", text)
        assert found is not None
        zone, text = found[1], found[2]
    elif row["verdict"].startswith(("refuse", "convert")):
        return
    timetable = cron_timetable([text], zone)
    expected = [utc(row[k]) for k in ("next_1_utc", "next_2_utc", "next_3_utc") if row[k]]
    start = datetime(2026, 12, 1, tzinfo=UTC) - timedelta(seconds=1)
    found_slots = timetable.window(start, start + timedelta(days=365), limit=3)
    if row["verdict"] == "ok, never fires":
        assert timetable.next(start) is None
    assert found_slots == expected

"""What a person sees who applies JobSchedules with kubectl, on a real API server."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import ApiServer, condition, eventually, settled
from jobschedule_objects import manifest

from slotkeeper.operator import Operator
from slotkeeper.timetable import load_zone
from unit.timetable import oracle

UNIT = Path(__file__).parents[1] / "unit"
WRONG: list[dict[str, Any]] = yaml.safe_load((UNIT / "spec" / "wrong.yaml").read_text())
with (UNIT / "timetable" / "data" / "expressions.csv").open(newline="") as stream:
    EXPRESSIONS = list(csv.DictReader(stream))
#: How far the oracle looks; it reads every minute.
DAYS = 35


def test_wrong_objects_are_refused_by_field(api_server: ApiServer, namespace: str, operator: Operator) -> None:
    said = api_server.kubectl("-n", namespace, "apply", "-f", str(UNIT / "spec" / "wrong"), check=False).stderr
    # kubectl names an object that the schema refuses, and the file of one that it cannot even decode.
    answers = {
        named: answer
        for answer in re.split(r"^(?=Error from server|The JobSchedule)", said, flags=re.MULTILINE)
        for named in re.findall(r'The JobSchedule "([^"]+)" is invalid|/([^/\s"]+\.yaml)"', answer)
        for named in filter(None, named)
    }
    stored = {entry["file"]: _name(entry) for entry in WRONG if entry["caught"] == "controller"}

    def objects() -> dict[str, Any] | None:
        found = api_server.list(namespace)
        return found if all(settled(found.get(name)) for name in stored.values()) else None

    found = eventually(objects, what="every stored object has been looked at")
    assert set(found) == set(stored.values())
    for entry in WRONG:
        if entry["caught"] == "schema":
            answer = answers.get(entry["file"]) or answers[_name(entry)]
            assert entry["server"] in answer, entry["file"]
            assert entry["field"] in answer, entry["file"]
            continue
        obj = found[stored[entry["file"]]]
        ready, stalled = condition(obj, "Ready"), condition(obj, "Stalled")
        assert ready is not None
        assert stalled is not None
        assert (ready["status"], ready["reason"], stalled["status"]) == ("False", entry["reason"], "True")
        assert entry["field"] in ready["message"], entry["file"]
        assert entry["text"] in ready["message"], entry["file"]
        assert "acceptedGeneration" not in obj["status"]


def _name(entry: dict[str, Any]) -> str:
    name: str = yaml.safe_load((UNIT / "spec" / "wrong" / entry["file"]).read_text())["metadata"]["name"]
    return name


@pytest.mark.timeout(180)
def test_public_expressions(api_server: ApiServer, namespace: str, operator: Operator) -> None:
    objects = [
        manifest(row["id"].lower(), namespace, cron=[row["expression"]], **_zone(row), task="t") for row in EXPRESSIONS
    ]
    said = api_server.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(objects), check=False).stderr

    def looked_at() -> dict[str, Any] | None:
        found = api_server.list(namespace)
        return found if found and all(settled(obj) for obj in found.values()) else None

    found = eventually(looked_at, what="every object that was let in has been looked at")
    wrong = []
    for row in EXPRESSIONS:
        obj = found.get(row["id"].lower())
        problem = (
            _problem_of_accepted(row, obj) if row["verdict"].startswith("ok") else _problem_of_refused(row, obj, said)
        )
        if problem:
            wrong.append(f"{row['id']} {row['expression']!r}: {problem}")
    assert not wrong, "\n".join(wrong)
    assert len(EXPRESSIONS) == 60


def _zone(row: dict[str, str]) -> dict[str, str]:
    return {} if row["zone"] == "(none)" else {"timeZone": row["zone"]}


def _problem_of_accepted(row: dict[str, str], obj: Any) -> str | None:
    ready = condition(obj, "Ready")
    if ready is None or ready["status"] != "True":
        return f"not ready: {ready}"
    shown = obj["status"].get("nextScheduleTime")
    if "never fires" in row["verdict"]:
        return None if (shown, ready["reason"]) == (None, "NeverFires") else f"NEXT {shown}, {ready['reason']}"
    since = oracle.utc(obj["status"]["effectiveTime"])
    readings = [reading for reading in _clock(row["zone"]) if reading.instant > since]
    expected = oracle.slots([row["expression"]], readings)[:1]
    if expected:
        return None if oracle.utc(shown) == expected[0] else f"NEXT {shown}, not {expected[0]}"
    return None if shown and oracle.utc(shown) > readings[-1].instant else f"NEXT {shown}, too early"


def _problem_of_refused(row: dict[str, str], obj: Any, said: str) -> str | None:
    if obj is None:
        return None if f'"{row["id"].lower()}" is invalid: spec.cron[0]' in said else "gone without a word"
    ready = condition(obj, "Ready")
    if ready is None or (ready["status"], ready["reason"]) != ("False", "InvalidSpec"):
        return f"accepted: {ready}"
    return None if "spec.cron[0]" in ready["message"] else ready["message"]


@cache
def _clock(zone: str) -> list[oracle.Reading]:
    today = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    return oracle.read_clock(load_zone(zone), today - timedelta(hours=1), today + timedelta(days=DAYS))


def test_columns(api_server: ApiServer, namespace: str, operator: Operator) -> None:
    api_server.apply(
        manifest("report", namespace, cron=["0 0 1 1 *", "30 2 1 1 *"], timeZone="Europe/Berlin"),
        manifest("paused", namespace, every={"periodSeconds": 600}, suspend=True, queue="slow"),
        manifest("once", namespace, at=["2020-01-01T00:00:00Z", "2999-12-31T23:00:00Z"], overlapPolicy="Queue"),
    )
    year = datetime.now(UTC).year

    def table() -> list[list[str]] | None:
        shown = api_server.kubectl("-n", namespace, "get", "jsched", "-o", "wide").stdout.splitlines()
        return (
            _cells(shown) if shown[0].endswith("HEALTHY") and all(row.endswith("True") for row in shown[1:]) else None
        )

    headings, *found = eventually(table, what="three healthy schedules")
    assert headings == [
        "NAME", "SCHEDULE", "TZ", "SUSPEND", "LAST", "LAST OK", "NEXT", "READY", "AGE",
        "DEAD", "QUEUE", "OVERLAP", "CATCHUP", "HEALTHY",
    ]  # fmt: skip
    by_name = {row[0]: dict(zip(headings, row, strict=True)) for row in found}
    assert by_name["report"]["SCHEDULE"] == "0 0 1 1 *;30 2 1 1 *"
    assert by_name["report"]["TZ"] == "Europe/Berlin"
    assert by_name["report"]["NEXT"] == f"{year}-12-31T23:00:00Z"
    assert by_name["report"]["READY"] == "True"
    assert (by_name["paused"]["SCHEDULE"], by_name["paused"]["SUSPEND"]) == ("every 600s", "true")
    assert (by_name["paused"]["NEXT"], by_name["paused"]["QUEUE"], by_name["paused"]["DEAD"]) == ("", "slow", "0")
    assert (by_name["once"]["SCHEDULE"], by_name["once"]["NEXT"]) == ("at 2 times", "2999-12-31T23:00:00Z")
    assert by_name["once"]["OVERLAP"] == "Queue"
    narrow = api_server.kubectl("-n", namespace, "get", "jobschedules").stdout.splitlines()
    assert _cells(narrow)[0] == headings[:9]


def _cells(lines: list[str]) -> list[list[str]]:
    """A table of kubectl: its columns begin where its headings do."""
    starts = [match.start() for match in re.finditer(r"(?<!\S)\S+( \S+)*", lines[0])]
    ends = [*starts[1:], None]
    return [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in lines]


def test_explain(api_server: ApiServer) -> None:
    shown = api_server.kubectl("explain", "jobschedule.spec.catchUp").stdout
    for words in ("policy", "RunOnce", "graceSeconds", "maxRuns", "Default"):
        assert words in shown
    # Every field says something, down to the last.
    whole = api_server.kubectl("explain", "jobschedule.spec", "--recursive").stdout
    fields = re.findall(r"^  (\w+)\t", whole, re.MULTILINE)
    for field in fields:
        assert "<no description>" not in api_server.kubectl("explain", f"jobschedule.spec.{field}").stdout, field


def test_nobody_has_seen_an_object_yet(api_server: ApiServer, new_namespace: Callable[[], str]) -> None:
    namespace = new_namespace()
    api_server.apply(manifest("unseen", namespace))
    obj = api_server.get(namespace, "unseen")
    assert obj is not None
    assert obj["status"] == {"observedGeneration": -1}

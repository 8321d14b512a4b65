"""Filling in defaults and checking, as the API server does."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from slotkeeper.spec import API_VERSION, KIND, apply_defaults, check


def an_object(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "nightly-report", "namespace": "billing"},
        "spec": {"cron": ["30 2 * * *"], "task": "billing.report"} | spec,
    }


def findings(**spec: Any) -> list[str]:
    return [finding.field for finding in check(an_object(**spec))]


def test_the_smallest_object_is_fine() -> None:
    assert check(an_object()) == []


def test_defaults_of_parents_and_children() -> None:
    spec: Any = apply_defaults(an_object(retry={"maxAttempts": 3}))["spec"]
    assert spec["retry"] == {"maxAttempts": 3, "initialBackoffSeconds": 30, "maxBackoffSeconds": 900}
    assert spec["catchUp"] == {"policy": "RunOnce", "maxRuns": 100, "graceSeconds": 60}
    assert spec["payload"] == {}
    assert "every" not in spec


def test_defaults_are_copies() -> None:
    first: Any = apply_defaults(an_object())
    first["spec"]["payload"]["changed"] = True
    second: Any = apply_defaults(an_object())
    assert second["spec"]["payload"] == {}


def test_nulls_go_as_with_client_side_apply() -> None:
    obj = an_object(every=None, queue=None, payload={"a": None, "b": [1, None, {"c": None}]})
    spec: Any = apply_defaults(obj)["spec"]
    assert "every" not in spec
    assert spec["queue"] == "default"
    assert spec["payload"] == {"b": [1, None, {}]}
    assert obj["spec"]["every"] is None, "the caller's object stays as it is"


def test_all_findings_at_once() -> None:
    found = findings(timezone="x", priority=3, cron=["x", 5], task=None, retry={"maxAttempts": 0})
    assert sorted(found) == sorted(
        ["spec.timezone", "spec.priority", "spec.cron[0]", "spec.cron[1]", "spec.retry.maxAttempts", "spec"]
    )


@pytest.mark.parametrize(
    ("field", "value", "instead"),
    [
        ("timezone", "UTC", "write timeZone"),
        ("schedule", "0 1 * * *", 'cron: ["'),
        ("suspended", True, "write suspend"),
        ("backoffLimit", 5, "retry.maxAttempts"),
        ("startingDeadline", 5, "startingDeadlineSeconds"),
        ("successfulJobsHistoryLimit", 3, "setting of the installation"),
        ("historyLimit", 3, "setting of the installation"),
        ("concurrencyPolicy", "Forbid", "overlapPolicy: Queue"),
        ("maxAttempts", 3, "write spec.retry.maxAttempts"),
        ("jobTemplate", {}, "write job.template"),
        ("catchup", {}, "write catchUp"),
        ("Queue", "a", "write queue"),
        ("colour", "red", "the fields known here are"),
    ],
)
def test_unknown_fields_get_the_word_that_was_meant(field: str, value: object, instead: str) -> None:
    (finding,) = check(an_object(**{field: value}))
    assert finding.field == f"spec.{field}"
    assert instead in finding.instead


def test_unknown_fields_below() -> None:
    assert findings(retry={"attempts": 3}) == ["spec.retry.attempts"]
    assert findings(payload={"anything": {"goes": 1}}) == []
    assert findings(task=None, job={"template": {"spec": {"anything": 1}}}) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"cron": []}, "spec.cron"),
        ({"cron": ["0 1 * * *"] * 17}, "spec.cron"),
        ({"cron": ["0 1 * * *" + " " * 120 + "x"]}, "spec.cron[0]"),
        ({"cron": [" 0 1 * * *"]}, "spec.cron[0]"),
        ({"cron": ["0 1 * * *\n"]}, "spec.cron[0]"),
        ({"cron": ["@reboot"]}, "spec.cron[0]"),
        ({"timeZone": "lOcAl"}, "spec.timeZone"),
        ({"startTime": "2026-01-01"}, "spec.startTime"),
        ({"startTime": "2026-01-01T00:00:00"}, "spec.startTime"),
        ({"startTime": "2026-02-30T00:00:00Z"}, "spec.startTime"),
        ({"startTime": "2026-01-01T00:00:00+25:00"}, "spec.startTime"),
        ({"startTime": "2026-01-01T00:00:00.0000001Z"}, "spec.startTime"),
        ({"suspend": "true"}, "spec.suspend"),
        ({"queue": "a" * 64}, "spec.queue"),
        ({"queue": "a\n"}, "spec.queue"),
        ({"catchUp": {"graceSeconds": 2**31}}, "spec.catchUp.graceSeconds"),
        ({"startingDeadlineSeconds": 10**30}, "spec.startingDeadlineSeconds"),
        ({"priority": True}, "spec.priority"),
    ],
)
def test_refused(spec: dict[str, Any], field: str) -> None:
    assert set(findings(**spec)) == {field}


@pytest.mark.parametrize(
    "spec",
    [
        {"cron": ["@daily", "0\t1 * * *", "a b c d e", "0 0 L * *"]},
        {"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:00:01Z"},
        {"startTime": "2026-01-01T00:00:00.000Z"},
        {"attemptDeadlineSeconds": 60, "activeDeadlineSeconds": 60},
        {"retry": {"initialBackoffSeconds": 0, "maxBackoffSeconds": 0}},
        {"spreadSeconds": 86400},
        {"catchUp": {"graceSeconds": 2**31 - 1}},
    ],
)
def test_accepted(spec: dict[str, Any]) -> None:
    assert findings(**spec) == []


def test_a_default_counts_in_a_rule() -> None:
    assert findings(retry={"maxBackoffSeconds": 29}) == ["spec.retry.initialBackoffSeconds"]


def test_an_action_without_a_program() -> None:
    assert findings(task=None, command=[""]) == ["spec.command"]


def test_http_headers_cannot_smuggle_lines() -> None:
    http = {"url": "https://example.com", "headers": [{"name": "X-A", "value": "a\r\nX-B: b"}]}
    assert findings(task=None, http=http) == ["spec.http.headers[0].value"]


def test_findings_show_the_value_and_what_to_write() -> None:
    (finding,) = check(an_object(overlapPolicy="skip"))
    assert str(finding) == 'spec.overlapPolicy: "skip" is none of Skip, Queue, Replace, Allow; write "Skip"'


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"apiVersion": "slotkeeper.dev/v1"}, "apiVersion"),
        ({"kind": "Jobschedule"}, "kind"),
        ({"metadata": None}, "metadata"),
        ({"metadata": {"namespace": "billing"}}, "metadata.name"),
        ({"metadata": {"name": "Nightly"}}, "metadata.name"),
        ({"metadata": {"name": "a" * 254}}, "metadata.name"),
        ({"metadata": {"name": "a", "namespace": "a.b"}}, "metadata.namespace"),
        ({"metadata": {"name": "a", "label": {}}}, "metadata.label"),
        ({"metadata": {"name": "a", "annotations": {"a": 1}}}, "metadata.annotations.a"),
        ({"metadata": {"name": "a", "labels": {"a": "b c"}}}, "metadata.labels.a"),
        ({"metadata": {"name": "a", "labels": {"A.b/c": "d"}}}, "metadata.labels.A.b/c"),
        ({"spec": None}, "spec"),
        ({"sepc": {}}, "sepc"),
        ({"status": {"unknown": 1}}, "status.unknown"),
    ],
)
def test_the_object_around_the_spec(change: dict[str, Any], field: str) -> None:
    assert [finding.field for finding in check(an_object() | change)] == [field]


def test_what_the_server_drops_is_not_looked_at() -> None:
    assert check(an_object() | {"status": {"deadRuns": "many"}}) == []


@pytest.mark.parametrize(
    "metadata",
    [
        {"name": "a" * 253},
        {"name": "a.b-c"},
        {"name": "a", "labels": {"example.com/Part-of": "billing_1", "empty": ""}},
        {"name": "a", "annotations": {"A.b/c": "anything\n"}},
    ],
)
def test_metadata_that_is_fine(metadata: dict[str, Any]) -> None:
    assert check(an_object() | {"metadata": metadata}) == []


def test_the_operator_needs_neither_jsonschema_nor_cel() -> None:
    code = (
        "import sys; sys.modules['jsonschema'] = sys.modules['celpy'] = None\n"
        "from slotkeeper.spec import apply_defaults, check, parse_object\n"
        "obj = {'metadata': {'name': 'a', 'namespace': 'b'}, 'spec': {'cron': ['@daily'], 'task': 't'}}\n"
        "assert parse_object(apply_defaults(obj)).spec.queue == 'default'\n"
        "try: check(obj)\n"
        "except ImportError as error: assert 'slotkeeper[dev]' in str(error)\n"
        "else: raise SystemExit('checked without jsonschema')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

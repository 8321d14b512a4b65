"""From a stored object to typed values, and what no schema can refuse."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from slotkeeper.errors import InvalidField, NotYetSupported
from slotkeeper.spec import (
    CatchUp,
    CatchUpPolicy,
    CommandAction,
    CredentialHeader,
    DaylightSaving,
    Every,
    Header,
    HttpAction,
    JobAction,
    OverlapPolicy,
    RepeatedTime,
    Retry,
    SkippedTime,
    TaskAction,
    parse_identity,
    parse_object,
    parse_spec,
)
from slotkeeper.spec.payload import MAX_DEPTH, MAX_PAYLOAD_BYTES


def a_spec(**spec: Any) -> dict[str, Any]:
    return {"cron": ["30 2 * * *"], "task": "billing.report"} | spec


def an_object(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "billing",
            "name": "nightly",
            "uid": "5f0b",
            "generation": 7,
            "resourceVersion": "1234",
            "annotations": {"slotkeeper.dev/trigger": "deploy-5"},
        },
        "spec": a_spec(**spec),
    }


def test_identity() -> None:
    schedule = parse_object(an_object(suspend=True))
    assert (schedule.namespace, schedule.name, schedule.uid) == ("billing", "nightly", "5f0b")
    assert (schedule.generation, schedule.resource_version) == (7, "1234")
    assert schedule.trigger_key == "deploy-5"
    assert schedule.suspend
    assert schedule.spec.suspend


def test_suspend_is_read_from_an_object_that_cannot_be_parsed() -> None:
    broken = an_object(suspend=True, cron=5)
    with pytest.raises(InvalidField):
        parse_object(broken)
    assert parse_identity(broken).suspend
    assert not parse_identity(an_object(suspend="yes")).suspend


@pytest.mark.parametrize("spec", [None, 5, []])
def test_an_object_without_a_spec(spec: object) -> None:
    obj = an_object() | {"spec": spec}
    assert parse_identity(obj).name == "nightly"
    with pytest.raises(InvalidField, match=r"^spec: "):
        parse_object(obj)


def test_every_field() -> None:
    spec = parse_spec(
        {
            "every": {"periodSeconds": 600, "anchorTime": "2026-01-01T01:00:00+01:00"},
            "timeZone": "Europe/Berlin",
            "daylightSaving": {"skippedTime": "Skip", "repeatedTime": "RunTwice"},
            "startTime": "2026-01-01T00:00:00Z",
            "endTime": "2027-01-01T00:00:00Z",
            "spreadSeconds": 60,
            "suspend": True,
            "command": ["true", "-x"],
            "payload": {"a": [1, None, "é"]},
            "queue": "reports",
            "priority": -1,
            "overlapPolicy": "Replace",
            "catchUp": {"policy": "RunAll", "maxRuns": 5, "graceSeconds": 0},
            "startingDeadlineSeconds": 3600,
            "retry": {"maxAttempts": 1, "initialBackoffSeconds": 0, "maxBackoffSeconds": 1},
            "attemptDeadlineSeconds": 10,
            "activeDeadlineSeconds": 20,
            "maxSuccessAgeSeconds": 86400,
        }
    )
    assert spec.every == Every(600, datetime(2026, 1, 1, tzinfo=UTC))
    assert spec.daylight_saving == DaylightSaving(SkippedTime.SKIP, RepeatedTime.RUN_TWICE)
    assert spec.action == CommandAction(("true", "-x"))
    assert spec.catch_up == CatchUp(CatchUpPolicy.RUN_ALL, 5, 0)
    assert spec.retry == Retry(1, 0, 1)
    assert spec.overlap_policy is OverlapPolicy.REPLACE
    assert (spec.cron, spec.at) == (None, None)
    assert (spec.start_time, spec.end_time) == (datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    assert (spec.time_zone, spec.spread_seconds, spec.suspend) == ("Europe/Berlin", 60, True)
    assert (spec.payload, spec.queue, spec.priority) == ({"a": [1, None, "é"]}, "reports", -1)
    assert (spec.starting_deadline_seconds, spec.attempt_deadline_seconds) == (3600, 10)
    assert (spec.active_deadline_seconds, spec.max_success_age_seconds) == (20, 86400)


def test_actions() -> None:
    assert parse_spec(a_spec()).action == TaskAction("billing.report")
    template = {"spec": {"parallelism": 2}}
    assert parse_spec(a_spec(task=None, job={"template": template})).action == JobAction(template)
    http = {
        "url": "https://example.com",
        "headers": [{"name": "A", "value": ""}],
        "headersFrom": [{"name": "B", "credential": "c"}],
        "successCodes": [200, 409],
    }
    expected = HttpAction("https://example.com", "POST", (Header("A", ""),), (CredentialHeader("B", "c"),), (200, 409))
    assert parse_spec(a_spec(task=None, http=http)).action == expected


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"cron": None}, "spec"),
        ({"at": ["2026-01-01T00:00:00Z"]}, "spec"),
        ({"task": None}, "spec"),
        ({"command": ["true"]}, "spec"),
        ({"cron": [5]}, "spec.cron[0]"),
        ({"cron": None, "at": ["soon"]}, "spec.at[0]"),
        ({"cron": None, "every": {}}, "spec.every.periodSeconds"),
        ({"cron": None, "every": {"periodSeconds": 0}}, "spec.every.periodSeconds"),
        ({"overlapPolicy": "Forbid"}, "spec.overlapPolicy"),
        ({"suspend": 1}, "spec.suspend"),
        ({"priority": True}, "spec.priority"),
        ({"retry": []}, "spec.retry"),
        ({"payload": "x"}, "spec.payload"),
        ({"task": None, "command": []}, "spec.command"),
        ({"task": None, "http": {"url": "u", "headers": [{"name": "n"}]}}, "spec.http.headers[0].value"),
        ({"task": None, "job": {}}, "spec.job.template"),
    ],
)
def test_what_an_old_crd_lets_through_is_told_politely(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_spec(a_spec(**spec))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("spec", "field"),
    [({"exclude": ["x"]}, "spec.exclude"), ({"retry": {"jitter": "none"}}, "spec.retry.jitter")],
)
def test_a_field_of_a_newer_crd_is_not_passed_over(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(NotYetSupported) as caught:
        parse_spec(a_spec(**spec))
    assert caught.value.field == field


def test_payload_of_64_kib() -> None:
    around = len('{"a":""}')
    assert parse_spec(a_spec(payload={"a": "x" * (MAX_PAYLOAD_BYTES - around)})).payload
    with pytest.raises(InvalidField, match="65537 bytes"):
        parse_spec(a_spec(payload={"a": "x" * (MAX_PAYLOAD_BYTES - around + 1)}))


def test_the_size_is_counted_in_bytes() -> None:
    with pytest.raises(InvalidField, match="64 KiB"):
        parse_spec(a_spec(payload={"a": "é" * (MAX_PAYLOAD_BYTES // 2)}))


def _nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"a": ["b\0"]}, "spec.payload.a[0]"),
        ({"a": {"b\0": 1}}, "spec.payload.a (a key)"),
        ({"a": "\ud83d"}, "spec.payload.a"),
        ({"a": float("nan")}, "spec.payload.a"),
        ({"a": float("inf")}, "spec.payload.a"),
        ({"a": 10**400}, "spec.payload.a"),
        ({"a": {1, 2}}, "spec.payload.a"),
        (_nested(50_000), "spec"),
    ],
)
def test_what_postgres_cannot_store(payload: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_spec(a_spec(payload=payload))
    assert caught.value.field == field
    str(caught.value).encode()


def test_nesting_up_to_the_bound_is_fine() -> None:
    assert parse_spec(a_spec(payload=_nested(MAX_DEPTH - 2)))


@pytest.mark.parametrize("field", ["task", "timeZone", "queue"])
def test_nul_is_refused_outside_the_payload_too(field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_spec(a_spec(**{field: "a\0"}))
    assert caught.value.field == f"spec.{field}"

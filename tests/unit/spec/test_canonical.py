"""The laws of the canonical form: it reads back as the same spec, and its hash is the spec's."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotkeeper.spec import (
    API_VERSION,
    KIND,
    CatchUp,
    CatchUpPolicy,
    CommandAction,
    CredentialHeader,
    DaylightSaving,
    Every,
    Header,
    HttpAction,
    JobAction,
    JobScheduleSpec,
    OverlapPolicy,
    RepeatedTime,
    Retry,
    SkippedTime,
    TaskAction,
    canonical,
    check,
    parse_spec,
    spec_hash,
    timing_of,
    unsupported_fields,
)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
words = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts
json_values = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(texts, children, max_size=3),
    max_leaves=8,
)
payloads = st.dictionaries(texts, json_values, max_size=4)
instants = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)).map(  # noqa: DTZ001
    lambda instant: instant.replace(microsecond=0)
)
actions = st.one_of(
    words.map(TaskAction),
    st.lists(words, min_size=1, max_size=3).map(lambda items: CommandAction(tuple(items))),
    st.dictionaries(words, json_values, max_size=2).map(JobAction),
    st.builds(
        HttpAction,
        words.map("https://example.com/{}".format),
        st.sampled_from(["GET", "POST"]),
        st.lists(st.builds(Header, words, words), max_size=2).map(tuple),
        st.lists(st.builds(CredentialHeader, words, words), max_size=2).map(tuple),
        st.none() | st.lists(st.integers(100, 599), min_size=1, max_size=3).map(tuple),
    ),
)
schedules = st.one_of(
    st.lists(words.map("0 1 * * {}".format), min_size=1, max_size=3).map(lambda items: {"cron": tuple(items)}),
    st.builds(Every, st.integers(10, 31_622_400), instants).map(lambda every: {"every": every}),
    st.lists(instants, min_size=1, max_size=3, unique=True).map(lambda items: {"at": tuple(items)}),
)
seconds = st.none() | st.integers(60, 3_153_600_000)


@st.composite
def specs(draw: st.DrawFn) -> JobScheduleSpec:
    start, end = draw(st.lists(instants, min_size=2, max_size=2, unique=True).map(sorted))
    backoff = sorted(draw(st.lists(st.integers(0, 86_400), min_size=2, max_size=2)))
    attempt = draw(seconds)
    return JobScheduleSpec(
        action=draw(actions),
        **draw(schedules),
        time_zone=draw(st.sampled_from(["Etc/UTC", "Europe/Berlin"])),
        daylight_saving=draw(st.builds(DaylightSaving, st.sampled_from(SkippedTime), st.sampled_from(RepeatedTime))),
        start_time=draw(st.sampled_from([None, start])),
        end_time=draw(st.sampled_from([None, end])),
        spread_seconds=draw(st.integers(0, 9)),
        suspend=draw(st.booleans()),
        payload=draw(payloads),
        queue=draw(words),
        priority=draw(st.integers(-2, 2)),
        overlap_policy=draw(st.sampled_from(OverlapPolicy)),
        catch_up=CatchUp(
            draw(st.sampled_from(CatchUpPolicy)), draw(st.integers(1, 10_000)), draw(st.integers(0, 2**31 - 1))
        ),
        starting_deadline_seconds=draw(seconds),
        retry=Retry(draw(st.integers(1, 100)), *backoff),
        attempt_deadline_seconds=attempt,
        active_deadline_seconds=draw(st.sampled_from([None, 3_153_600_000])),
        max_success_age_seconds=draw(seconds),
    )


@given(specs())
@settings(max_examples=150, deadline=None)
def test_the_canonical_form_reads_back(spec: JobScheduleSpec) -> None:
    value = canonical(spec)
    stored = json.loads(json.dumps(value))
    assert parse_spec(stored) == spec
    assert canonical(parse_spec(stored)) == value
    assert list(canonical(parse_spec(stored))) == list(value)
    assert spec_hash(parse_spec(stored)) == spec_hash(spec)


@given(specs())
@settings(max_examples=25, deadline=None)
def test_the_canonical_form_is_an_object_that_the_crd_accepts(spec: JobScheduleSpec) -> None:
    obj = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "a"}, "spec": canonical(spec)}
    assert [str(finding) for finding in check(obj)] == []


SPEC = JobScheduleSpec(action=TaskAction("t"), cron=("0 1 * * *", "0 2 * * *"), payload={"a": 1, "b": 2})


def test_the_hash_does_not_see_the_order_of_keys() -> None:
    assert spec_hash(SPEC) == spec_hash(replace(SPEC, payload={"b": 2, "a": 1}))
    assert len(spec_hash(SPEC)) == 64


@pytest.mark.parametrize(
    "change",
    [
        {"payload": {"a": 1}},
        {"queue": "other"},
        {"suspend": True},
        {"retry": Retry(5)},
        {"cron": ("0 1 * * *",)},
        {"action": CommandAction(("t",))},
    ],
)
def test_the_hash_sees_every_edit(change: dict[str, Any]) -> None:
    assert spec_hash(replace(SPEC, **change)) != spec_hash(SPEC)


def test_nothing_but_json_is_hashed() -> None:
    with pytest.raises(ValueError, match="JSON"):
        spec_hash(replace(SPEC, payload={"a": math.nan}))


@pytest.mark.parametrize(
    "change",
    [
        {"payload": {}},
        {"action": TaskAction("other")},
        {"queue": "other"},
        {"priority": 1},
        {"retry": Retry(1)},
        {"overlap_policy": OverlapPolicy.ALLOW},
        {"catch_up": CatchUp(CatchUpPolicy.SKIP)},
        {"cron": ("0  2 * * *", "0 1 * * *")},
        {"max_success_age_seconds": 60},
    ],
)
def test_edits_that_move_no_slot(change: dict[str, Any]) -> None:
    assert timing_of(replace(SPEC, **change)) == timing_of(SPEC)
    assert hash(timing_of(replace(SPEC, **change))) == hash(timing_of(SPEC))


@pytest.mark.parametrize(
    "change",
    [
        {"cron": ("0 1 * * *",)},
        {"time_zone": "Europe/Berlin"},
        {"daylight_saving": DaylightSaving(SkippedTime.SKIP)},
        {"start_time": datetime(2026, 1, 1, tzinfo=UTC)},
        {"end_time": datetime(2026, 1, 1, tzinfo=UTC)},
        {"spread_seconds": 1},
        {"suspend": True},
        {"cron": None, "every": Every(60)},
    ],
)
def test_edits_that_move_slots(change: dict[str, Any]) -> None:
    assert timing_of(replace(SPEC, **change)) != timing_of(SPEC)


def test_an_interval_is_read_in_no_zone() -> None:
    spec = replace(SPEC, cron=None, every=Every(60))
    assert timing_of(spec) == timing_of(replace(spec, time_zone="Europe/Berlin"))


def test_what_this_build_cannot_serve() -> None:
    assert unsupported_fields(SPEC) == []
    assert unsupported_fields(replace(SPEC, action=HttpAction("https://example.com"))) == ["spec.http"]
    assert unsupported_fields(replace(SPEC, action=JobAction({}))) == ["spec.job"]

"""The words of status, from values alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from api_server import ApiServer, condition, eventually, settled
from hypothesis import given, settings
from hypothesis import strategies as st
from jobschedule_objects import jobschedule, manifest

from slotkeeper.operator import Applied, Operator, Outcome
from slotkeeper.operator.accept import Accepted, Refusal, accept
from slotkeeper.operator.conditions import Figures, status_of, status_patch
from slotkeeper.operator.rate import TokenBucket
from slotkeeper.store.schedules import Health, HeldBy, Unserved
from slotkeeper.success_due import success_due

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOTHING_YET = Health(
    last_success_slot=None, last_success_at=None, last_slot=None, dead_runs=0, consecutive_dead=0,
    last_skip_slot=None, last_skip_reason=None, last_skip_at=None, last_failure_at=None,
)  # fmt: skip


def applied(**spec: Any) -> Applied:
    """An object that was accepted an hour ago."""
    verdict = accept(jobschedule(**spec))
    common: dict[str, Any] = {"namespace": "billing", "name": "report", "uid": "uid-1", "generation": 3}
    if isinstance(verdict, Refusal):
        return Applied(**common, outcome=Outcome.REFUSED, refusal=verdict)
    return Applied(
        **common, outcome=Outcome.STORED, accepted_generation=3, effective_time=NOW - HOUR, created_at=NOW - HOUR,
        next_slot=verdict.next_slot(NOW), suspended=verdict.schedule.suspend, spec=verdict.schedule.spec,
        timing=verdict.timing,
    )  # fmt: skip


def figures(of: Applied, *, last_slot: datetime | None = None, **health: Any) -> Figures:
    return Figures(
        next_slot=of.next_slot, suspended=of.suspended, held=of.held, last_slot=last_slot,
        created_at=NOW - HOUR, timing_since=NOW - HOUR, health=replace(NOTHING_YET, **health),
    )  # fmt: skip


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {entry["type"]: (entry["status"], entry["reason"]) for entry in status["conditions"]}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({}, "Accepted"),
        ({"suspend": True}, "Suspended"),
        ({"cron": ["0 0 31 2 *"]}, "NeverFires"),
        ({"at": ["2020-01-01T00:00:00Z"]}, "Completed"),
        ({"at": ["2030-01-01T00:00:00Z"]}, "Accepted"),
        ({"endTime": "2020-01-01T00:00:00Z"}, "Completed"),
        ({"startTime": "2030-01-01T00:00:00Z"}, "Accepted"),
    ],
)
def test_ready(spec: dict[str, Any], reason: str) -> None:
    status = status_of(applied(**spec), None, NOW, {})
    assert conditions(status)["Ready"] == ("True", reason)
    assert "Stalled" not in conditions(status)
    assert (reason == "Accepted") == ("nextScheduleTime" in status)


BERLIN = {"cron": ["30 2 * * *"], "timeZone": "Europe/Berlin"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            BERLIN,
            "in force. Next changes of the clock: "
            "2027-03-28 01:00Z Europe/Berlin skips 02:00–03:00: 02:30 becomes 03:00. "
            "2027-10-31 01:00Z Europe/Berlin repeats 02:00–03:00: 02:30 runs once, the first time",
        ),
        (
            {**BERLIN, "endTime": "2027-06-01T00:00:00Z"},
            "in force. Next changes of the clock: "
            "2027-03-28 01:00Z Europe/Berlin skips 02:00–03:00: 02:30 becomes 03:00",
        ),
        ({"cron": ["30 4 * * *"], "timeZone": "Europe/Berlin"}, "in force"),
        ({"cron": ["30 2 * * *"]}, "in force"),
        ({"every": {"periodSeconds": 86400}, "timeZone": "Europe/Berlin"}, "in force"),
        ({"at": ["2030-01-01T00:00:00Z"], "timeZone": "Europe/Berlin"}, "in force"),
        ({**BERLIN, "suspend": True}, "spec.suspend is true: there are no slots"),
    ],
)
def test_ready_names_the_next_two_changes_of_the_clock_that_touch_the_schedule(
    spec: dict[str, Any], message: str
) -> None:
    status: Any = status_of(applied(**spec), None, NOW, {})
    assert status["conditions"][0]["message"] == message


def test_what_ready_says_of_the_clock_changes_only_when_it_has_changed() -> None:
    of = applied(**BERLIN)
    status: Any = status_of(of, None, NOW, {})
    change = datetime(2027, 3, 28, 1, 0, tzinfo=UTC)
    assert status_patch(status_of(of, None, change - timedelta(seconds=1), status), status) == {}
    after: Any = status_of(of, None, change, status)
    assert "2028-03-26 01:00Z Europe/Berlin skips" in after["conditions"][0]["message"]
    assert "2027-03-28" not in after["conditions"][0]["message"]
    assert after["conditions"][0]["lastTransitionTime"] == status["conditions"][0]["lastTransitionTime"]


def test_what_ready_says_of_the_clock_fits_whatever_the_schedule() -> None:
    # A gap of a day in a minutely schedule skips more times than a message may have characters for.
    of = applied(
        cron=[f"{minute} {hour} * * *" for hour in range(4) for minute in range(0, 60, 2)], timeZone="Asia/Gaza"
    )
    status: Any = status_of(of, None, NOW, {})
    assert "and 27 more" in status["conditions"][0]["message"]
    assert len(status["conditions"][0]["message"]) < 400


def test_ready_names_the_changes_of_the_clock_on_an_api_server(
    api_server: ApiServer, namespace: str, operator: Operator
) -> None:
    api_server.apply(manifest("night", namespace, **BERLIN), manifest("noon", namespace, cron=["0 12 * * *"]))

    def objects() -> dict[str, Any] | None:
        found = api_server.list(namespace)
        return found if len(found) == 2 and all(settled(obj) for obj in found.values()) else None

    found = eventually(objects)
    night, noon = condition(found["night"], "Ready"), condition(found["noon"], "Ready")
    assert night is not None
    assert noon is not None
    assert (night["reason"], noon["message"]) == ("Accepted", "in force")
    skips, repeats = "skips 02:00–03:00: 02:30 becomes 03:00", "repeats 02:00–03:00: 02:30 runs once, the first time"
    assert sorted((night["message"].count(skips), night["message"].count(repeats))) == [1, 1]


@pytest.mark.parametrize("cron", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"])
@pytest.mark.parametrize("suspend", [False, True])
def test_c004_a_schedule_that_never_fires_says_so_and_owes_no_success(cron: str, suspend: bool) -> None:
    of = applied(cron=[cron], suspend=suspend)
    status: Any = status_of(of, figures(of), NOW + timedelta(days=400), {})
    ready = "Suspended" if suspend else "NeverFires"
    assert conditions(status) == {"Ready": ("True", ready), "Healthy": ("True", "NotYetDue")}
    assert "nextScheduleTime" not in status


def test_held() -> None:
    status = status_of(replace(applied(), held=True), None, NOW, {})
    assert conditions(status)["Ready"] == ("True", "Held")
    assert "nextScheduleTime" not in status


@pytest.mark.parametrize(
    ("on", "until", "message"),
    [
        (("billing", "report"), None, "held by alice (login ops) until it is released: the bank is down"),
        (
            ("billing", None),
            NOW,
            "its namespace is held by alice (login ops) until 2026-11-30T12:00:00Z: the bank is down",
        ),
        ((None, None), None, "everything is held by alice (login ops) until it is released: the bank is down"),
    ],
)
def test_who_holds_why_and_until_when(on: tuple[str | None, str | None], until: datetime | None, message: str) -> None:
    of = replace(applied(), held=True)
    hold = HeldBy(*on, held_by="alice", login="ops", reason="the bank is down", until=until)
    status: Any = status_of(of, replace(figures(of), hold=hold), NOW, {})
    assert status["conditions"][0]["message"] == message


@pytest.mark.parametrize(
    ("changed", "health", "reason"),
    [
        ({}, {}, "NoWorker"),  # before NeverSucceeded
        ({}, {"consecutive_dead": 1}, "DeadRuns"),
        ({"suspended": True}, {}, "NotYetDue"),
        ({"held": True}, {}, "NotYetDue"),
        ({"next_slot": None}, {}, "NeverSucceeded"),
    ],
)
def test_no_worker_and_its_place_among_the_reasons(
    changed: dict[str, Any], health: dict[str, Any], reason: str
) -> None:
    of = applied(queue="reports")
    unserved = Unserved(NOW - HOUR, NOW)
    status: Any = status_of(of, replace(figures(of, **health), unserved=unserved, **changed), NOW, {})
    assert conditions(status)["Healthy"][1] == reason
    if reason == "NoWorker":
        message = next(entry["message"] for entry in status["conditions"] if entry["type"] == "Healthy")
        assert "'reports'" in message
        assert "not since 2026-11-30T11:00:00Z" in message
        assert "wait since 2026-11-30T12:00:00Z" in message


def test_a_release_moves_the_effective_time() -> None:
    of = applied()
    status: Any = status_of(of, replace(figures(of), timing_since=NOW), NOW, {})
    assert status["effectiveTime"] == "2026-11-30T12:00:00Z"


def test_a_refused_spec_is_stalled_and_says_what_stays_in_force() -> None:
    refused = applied(cron=["61 * * * *"])
    status: Any = status_of(refused, None, NOW, {})
    assert conditions(status) == {"Ready": ("False", "InvalidSpec"), "Stalled": ("True", "InvalidSpec")}
    assert status["observedGeneration"] == 3
    assert "acceptedGeneration" not in status
    before = replace(applied(), refusal=refused.refusal, accepted_generation=2)
    status = status_of(before, None, NOW, {})
    assert status["acceptedGeneration"] == 2
    assert status["resolvedSchedule"] == "* * * * *"
    assert "generation 2 stays in force" in status["conditions"][0]["message"]


def test_c002_vixie_cron_is_named_only_where_it_differs() -> None:
    told = conditions(status_of(applied(cron=["0 0 */2 * 1"]), None, NOW, {}))
    assert told["DiffersFromVixieCron"][0] == "True"
    assert "DiffersFromVixieCron" not in conditions(status_of(applied(cron=["0 0 * * 1"]), None, NOW, {}))


@pytest.mark.parametrize(
    ("spec", "health", "expected"),
    [
        ({"cron": ["0 0 * * *"]}, {}, ("True", "NotYetDue")),
        ({}, {}, ("False", "NeverSucceeded")),
        ({"suspend": True}, {}, ("True", "NotYetDue")),
        ({}, {"last_success_at": NOW - timedelta(minutes=1)}, ("True", "Succeeding")),
        ({}, {"last_success_at": NOW - HOUR}, ("False", "SuccessOverdue")),
        # Of an object that was deleted and made anew, what went before does not count.
        ({}, {"last_success_at": NOW - 2 * HOUR}, ("False", "NeverSucceeded")),
        ({"cron": ["0 0 * * *"]}, {"last_success_at": NOW - 2 * HOUR}, ("True", "NotYetDue")),
        ({"maxSuccessAgeSeconds": 7200}, {"last_success_at": NOW - HOUR}, ("True", "Succeeding")),
        ({"maxSuccessAgeSeconds": 60}, {"last_success_at": NOW - HOUR}, ("False", "SuccessOverdue")),
        ({}, {"last_success_at": NOW, "consecutive_dead": 1, "dead_runs": 4}, ("False", "DeadRuns")),
        ({}, {"last_success_at": NOW, "consecutive_dead": 0, "dead_runs": 4}, ("True", "Succeeding")),
    ],
)
def test_healthy(spec: dict[str, Any], health: dict[str, Any], expected: tuple[str, str]) -> None:
    of = applied(**spec)
    told = conditions(status_of(of, figures(of, **health), NOW, {}))
    assert told["Healthy"] == expected
    assert told["Ready"][0] == "True"  # health never influences it


def test_what_was_not_read_yet_stays_as_it_was() -> None:
    of = applied()
    status: Any = status_of(of, figures(of, last_success_at=NOW, last_slot=NOW), NOW, {})
    again: Any = status_of(of, None, NOW + HOUR, status)
    assert again == status
    assert again["lastSuccessfulTime"] == "2026-11-30T12:00:00Z"


def test_a_condition_keeps_its_time_until_its_status_flips() -> None:
    first: Any = status_of(applied(), None, NOW, {})
    suspended: Any = status_of(applied(suspend=True), None, NOW + HOUR, first)
    assert suspended["conditions"][0]["reason"] == "Suspended"
    assert suspended["conditions"][0]["lastTransitionTime"] == "2026-11-30T12:00:00Z"
    wrong: Any = status_of(applied(timeZone="Local"), None, NOW + HOUR, first)
    assert wrong["conditions"][0]["lastTransitionTime"] == "2026-11-30T13:00:00Z"


def test_conditions_of_others_are_left_alone() -> None:
    theirs = {"type": "Approved", "status": "True", "reason": "r", "message": "", "lastTransitionTime": "x"}
    status: Any = status_of(applied(), None, NOW, {"conditions": [theirs], "observedGeneration": 3})
    assert status["conditions"][-1] == theirs


def test_a_patch_takes_away_what_is_no_longer_so_and_nothing_of_others() -> None:
    of = applied()
    before: Any = {**status_of(of, figures(of), NOW, {}), "lastSkip": {"slot": "x"}, "somebody": "else's"}
    after = status_of(applied(suspend=True), figures(applied(suspend=True)), NOW, before)
    patch = status_patch(after, before)
    assert patch["nextScheduleTime"] is None
    assert patch["lastSkip"] is None
    assert "somebody" not in patch
    assert "resolvedSchedule" not in patch


@given(st.text(max_size=40_000))
@settings(deadline=None)
def test_what_is_written_fits_and_is_written_once(message: str) -> None:
    refused = accept(jobschedule(cron=["x"]))
    assert isinstance(refused, Refusal)
    of = replace(applied(), refusal=replace(refused, message=message))
    status: Any = status_of(of, None, NOW, {})
    assert all(len(entry["message"]) <= 32768 for entry in status["conditions"])
    assert status_patch(status, {}) == status
    assert status_patch(status_of(of, None, NOW + HOUR, status), status) == {}


@pytest.mark.parametrize(
    ("spec", "since", "expected"),
    [
        # A job on working days is due by the second of them, whatever weekend lies between.
        ({"cron": ["0 9 * * MON-FRI"]}, "2026-11-27T10:00", "2026-12-01T09:01"),
        ({"cron": ["0 9 * * *"], "catchUp": {"graceSeconds": 600}}, "2026-11-27T10:00", "2026-11-29T09:10"),
        ({"cron": ["0 9 * * *"], "maxSuccessAgeSeconds": 3600}, "2026-11-27T10:00", "2026-11-27T11:00"),
        ({"at": ["2026-12-01T00:00:00Z"]}, "2026-11-27T10:00", "2026-12-01T01:01"),
        ({"at": ["2026-12-01T00:00:00Z"], "activeDeadlineSeconds": 60}, "2026-11-27T10:00", "2026-12-01T00:02"),
        ({"at": ["2026-11-01T00:00:00Z"]}, "2026-11-27T10:00", None),
        ({"cron": ["0 0 31 2 *"]}, "2026-11-27T10:00", None),
        ({"suspend": True}, "2026-11-27T10:00", None),
    ],
)
def test_success_due(spec: dict[str, Any], since: str, expected: str | None) -> None:
    verdict = accept(jobschedule(**spec))
    assert isinstance(verdict, Accepted)
    instant = datetime.fromisoformat(since).replace(tzinfo=UTC)
    early = instant - timedelta(days=30)
    for last_success, created, timing_since in (
        (instant, early, early), (early, instant, early), (early, early, instant), (None, early, instant),
    ):  # fmt: skip
        due = success_due(
            verdict.schedule.spec, verdict.timing,
            last_success=last_success, created_at=created, timing_since=timing_since,
        )  # fmt: skip
        assert due == (None if expected is None else datetime.fromisoformat(expected).replace(tzinfo=UTC))


def test_a_bucket_gives_no_more_than_its_rate() -> None:
    now = 0.0
    bucket = TokenBucket(10, 50, lambda: now)
    assert sum(bucket.take() for _ in range(1000)) == 50
    taken = 0
    for _ in range(1000):
        now += 0.01
        taken += bucket.take()
    assert taken == pytest.approx(100, abs=1)

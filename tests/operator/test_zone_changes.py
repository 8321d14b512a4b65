"""Another release of the tz database is told as an Event and a log line, before status names the new release."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from api_server import ApiServer, condition, eventually
from jobschedule_objects import manifest
from structlog.testing import capture_logs

from scenario import connect, rows
from slotkeeper.operator import Operator
from slotkeeper.store.connection import Session
from slotkeeper.store.zones import kept_rules, note_rules
from slotkeeper.timetable import TZDATA_VERSION, zone_rules

FORMER = "1999z"


def told(api_server: ApiServer, namespace: str) -> dict[str, str]:
    """Messages by object."""
    found = api_server.kubectl("-n", namespace, "get", "events", "--field-selector=reason=SlotsMoved", "-o", "json")
    return {event["involvedObject"]["name"]: event["message"] for event in json.loads(found.stdout)["items"]}


def release_of(api_server: ApiServer, namespace: str, name: str) -> str | None:
    obj = api_server.get(namespace, name)
    return None if obj is None else obj.get("status", {}).get("timeZoneDataVersion")


def test_slots_that_another_release_moves_are_told(
    api_server: ApiServer, namespace: str, new_operator: Callable[..., Operator], dsn: str
) -> None:
    noon, berlin, start = ["0 12 * * *"], "Europe/Berlin", f"{_summer():%Y-%m-%dT00:00:00Z}"
    names = {
        "berlin-noon": manifest("berlin-noon", namespace, cron=noon, timeZone=berlin, startTime=start),
        "berlin-hourly": manifest("berlin-hourly", namespace, cron=["0 * * * *"], timeZone=berlin),
        "berlin-asleep": manifest("berlin-asleep", namespace, cron=noon, timeZone=berlin, suspend=True),
        "paris-noon": manifest("paris-noon", namespace, cron=noon, timeZone="Europe/Paris"),
    }
    first = new_operator(namespaces=[namespace])
    first.start()
    api_server.apply(*names.values())
    for name in names:
        eventually(lambda name=name: release_of(api_server, namespace, name) == TZDATA_VERSION)
    eventually(lambda: _kept(dsn) == {("Europe/Berlin", TZDATA_VERSION), ("Europe/Paris", TZDATA_VERSION)})
    first.stop()
    assert told(api_server, namespace) == {}

    # As a controller with the release before would have left it: Berlin without summer time.
    _keep_former(dsn)
    for name in names:
        patch = json.dumps({"status": {"timeZoneDataVersion": FORMER}})
        api_server.kubectl(
            "-n", namespace, "patch", "jsched", name, "--subresource=status", "--type=merge", "-p", patch
        )
    with capture_logs() as log:
        second = new_operator(namespaces=[namespace])
        second.start()
        for name in names:
            eventually(lambda name=name: release_of(api_server, namespace, name) == TZDATA_VERSION)
    events = eventually(lambda: told(api_server, namespace))
    assert set(events) == {"berlin-noon"}, "hourly runs do not move, a suspended one has none, Paris is as before"
    was, becomes = _moved_noon()
    assert f"(before: {FORMER})" in events["berlin-noon"]
    assert f"was {was} and is {becomes}" in events["berlin-noon"]
    assert [entry["name"] for entry in log if entry["event"] == "slots_moved"] == ["berlin-noon"]
    ready = condition(api_server.get(namespace, "berlin-noon"), "Ready")
    assert ready is not None
    assert ready["status"] == "True"


def test_a_release_of_which_nothing_is_known_is_no_news(
    api_server: ApiServer, namespace: str, operator: Operator
) -> None:
    api_server.apply(manifest("noon", namespace, cron=["0 12 * * *"], timeZone="Europe/Berlin"))
    eventually(lambda: release_of(api_server, namespace, "noon") == TZDATA_VERSION)
    patch = json.dumps({"status": {"timeZoneDataVersion": "1998a"}})
    api_server.kubectl("-n", namespace, "patch", "jsched", "noon", "--subresource=status", "--type=merge", "-p", patch)
    eventually(lambda: release_of(api_server, namespace, "noon") == TZDATA_VERSION)
    assert told(api_server, namespace) == {}


def test_more_moves_than_events_a_second_are_all_told(
    api_server: ApiServer, namespace: str, new_operator: Callable[..., Operator], dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("slotkeeper.operator.events.BURST", 2.0)
    names = [f"noon-{number}" for number in range(8)]
    _keep_former(dsn)
    operator = new_operator(namespaces=[namespace])
    api_server.apply(*(manifest(name, namespace, cron=["0 12 * * *"], timeZone="Europe/Berlin") for name in names))
    for name in names:
        patch = json.dumps({"status": {"timeZoneDataVersion": FORMER}})
        api_server.kubectl(
            "-n", namespace, "patch", "jsched", name, "--subresource=status", "--type=merge", "-p", patch
        )
    operator.start()
    eventually(lambda: set(told(api_server, namespace)) == set(names))


def _keep_former(dsn: str) -> None:
    rules = zone_rules("Europe/Berlin", datetime.now(UTC))
    winter = tuple((at, offset) for at, offset in rules.changes if offset == timedelta(hours=1))
    session = Session(dsn, "test")
    note_rules(session, FORMER, replace(rules, changes=((rules.since, timedelta(hours=1)), *winter)))
    assert kept_rules(session, "Europe/Berlin", FORMER) is not None
    session.close()


def _kept(dsn: str) -> set[tuple[str, str]]:
    with connect(dsn) as connection:
        found: list[Any] = rows(connection, "select zone, version from slotkeeper.zone_rules")
    return {(row.zone, row.version) for row in found}


def _summer() -> datetime:
    """When Berlin's next summer begins, or the one after it if that is within a day."""
    soon = datetime.now(UTC) + timedelta(days=1)
    return next(at for at, offset in zone_rules("Europe/Berlin", soon).changes[1:] if offset == timedelta(hours=2))


def _moved_noon() -> tuple[str, str]:
    """The first noon of that summer: by winter time, and as it is."""
    noon = _summer().replace(hour=11)
    return f"{noon:%Y-%m-%dT%H:%M:%SZ}", f"{noon - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"

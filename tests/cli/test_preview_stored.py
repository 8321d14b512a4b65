"""`slotkeeper preview NAME --dsn`: schedules as they are in force, on a real Postgres."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import scenario
from applied_schedules import AppliedSchedules, jobschedule
from cli.objects import document, write
from scenario import one
from slotkeeper.store.migrate import migrate
from slotkeeper.timetable import spread_offset

Run = Callable[..., Any]
NIGHTLY = {"cron": ["30 2 * * *"], "timeZone": "Europe/Berlin", "task": "report"}


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with scenario.connect(dsn) as opened:
        yield opened


@pytest.fixture
def stored(dsn: str, connection: psycopg.Connection[Any]) -> Iterator[AppliedSchedules]:
    with closing(AppliedSchedules(dsn, connection)) as schedules:
        yield schedules


def _preview(run: Run, dsn: str, *arguments: object) -> dict[str, Any]:
    done = run("preview", "--dsn", dsn, "-o", "json", *arguments)
    assert done.status == 0, done.err
    (found,) = json.loads(done.out)
    return dict(found)


def test_a_stored_schedule_by_its_name(slotkeeper: Run, dsn: str, stored: AppliedSchedules) -> None:
    stored.apply(jobschedule("nightly", "billing", **NIGHTLY, payload={"k": 1}))
    for name in (["billing/nightly"], ["-n", "billing", "nightly"], ["-n", "billing", "jsched/nightly"]):
        found = _preview(slotkeeper, dsn, *name, "--from", "2027-03-28T00:00:00Z", "--count", "1")
        assert (found["namespace"], found["name"]) == ("billing", "nightly")
        assert [slot["slot"] for slot in found["slots"]] == ["2027-03-28T01:00:00Z"]


def test_a_name_that_is_not_there(slotkeeper: Run, dsn: str, stored: AppliedSchedules) -> None:
    stored.apply(jobschedule("nightly", "billing", **NIGHTLY))
    for words in (["nightly"], ["shop/nightly"], ["billing/nightly", "--cluster-name", "another"]):
        done = slotkeeper("preview", "--dsn", dsn, *words)
        assert (done.status, done.out) == (3, "")
        assert "no such JobSchedule in the database" in done.err
    stored.retire("nightly", "billing")
    assert slotkeeper("preview", "--dsn", dsn, "billing/nightly").status == 3


def test_what_is_held_or_suspended_says_so(slotkeeper: Run, dsn: str, stored: AppliedSchedules) -> None:
    stored.apply(jobschedule("nightly", "billing", **NIGHTLY))
    assert slotkeeper("hold", "--dsn", dsn, "billing/nightly", "--reason", "no bank", "--by", "anna").status == 0
    found = _preview(slotkeeper, dsn, "billing/nightly")
    assert (found["slots"], found["reason"]) == ([], "Held")
    assert "held by anna" in found["message"]
    assert "no bank; the first would be " in found["message"]
    assert slotkeeper("release", "--dsn", dsn, "billing/nightly").status == 0
    assert len(_preview(slotkeeper, dsn, "billing/nightly")["slots"]) == 10
    stored.apply(jobschedule("nightly", "billing", **NIGHTLY, suspend=True))
    assert _preview(slotkeeper, dsn, "billing/nightly")["reason"] == "Suspended"


def test_a_slot_that_has_come_and_is_not_yet_due_is_the_first(
    slotkeeper: Run, dsn: str, stored: AppliedSchedules, connection: psycopg.Connection[Any]
) -> None:
    now: datetime = one(connection, "select date_trunc('second', clock_timestamp())")
    offset = spread_offset("b/spread", 80_000)
    slot = now - offset / 2
    slot = slot.replace(microsecond=0)
    every = {"periodSeconds": 86_400, "anchorTime": slot.isoformat()}
    stored.apply(jobschedule("spread", "b", every=every, spreadSeconds=80_000, task="t"))
    following = slot + timedelta(days=1)

    def first() -> tuple[datetime, datetime]:
        shown = _preview(slotkeeper, dsn, "b/spread")["slots"][0]
        return datetime.fromisoformat(shown["slot"]), datetime.fromisoformat(shown["due"])

    assert first() == (following, following + offset), "its watermark is after that slot"
    stored.rewind("spread", offset)
    assert first() == (slot, slot + offset)


def test_what_is_in_force_against_a_file(slotkeeper: Run, dsn: str, stored: AppliedSchedules, tmp_path: Path) -> None:
    stored.apply(
        jobschedule("nightly", "billing", **NIGHTLY, payload={"k": 1}), jobschedule("other", "billing", **NIGHTLY)
    )
    file = write(
        tmp_path / "new.yaml",
        document("nightly", None, **NIGHTLY | {"cron": ["30 3 * * *"], "payload": {"k": 2}}),
        document("third", None, **NIGHTLY),
    )
    words = ("--diff", "billing/nightly", file, "--from", "2027-01-01T00:00:00Z", "--count", "2")
    found = _preview(slotkeeper, dsn, *words)
    assert (found["namespace"], found["name"], found["change"]) == ("billing", "nightly", "Edited")
    assert found["firesNow"] == []
    assert [slot["slot"] for slot in found["removed"]] == ["2027-01-01T01:30:00Z"]
    assert [slot["slot"] for slot in found["added"]] == ["2027-01-01T02:30:00Z"]
    assert [(field["field"], field["old"]) for field in found["fields"]] == [
        ("spec.cron", ["30 2 * * *"]), ("spec.payload", {"k": 1}),
    ]  # fmt: skip
    done = slotkeeper("preview", "--dsn", dsn, "--diff", "billing/other", file)
    assert done.status == 3
    assert "billing/other is not in it" in done.err


def test_only_what_is_wrong_with_the_schedule_itself_counts_against_a_file(
    slotkeeper: Run, dsn: str, stored: AppliedSchedules, tmp_path: Path
) -> None:
    stored.apply(jobschedule("nightly", "billing", **NIGHTLY))
    good, bad = document("nightly", None, **NIGHTLY), document("other", None, **NIGHTLY | {"cron": ["0 0 * * L"]})
    file = write(tmp_path / "new.yaml", good, bad)
    done = slotkeeper("preview", "--dsn", dsn, "--diff", "billing/nightly", file, "-o", "json")
    assert (done.status, done.err) == (0, "")
    assert [entry["change"] for entry in json.loads(done.out)] == ["Unchanged"]
    # It may hold the schedule, or be the whole file.
    bad["metadata"]["name"] = "nightly"
    for text in (json.dumps(bad), "kind: [\n"):
        file.write_text(text)
        done = slotkeeper("preview", "--dsn", dsn, "--diff", "billing/nightly", file, "-o", "json")
        assert (done.status, json.loads(done.out)) == (4, [])
        assert "new.yaml" in done.err


def test_the_key_of_the_last_trigger_is_known(
    slotkeeper: Run, dsn: str, stored: AppliedSchedules, tmp_path: Path
) -> None:
    stored.apply(jobschedule("nightly", "billing", trigger="1", **NIGHTLY))
    for key, fires in (("1", []), ("2", [{"trigger": "Manual", "key": "2"}])):
        new = document("nightly", "billing", **NIGHTLY)
        new["metadata"]["annotations"] = {"slotkeeper.dev/trigger": key}
        file = write(tmp_path / "new.yaml", new)
        assert _preview(slotkeeper, dsn, "--diff", "billing/nightly", file)["firesNow"] == fires


def test_the_role_operator_suffices(
    slotkeeper: Run, dsn: str, stored: AppliedSchedules, connection: psycopg.Connection[Any]
) -> None:
    stored.apply(jobschedule("nightly", "billing", **NIGHTLY))
    login = f"previewer_of_{one(connection, 'select current_database()')}"
    connection.execute(sql.SQL("create role {} login").format(sql.Identifier(login)))
    migrate(dsn, [f"{login}=operator"])
    assert len(_preview(slotkeeper, psycopg.conninfo.make_conninfo(dsn, user=login), "billing/nightly")["slots"]) == 10


def test_a_flag_beats_the_environment(
    slotkeeper: Run, dsn: str, stored: AppliedSchedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.apply(jobschedule("nightly", "billing", **NIGHTLY))
    monkeypatch.setenv("SLOTKEEPER_DSN", dsn)
    monkeypatch.setenv("SLOTKEEPER_CONTEXT", "nowhere")
    assert slotkeeper("preview", "billing/nightly").status == 0
    assert slotkeeper("preview", "billing/nightly", "--dsn", dsn).status == 0
    done = slotkeeper("preview", "billing/nightly", "--context", "nowhere")
    assert done.status == 2
    assert "--kubeconfig: no way to the API server" in done.err


def test_a_database_that_is_not_there_is_a_failure(slotkeeper: Run) -> None:
    done = slotkeeper("preview", "--dsn", "postgresql://nobody@127.0.0.1:1/none", "billing/nightly")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("slotkeeper: ")
    assert done.err.splitlines()[-1] == "billing/nightly: there is no such file here either"

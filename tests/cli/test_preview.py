"""`slotkeeper preview` on files: what it prints, and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cli.objects import document, write

Run = Callable[..., Any]
FROM = "2027-03-26T00:00:00Z"
NIGHTLY = {"cron": ["30 2 * * *"], "timeZone": "Europe/Berlin"}


def test_the_table_and_the_json_say_the_same(slotkeeper: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "s.yaml", document("nightly", "billing", **NIGHTLY))
    done = slotkeeper("preview", file, "--from", FROM, "--count", "3", "-o", "json")
    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out) == [
        {
            "namespace": "billing",
            "name": "nightly",
            "slots": [
                {"slot": "2027-03-26T01:30:00Z", "local": "2027-03-26T02:30:00+01:00", "note": None},
                {"slot": "2027-03-27T01:30:00Z", "local": "2027-03-27T02:30:00+01:00", "note": None},
                {
                    "slot": "2027-03-28T01:00:00Z",
                    "local": "2027-03-28T03:00:00+02:00",
                    "note": "02:30 does not exist: first instant after the gap",
                },
            ],
        }
    ]
    table = slotkeeper("preview", file, "--from", FROM, "--count", "3").out.splitlines()
    assert table[0] == "billing/nightly: 30 2 * * * (Europe/Berlin)"
    assert table[1].split() == ["SLOT", "LOCAL", "(Europe/Berlin)", "NOTE"]
    assert table[2] == "2027-03-26T01:30:00Z   Fri 2027-03-26 02:30:00+01:00"
    assert table[4].startswith("2027-03-28T01:00:00Z   Sun 2027-03-28 03:00:00+02:00   02:30 does not exist")
    assert len(table) == 5


def test_c001_two_restricted_day_fields_are_read_as_or(slotkeeper: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "s.yaml", document("a", "billing", cron=["0 0 13 * FRI", "0 1 13 * *"]))
    words = "'0 0 13 * FRI': on day-of-month 13 OR on day-of-week FRI, either is enough"
    assert slotkeeper("preview", file, "--from", FROM).out.splitlines()[1] == words
    (found,) = json.loads(slotkeeper("preview", file, "--from", FROM, "-o", "json").out)
    assert found["remarks"] == [words]


def test_ten_slots_from_now_unless_told(slotkeeper: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "s.yaml", document("often", "billing", cron=["* * * * *"]))
    before = datetime.now(UTC)
    (found,) = json.loads(slotkeeper("preview", file, "-o", "json").out)
    slots = [datetime.fromisoformat(slot["slot"]) for slot in found["slots"]]
    assert len(slots) == 10
    assert before.replace(second=0, microsecond=0) <= slots[0]
    assert (slots[0] - before).total_seconds() <= 120


def test_several_documents_lists_folders_and_standard_input(slotkeeper: Run, tmp_path: Path) -> None:
    a, b, c = (document(name, "billing", cron=["0 6 * * *"]) for name in "abc")
    write(tmp_path / "folder" / "one.yaml", a, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    write(tmp_path / "folder" / "two.json", {"apiVersion": "v1", "kind": "List", "items": [b, c]})
    given = (tmp_path / "folder" / "two.json").read_text()
    done = slotkeeper("preview", tmp_path / "folder", "-o", "json", "--from", FROM)
    assert [entry["name"] for entry in json.loads(done.out)] == ["a", "b", "c"]
    done = slotkeeper("preview", "-", "-o", "json", "--from", FROM, given=given)
    assert [entry["name"] for entry in json.loads(done.out)] == ["b", "c"]
    assert done.status == 0


@pytest.mark.parametrize(("flags", "namespace"), [([], "default"), (["-n", "shop"], "shop")])
def test_an_object_without_a_namespace(slotkeeper: Run, tmp_path: Path, flags: list[str], namespace: str) -> None:
    file = write(tmp_path / "s.yaml", document("a", None, cron=["0 6 * * *"]))
    (found,) = json.loads(slotkeeper("preview", file, *flags, "-o", "json").out)
    assert found["namespace"] == namespace


def test_due_times_are_shown_where_a_spread_moves_them(slotkeeper: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "s.yaml", document("a", "billing", cron=["0 6 * * *"], spreadSeconds=3600))
    (found,) = json.loads(slotkeeper("preview", file, "--from", FROM, "-o", "json").out)
    assert all(slot["due"] > slot["slot"] for slot in found["slots"])
    head, first = slotkeeper("preview", file, "--from", FROM).out.splitlines()[1:3]
    assert head.split()[:2] == ["SLOT", "DUE"]
    assert first.split()[:2] == [found["slots"][0]["slot"], found["slots"][0]["due"]]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"cron": ["0 0 31 2 *"]}, "NeverFires"),
        ({"cron": ["0 6 * * *"], "suspend": True}, "Suspended"),
        ({"at": ["2026-01-01T00:00:00Z"]}, "Completed"),
    ],
)
def test_a_schedule_without_slots_says_why(slotkeeper: Run, tmp_path: Path, spec: dict[str, Any], reason: str) -> None:
    file = write(tmp_path / "s.yaml", document("a", "billing", **spec))
    done = slotkeeper("preview", file, "--from", FROM)
    assert done.status == 0
    assert done.out.splitlines()[1].startswith(f"{reason}: ")
    (found,) = json.loads(slotkeeper("preview", file, "--from", FROM, "-o", "json").out)
    assert (found["slots"], found["reason"]) == ([], reason)


def test_the_last_slot_is_said_to_be_the_last(slotkeeper: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "s.yaml", document("a", "billing", at=["2027-04-01T00:00:00Z"]))
    assert slotkeeper("preview", file, "--from", FROM).out.splitlines()[-1] == "no slot follows"


def test_what_is_refused_names_field_value_and_what_to_write_and_the_rest_is_shown(
    slotkeeper: Run, tmp_path: Path
) -> None:
    good, bad = document("good", "billing", cron=["0 6 * * *"]), document("bad", "billing", cron=["0 22-6 * * *"])
    file = write(tmp_path / "s.yaml", good, bad)
    done = slotkeeper("preview", file, "--from", FROM, "-o", "json")
    assert done.status == 4
    assert [entry["name"] for entry in json.loads(done.out)] == ["good"]
    assert f"{file}:" in done.err
    assert "spec.cron[0]: hour '22-6' runs backwards; write 22-23,0-6" in done.err


def test_every_refusal_of_the_crd_is_told(slotkeeper: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "s.yaml", document("a", "billing", cron=["0 6 * * *"], priority=9, schedule="x"))
    done = slotkeeper("preview", file)
    assert (done.status, done.out) == (4, "")
    assert "spec.priority: 9" in done.err
    assert "spec.schedule" in done.err


def test_one_schedule_twice_is_refused(slotkeeper: Run, tmp_path: Path) -> None:
    one = document("a", "billing", cron=["0 6 * * *"])
    done = slotkeeper("preview", write(tmp_path / "s.yaml", one, one))
    assert done.status == 4
    assert "billing/a is there twice" in done.err


def test_an_action_that_is_not_served_yet_has_slots_all_the_same(slotkeeper: Run, tmp_path: Path) -> None:
    body = document("a", "billing", cron=["0 6 * * *"], http={"url": "https://example.com"})
    from slotkeeper.cli.schedule_files import not_yet_supported, schedule_of

    if not_yet_supported(schedule_of(body)) is None:
        pytest.skip("this version serves http")
    done = slotkeeper("preview", write(tmp_path / "s.yaml", body), "--from", FROM, "-o", "json")
    assert done.status == 0
    assert len(json.loads(done.out)[0]["slots"]) == 10
    assert "spec.http" in done.err


@pytest.mark.parametrize("missing", ["nowhere.yaml", "./nowhere", "/nowhere/at/all", "a/b/c"])
def test_a_file_that_is_not_there_is_not_found(slotkeeper: Run, missing: str) -> None:
    done = slotkeeper("preview", missing)
    assert (done.status, done.out) == (3, "")
    assert "there is no such file or folder" in done.err


def test_refused_outweighs_not_found(slotkeeper: Run, tmp_path: Path) -> None:
    bad = write(tmp_path / "bad.yaml", document("bad", "billing", cron=["0 22-6 * * *"]))
    assert slotkeeper("preview", bad, tmp_path / "nowhere.yaml").status == 4
    assert slotkeeper("preview", tmp_path / "nowhere.yaml", bad).status == 4


def test_a_file_that_is_named_twice_is_read_once(slotkeeper: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "s.yaml", document("a", "billing", cron=["0 6 * * *"]))
    done = slotkeeper("preview", tmp_path, file, "-o", "json")
    assert done.status == 0
    assert [entry["name"] for entry in json.loads(done.out)] == ["a"]


def test_without_a_cluster_a_name_is_said_to_be_no_file_either(
    slotkeeper: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLOTKEEPER_CONTEXT", "nowhere")
    done = slotkeeper("preview", "nope")
    assert (done.status, done.out) == (2, "")
    first, second = done.err.splitlines()
    assert first.startswith("slotkeeper: --kubeconfig: no way to the API server")
    assert second == "nope: there is no such file here either"


def test_a_folder_without_schedules_is_not_found(slotkeeper: Run, tmp_path: Path) -> None:
    assert slotkeeper("preview", tmp_path).status == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["No_Name"], "FILE|NAME"),
        (["Billing/x"], "FILE|NAME"),
        (["a" * 300], "FILE|NAME"),  # longer than the name of a file may be
        (["a.yaml", "--zone", "Mars"], "--zone: 'Mars'"),
        (["a.yaml", "--from", "2027-01-01"], "--from"),
        (["a.yaml", "--from", "0001-01-01T00:00:00Z"], "1900 to 9900"),
        (["--diff", "a.yaml", "a.yaml", "--from", "9999-12-31T23:59:59.999999Z"], "1900 to 9900"),
        (["a.yaml", "--count", "0"], "--count"),
        (["a.yaml", "--count", "10001"], "--count"),
        (["--diff", "a.yaml"], "--diff"),
        (["x", "--dsn", "postgresql:///x", "--context", "y"], "--dsn"),
        ([], "FILE|NAME"),
    ],
)
def test_usage(slotkeeper: Run, arguments: list[str], words: str) -> None:
    done = slotkeeper("preview", *arguments)
    assert (done.status, done.out) == (2, "")
    assert words in done.err


def test_a_pipe_that_closes_is_no_traceback(tmp_path: Path) -> None:
    file = write(tmp_path / "s.yaml", document("a", "billing", cron=["* * * * *"]))
    command = f"{sys.executable} -m slotkeeper.cli preview {file} --count 10000 | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=50, check=True)
    assert (done.stdout, done.stderr) == ("billing/a: * * * * * (Etc/UTC)\n", "")


# --diff


def _edit(tmp_path: Path, old: dict[str, Any], new: dict[str, Any]) -> tuple[Path, Path]:
    return write(tmp_path / "old.yaml", old), write(tmp_path / "new.yaml", new)


def test_an_edit_fires_nothing_now_and_shows_its_slots(slotkeeper: Run, tmp_path: Path) -> None:
    old = document("a", "billing", cron=["0 2,4 * * *"])
    new = document("a", "billing", cron=["0 4,6 * * *"], queue="reports")
    files = _edit(tmp_path, old, new)
    done = slotkeeper("preview", "--diff", *files, "--from", FROM, "--count", "4")
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[:3] == [
        "billing/a: edited",
        "fires now: nothing",
        "slots until 2027-03-27T02:00:00Z: 1 added, 2 removed, 1 kept",
    ]
    assert [line[:22] for line in lines[3:7]] == [
        "- 2027-03-26T02:00:00Z",
        "  2027-03-26T04:00:00Z",
        "+ 2027-03-26T06:00:00Z",
        "- 2027-03-27T02:00:00Z",
    ]
    assert lines[8].startswith('spec.queue: "default" becomes "reports": ')
    (found,) = json.loads(
        slotkeeper("preview", "--diff", *files, "--from", FROM, "--count", "4", "-o", "json").out
    )  # fmt: skip
    assert (found["namespace"], found["name"], found["change"], found["firesNow"]) == ("billing", "a", "Edited", [])
    assert [slot["slot"] for slot in found["added"]] == ["2027-03-26T06:00:00Z"]
    assert [slot["slot"] for slot in found["removed"]] == ["2027-03-26T02:00:00Z", "2027-03-27T02:00:00Z"]
    assert [slot["slot"] for slot in found["kept"]] == ["2027-03-26T04:00:00Z"]
    assert [field["field"] for field in found["fields"]] == ["spec.cron", "spec.queue"]
    assert found["fields"][1] | {"meaning": ""} == {
        "field": "spec.queue", "old": "default", "new": "reports", "meaning": "",
    }  # fmt: skip


def test_an_edit_of_the_payload_moves_no_slot(slotkeeper: Run, tmp_path: Path) -> None:
    files = _edit(
        tmp_path,
        document("a", "billing", cron=["0 2 * * *"], payload={"k": 1}),
        document("a", "billing", cron=["0 2 * * *"], payload={"k": 2}),
    )
    lines = slotkeeper("preview", "--diff", *files, "--from", FROM).out.splitlines()
    assert lines[1:3] == [
        "fires now: nothing",
        "slots: none added, none removed; the next one stays 2027-03-26T02:00:00Z",
    ]


def test_a_new_trigger_key_would_fire(slotkeeper: Run, tmp_path: Path) -> None:
    old, new = (document("a", "billing", cron=["0 2 * * *"]) for _ in range(2))
    new["metadata"]["annotations"] = {"slotkeeper.dev/trigger": "again"}
    files = _edit(tmp_path, old, new)
    assert "fires now: one run by hand, for the new key 'again'" in slotkeeper("preview", "--diff", *files).out
    (found,) = json.loads(slotkeeper("preview", "--diff", *files, "-o", "json").out)
    assert found["firesNow"] == [{"trigger": "Manual", "key": "again"}]


def test_schedules_are_matched_by_namespace_and_name(slotkeeper: Run, tmp_path: Path) -> None:
    spec = {"cron": ["0 2 * * *"]}
    old = write(tmp_path / "old.yaml", document("a", "west", **spec), document("b", "west", **spec))
    new = write(tmp_path / "new.yaml", document("a", "east", **spec), document("b", "west", **spec))
    found = json.loads(slotkeeper("preview", "--diff", old, new, "-o", "json").out)
    assert [(f"{entry['namespace']}/{entry['name']}", entry["change"]) for entry in found] == [
        ("west/a", "Deleted"),
        ("west/b", "Unchanged"),
        ("east/a", "Created"),
    ]


def test_an_edit_that_is_refused_is_not_taken_for_a_deletion(slotkeeper: Run, tmp_path: Path) -> None:
    files = _edit(
        tmp_path, document("a", "billing", cron=["0 2 * * *"]), document("a", "billing", cron=["0 2 * * L"])
    )  # fmt: skip
    done = slotkeeper("preview", "--diff", *files)
    assert (done.status, done.out) == (4, "")
    assert "spec.cron[0]" in done.err


def _changes(text: str) -> list[tuple[str, str]]:
    return [(entry["name"], entry["change"]) for entry in json.loads(text)]


def test_a_refused_object_does_not_hide_what_an_edit_of_the_others_changes(slotkeeper: Run, tmp_path: Path) -> None:
    daily, wrong = {"cron": ["0 2 * * *"]}, {"cron": ["0 2 * * L"]}
    old = write(tmp_path / "old.yaml", *(document(name, "billing", **daily) for name in ("kept", "bad", "gone")))
    new = write(
        tmp_path / "new.yaml",
        document("kept", "billing", cron=["0 3 * * *"]),
        document("bad", "billing", **wrong),
        document("new", "billing", **daily),
    )
    expected = [("kept", "Edited"), ("gone", "Deleted"), ("new", "Created")]
    done = slotkeeper("preview", "--diff", old, new, "-o", "json")
    assert (done.status, _changes(done.out)) == (4, expected)
    assert "new.yaml:" in done.err
    assert "spec.cron[0]" in done.err
    done = slotkeeper("preview", "--diff", new, old, "-o", "json")
    assert (done.status, [name for name, _ in _changes(done.out)]) == (4, ["kept", "new", "gone"])


def test_what_a_file_that_cannot_be_read_may_hold_is_not_taken_for_deleted(slotkeeper: Run, tmp_path: Path) -> None:
    daily = {"cron": ["0 2 * * *"]}
    old = write(tmp_path / "old.yaml", *(document(name, "billing", **daily) for name in ("a", "b")))
    write(tmp_path / "new" / "a.yaml", document("a", "billing", cron=["0 3 * * *"]))
    (tmp_path / "new" / "b.yaml").write_text("kind: [\n")
    done = slotkeeper("preview", "--diff", old, tmp_path / "new", "-o", "json")
    assert (done.status, _changes(done.out)) == (4, [("a", "Edited")])
    assert "b.yaml" in done.err

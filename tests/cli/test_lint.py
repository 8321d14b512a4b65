"""`slotkeeper lint`: lines, JSON, exit statuses. Which warnings there are is tested in `unit/foresight`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.objects import document, write

Run = Callable[..., Any]
SPEC_TESTS = Path(__file__).parents[1] / "unit" / "spec"
WRONG: list[dict[str, str]] = yaml.safe_load((SPEC_TESTS / "wrong.yaml").read_text(encoding="utf-8"))
CLEAN = {"cron": ["30 4 * * *"]}
WARNED = {"cron": ["*/5 * * * *"]}


def test_nothing_to_say(slotkeeper: Run, tmp_path: Path) -> None:
    done = slotkeeper("lint", write(tmp_path / "s.yaml", document("a", "billing", **CLEAN)))
    assert (done.status, done.out) == (0, "")
    assert done.err == "1 schedule accepted: 0 errors, 0 warnings, 0 notes\n"


def test_a_warning_has_file_line_code_and_words(slotkeeper: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "s.yaml", document("a", "billing", **CLEAN), document("b", "shop", **WARNED, retry={}))
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "retry:" in text)
    done = slotkeeper("lint", file)
    assert done.status == 0
    (told,) = done.out.splitlines()
    assert told.startswith(
        f"{file}:{line}: warning RetriesBeyondInterval: shop/b: spec.retry: a run that fails may go on"
    )
    (found,) = json.loads(slotkeeper("lint", file, "-o", "json").out)
    assert found.pop("message") in told
    assert found == {
        "file": str(file), "line": line, "level": "warning", "code": "RetriesBeyondInterval", "namespace": "shop",
        "name": "b", "field": "spec.retry",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "flags", "status"),
    [
        (WARNED, [], 0),
        (WARNED, ["--strict"], 1),
        (WARNED, ["--strict", "--ignore", "RetriesBeyondInterval"], 0),
        (CLEAN | {"suspend": True}, ["--strict"], 0),  # a note
        (CLEAN | {"priority": 3}, [], 4),
        (CLEAN | {"priority": 3}, ["--ignore", "InvalidSpec"], 4),
        (WARNED | {"priority": 3}, ["--strict"], 4),
    ],
)
def test_exit_statuses(slotkeeper: Run, tmp_path: Path, spec: dict[str, Any], flags: list[str], status: int) -> None:
    assert slotkeeper("lint", write(tmp_path / "s.yaml", document("a", "billing", **spec)), *flags).status == status


def test_a_file_that_is_not_there(slotkeeper: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "s.yaml", document("a", "billing", **WARNED))
    done = slotkeeper("lint", tmp_path / "nowhere.yaml", file)
    assert done.status == 3
    assert "nowhere.yaml: there is no such file or folder" in done.err
    assert "RetriesBeyondInterval" in done.out


def test_a_file_that_cannot_be_read_and_the_others(slotkeeper: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: [\n")
    write(tmp_path / "b.yaml", document("a", "billing", **WARNED))
    done = slotkeeper("lint", tmp_path)
    assert done.status == 4
    first, second = done.out.splitlines()
    assert first.startswith(f"{tmp_path / 'a.yaml'}:3: error Unreadable: is not YAML")
    assert "RetriesBeyondInterval" in second


def test_what_is_written_twice(slotkeeper: Run, tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        write(tmp_path / name, document("a", "billing", **CLEAN))
    done = slotkeeper("lint", tmp_path)
    assert done.status == 4
    assert f"error Duplicate: billing/a: is also in {tmp_path / 'a.yaml'}:1" in done.out


def test_schedules_of_several_files_are_one_crowd(slotkeeper: Run, tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path / f"{number}.yaml", document(f"s{number}", "billing", **CLEAN))
    done = slotkeeper("lint", tmp_path)
    assert done.out.startswith(f"{tmp_path / '0.yaml'}:")
    assert "warning ManyAtOneMinute: billing/s0: spec.spreadSeconds: 5 schedules" in done.out


def test_objects_of_others_do_not_count(slotkeeper: Run, tmp_path: Path) -> None:
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}}
    done = slotkeeper("lint", write(tmp_path / "s.yaml", other))
    assert (done.status, done.out) == (0, "")
    assert done.err.startswith("0 schedules accepted")


def test_standard_input(slotkeeper: Run) -> None:
    given = yaml.safe_dump(document("a", None, **WARNED))
    done = slotkeeper("lint", "-", "-n", "shop", given=given)
    assert done.out.startswith("<stdin>:")
    assert "shop/a" in done.out


@pytest.mark.parametrize("text", ["0 0 */2 * MON", "0 0 */5 * SUN", "0 0 1 * */2", "0 0 15,* * MON"])
def test_c002_where_vixie_cron_differs_lint_warns(slotkeeper: Run, tmp_path: Path, text: str) -> None:
    done = slotkeeper("lint", write(tmp_path / "s.yaml", document("a", "billing", cron=[text])))
    assert done.status == 0
    assert "warning DiffersFromVixieCron: billing/a: spec.cron[0]: " in done.out


@pytest.mark.parametrize("text", ["*/60 * * * *", "0 8-23/24 * * *", "0 8-20/24 * * *"])
def test_c008_a_step_as_large_as_its_range_is_accepted_with_a_warning(
    slotkeeper: Run, tmp_path: Path, text: str
) -> None:
    done = slotkeeper("lint", write(tmp_path / "s.yaml", document("a", "billing", cron=[text])))
    assert done.status == 0
    assert "warning StepOfOneValue: billing/a: spec.cron[0]: " in done.out


def test_c037_a_zone_beside_an_interval_is_warned_about(slotkeeper: Run, tmp_path: Path) -> None:
    every = {"periodSeconds": 86_400, "anchorTime": "2026-10-23T05:00:00Z"}
    file = write(tmp_path / "s.yaml", document("a", "billing", every=every, timeZone="Europe/London"))
    done = slotkeeper("lint", file)
    assert done.status == 0
    assert "warning TimeZoneUnused: billing/a: spec.timeZone: " in done.out
    assert "0 6 * * *" in done.out


def test_from_counts_as_now(slotkeeper: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "s.yaml", document("a", "billing", **CLEAN, endTime="2030-01-01T00:00:00Z"))
    assert slotkeeper("lint", file, "--from", "2027-01-01T00:00:00Z").out == ""
    assert "EndTimePassed" in slotkeeper("lint", file, "--from", "2031-01-01T00:00:00Z").out


def test_lint_refuses_what_the_cluster_refuses(slotkeeper: Run) -> None:
    done = slotkeeper("lint", SPEC_TESTS / "wrong", "-o", "json")
    assert done.status == 4
    found = json.loads(done.out)
    for wrong in WRONG:
        mine = [entry for entry in found if entry["file"].endswith(wrong["file"]) and entry["level"] == "error"]
        assert any(entry["field"] == wrong["field"] and wrong["text"] in entry["message"] for entry in mine), wrong
        assert mine[0]["code"] == wrong.get("reason", "InvalidSpec"), wrong
        assert mine[0]["line"] > 0


def test_without_the_extra_lint_fails_and_says_what_to_install(
    slotkeeper: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "s.yaml", document("a", "billing", **CLEAN), document("b", "billing", cron=["0 0 * * L"]))
    for name in ("slotkeeper.spec.rules", "slotkeeper.spec.structure"):
        monkeypatch.setitem(sys.modules, name, None)  # as if its packages were not there
    done = slotkeeper("lint", file)
    assert (done.status, done.out) == (1, "")
    assert "pip install 'slotkeeper[lint]'" in done.err
    # Preview does without, and still refuses what the controller refuses.
    done = slotkeeper("preview", file, "-o", "json")
    assert done.status == 4
    assert [entry["name"] for entry in json.loads(done.out)] == ["a"]
    assert "spec.cron[0]" in done.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "; folders inside it are not looked into"),  # an empty folder
        ("", ""),
        ("# nothing\n---\n", ""),
    ],
)
def test_a_lint_of_nothing_is_not_green(slotkeeper: Run, tmp_path: Path, text: str | None, words: str) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    (target / "below").mkdir()
    write(target / "below" / "s.yaml", document("a", "billing", **CLEAN))
    if text is not None:
        target = tmp_path / "file.yaml"
        target.write_text(text)
    done = slotkeeper("lint", target)
    assert (done.status, done.out) == (3, "")
    assert f"{target}: there is no object in it{words}\n" in done.err


def test_nothing_on_standard_input_is_not_green(slotkeeper: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "s.yaml", document("a", "billing", **CLEAN))
    done = slotkeeper("lint", file, "-", given="")
    assert done.status == 3
    assert "-: there is no object in it" in done.err


def test_a_file_that_is_named_twice_is_read_once(slotkeeper: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "s.yaml", document("a", "billing", **WARNED))
    (tmp_path / "link.yaml").symlink_to(file)
    done = slotkeeper("lint", tmp_path, file, tmp_path / ".." / tmp_path.name / "s.yaml")
    assert done.status == 0
    assert "RetriesBeyondInterval" in done.out
    assert "1 schedule accepted: 0 errors, 1 warning, 0 notes" in done.err


@pytest.mark.parametrize(
    ("code", "words"), [("ClockChang", "write ClockChange"), ("xyz", "the codes are AllInThePast, ")]
)
def test_a_code_that_there_is_not_is_refused(slotkeeper: Run, tmp_path: Path, code: str, words: str) -> None:
    file = write(tmp_path / "s.yaml", document("a", "billing", **CLEAN))
    done = slotkeeper("lint", file, "--ignore", f"ManyAtOneMinute,{code}")
    assert (done.status, done.out) == (2, "")
    assert f"{code!r} is the code of no warning and no note; {words}" in " ".join(done.err.split())

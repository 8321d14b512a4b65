"""`slotkeeper convert` itself: files in, objects out, the report beside them, exit statuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from slotkeeper.cli.convert import convert
from slotkeeper.spec import check, parse_spec
from slotkeeper.timing import timetable
from unit.convert.objects import DATA, container, cronjob, read
from unit.timetable.oracle import utc


def _run(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(convert, [str(argument) for argument in arguments], input=stdin)


def _written(*objects: Any) -> str:
    return yaml.safe_dump_all(objects)


def test_a_folder_is_converted_and_what_is_refused_is_told(tmp_path: Path) -> None:
    for file in DATA.glob("M*.yaml"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "other.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n")
    result = _run(tmp_path)
    assert result.exit_code == 4
    names = [manifest.key[1] for manifest in read(result.stdout)]
    assert len(names) == 14
    assert "many-schedules" not in names
    file = tmp_path / "M12-other-kind.yaml"
    assert f"{file}:2: CronWorkflow many-schedules: refused\n  {file}:3: kind: " in result.stderr
    assert "ConfigMap c: ignored" in result.stderr
    assert "14 converted (11 same, 3 changed), 1 refused, 1 ignored" in result.stderr


def test_standard_input_with_a_list_as_kubectl_prints_it() -> None:
    items = [cronjob(meta={"name": "a", "namespace": "team"}), cronjob("H * * * *", meta={"name": "b"})]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    result = _run("-", stdin=text)
    assert result.exit_code == 4
    (manifest,) = read(result.stdout)
    assert manifest.key == ("team", "a")
    assert "<stdin>:1: CronJob b: refused" in result.stderr


def test_json_is_a_list_that_kubectl_applies() -> None:
    result = _run(DATA / "M10-two-documents-local-time-by-hand.yaml", "-o", "json")
    assert result.exit_code == 0
    value = json.loads(result.stdout)
    assert (value["apiVersion"], value["kind"]) == ("v1", "List")
    assert [item["metadata"]["name"] for item in value["items"]] == ["scale-down", "scale-up"]


def test_the_report_as_json_stands_alone() -> None:
    result = _run(DATA / "M08-exported-object.yaml", "-o", "report")
    assert result.stderr == ""
    (told,) = json.loads(result.stdout)["objects"]
    assert (told["namespace"], told["name"], told["verdict"]) == ("lab", "dump", "same")
    (active,) = [note for note in told["notes"] if note["field"] == "status.active"]
    assert active["kind"] == "warning"
    assert active["where"].endswith("M08-exported-object.yaml:34")


def test_the_report_goes_to_a_file(tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    result = _run(DATA / "M02-manual-only.yaml", "--report", report)
    assert result.stderr == ""
    assert report.read_text().endswith("1 converted (1 same, 0 changed), 0 refused, 0 ignored\n")


def test_what_is_true_of_many_is_told_once() -> None:
    text = _written(*(cronjob(meta={"name": f"job-{n}"}) for n in range(6)))
    result = _run("-", stdin=text)
    assert result.stderr.count("more than 100") == 1
    assert "(job-0, job-1, job-2, job-3 and 2 more)" in result.stderr


def test_the_namespace_is_left_to_kubectl_or_given() -> None:
    text = _written(cronjob(), cronjob(meta={"name": "b", "namespace": "team"}))
    assert [item.object["metadata"].get("namespace") for item in read(_run("-", stdin=text).stdout)] == ["", "team"]
    given = read(_run("-", "-n", "other", stdin=text).stdout)
    assert [item.key[0] for item in given] == ["other", "team"]


def test_a_name_that_comes_twice_is_refused() -> None:
    result = _run("-", stdin=_written(cronjob(), cronjob("0 5 * * *")))
    assert result.exit_code == 4
    assert len(read(result.stdout)) == 1
    assert "metadata.name: a is also in <stdin>:1; leave one of them out" in result.stderr


def test_a_name_that_comes_twice_on_one_line_is_refused() -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [cronjob(), cronjob()]})
    assert "1 converted (1 same, 0 changed), 1 refused" in _run("-", stdin=text).stderr


def test_a_file_that_cannot_be_read_does_not_keep_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: b: c\n")
    (tmp_path / "b.yaml").write_text(_written(cronjob()))
    result = _run(tmp_path)
    assert result.exit_code == 4
    assert len(read(result.stdout)) == 1
    assert f"{tmp_path / 'a.yaml'}:1: is not YAML" in result.stderr


def test_the_line_of_what_is_refused_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(_written(cronjob(pod=container(env=[{"name": "A", "value": 8}]))))
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if text.endswith("value: 8"))
    result = _run(file)
    assert result.exit_code == 4
    assert result.stdout == ""
    assert f"  {file}:{line}: spec.jobTemplate.spec.template.spec.containers[0].env[0].value: " in result.stderr


@pytest.mark.parametrize(("text", "status"), [("", 3), ("apiVersion: v1\nkind: ConfigMap\n", 3)])
def test_nothing_to_convert(text: str, status: int) -> None:
    result = _run("-", stdin=text)
    assert result.exit_code == status
    assert "there is no CronJob in it" in result.stderr


def test_a_file_that_is_not_there() -> None:
    result = _run("/nonexistent/cron.yaml")
    assert result.exit_code == 3
    assert "there is no such file" in result.stderr


def test_a_zone_that_is_none_is_a_wrong_use() -> None:
    result = _run("-", "--time-zone", "Europe/Berln", stdin="")
    assert result.exit_code == 2
    assert "Europe/Berlin" in result.stderr


def test_it_begins_when_it_is_told_to() -> None:
    text = _written(cronjob("*/5 * * * *"))
    (manifest,) = read(_run("-", "--start-time", "2026-12-01T13:32:00+01:00", stdin=text).stdout)
    assert check(manifest.object | {"metadata": {"name": "a"}}) == []
    table = timetable(parse_spec(manifest.object["spec"]))
    assert table.next(utc("2026-12-01T00:00Z")) == utc("2026-12-01T12:35Z")


@pytest.mark.parametrize("wrong", ["tomorrow", "2026-12-01", "2026-12-01T12:30:00.5Z"])
def test_a_start_that_is_no_instant_is_a_wrong_use(wrong: str) -> None:
    assert _run("-", "--start-time", wrong, stdin="").exit_code == 2


def test_zone_and_clock_changes_are_passed_on() -> None:
    text = _written(cronjob("30 2 * * *"))
    (manifest,) = read(_run("-", "--time-zone", "Europe/Berlin", "--keep-clock-changes", stdin=text).stdout)
    assert manifest.object["spec"]["timeZone"] == "Europe/Berlin"
    assert manifest.object["spec"]["daylightSaving"] == {"skippedTime": "Skip", "repeatedTime": "RunTwice"}


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(_written(cronjob()))
    result = _run(tmp_path, tmp_path / "a.yaml", tmp_path / ".." / tmp_path.name / "a.yaml")
    assert result.exit_code == 0
    assert len(read(result.stdout)) == 1


@pytest.mark.parametrize(("time", "status"), [("now", 0), ("2026-12-01T00:00:00.5Z", 0), ("9998-12-31T00:00:00Z", 2)])
def test_from_is_an_instant_within_reach_or_now(time: str, status: int) -> None:
    text = _written(cronjob("30 2 * * *", timeZone="Europe/Berlin"))
    result = _run("-", "--from", time, stdin=text)
    assert result.exit_code == status
    assert status == 0 or "1900 to 9900" in result.stderr


def test_what_cannot_be_written_does_not_keep_the_report_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(cronjob(meta={"name": "\ud800"})))
    result = _run(tmp_path / "a.json", "--report", tmp_path / "report.txt")
    assert result.exit_code == 4
    assert "\\ud800" in (tmp_path / "report.txt").read_text()

"""The manifests of data/: shapes of CronJobs found in public, each with what it must become (expected.yaml)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from slotkeeper.convert import NoteKind, yaml_text
from slotkeeper.spec import Manifest, check, read_manifests
from unit.convert.objects import DATA, converted, cronjob, notes_of, read, spec_of, times_of
from unit.timetable.oracle import utc

EXPECTED: list[dict[str, Any]] = yaml.safe_load((DATA / "expected.yaml").read_text())
MANIFESTS: dict[str, Manifest] = {
    manifest.key[1]: manifest for file in sorted(DATA.glob("M*.yaml")) for manifest in read_manifests(file, "")
}
CONVERTED = [row for row in EXPECTED if row["verdict"] != "refused"]


def _named(row: dict[str, Any]) -> str:
    return f"{row['case']}-{row['name']}"


def test_every_manifest_is_expected() -> None:
    assert [row["name"] for row in EXPECTED] == list(MANIFESTS)


@pytest.mark.parametrize("row", EXPECTED, ids=_named)
def test_verdict(row: dict[str, Any]) -> None:
    conversion = converted(MANIFESTS[row["name"]].object)
    assert conversion.verdict == row["verdict"], notes_of(conversion)
    changes = notes_of(conversion, NoteKind.CHANGED)
    assert bool(changes) == (row["verdict"] == "changed")
    assert [finding.problem for finding in conversion.findings] == ([row["finding"]] if "finding" in row else [])


@pytest.mark.parametrize("row", CONVERTED, ids=_named)
def test_fields(row: dict[str, Any]) -> None:
    conversion = converted(MANIFESTS[row["name"]].object)
    spec = spec_of(conversion)
    for name, value in row["spec"].items():
        assert spec.get(name) == value, name
    assert conversion.job_schedule is not None
    metadata: Any = conversion.job_schedule["metadata"]
    assert metadata["name"] == row["name"]
    assert metadata.get("namespace") == row.get("namespace")


@pytest.mark.parametrize("row", CONVERTED, ids=_named)
def test_notes(row: dict[str, Any]) -> None:
    notes = notes_of(converted(MANIFESTS[row["name"]].object))
    for words in row.get("notes", []):
        assert any(all(word in note for word in words) for note in notes), (words, notes)


@pytest.mark.parametrize("row", [row for row in CONVERTED if "slots" in row], ids=_named)
def test_slots(row: dict[str, Any]) -> None:
    wanted, table = row["slots"], times_of(converted(MANIFESTS[row["name"]].object))
    window = table.window(utc(wanted["from"]), utc(wanted["until"]))
    assert len(window) == wanted["count"]
    assert window == [utc(slot) for slot in wanted.get("all", [])] or "all" not in wanted


@pytest.mark.parametrize("row", CONVERTED, ids=_named)
def test_c149_the_job_template_is_carried_as_it_is(row: dict[str, Any]) -> None:
    obj = MANIFESTS[row["name"]].object
    before = copy.deepcopy(obj)
    template = spec_of(converted(obj))["job"]["template"]
    assert template == _without_null_timestamps(before["spec"]["jobTemplate"])
    assert obj == before, "the object that was read has changed"


def test_c149_what_a_tool_that_models_the_template_would_lose() -> None:
    jobs = {
        case: spec_of(converted(MANIFESTS[name].object))["job"]["template"]
        for case, name in (("M03", "db-backup-orders"), ("M04", "site-mirror"), ("M06", "updater"), ("M09", "parallel"))
    }
    backup = jobs["M03"]["spec"]
    assert backup["podFailurePolicy"]["rules"][0]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    pod = backup["template"]["spec"]
    assert [item["name"] for item in (*pod["initContainers"], *pod["containers"])] == ["0-dump", "1-upload"]
    assert pod["volumes"][0]["configMap"]["defaultMode"] == 0o555
    mirror = jobs["M04"]["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "HEADERS", "value": "rate-limit-token:$(TOKEN)"} in mirror["env"]
    assert {"name": "SKIP", "value": "/find(/|$),\\.pdf/view$"} in mirror["env"]
    updater = MANIFESTS["updater"]
    assert jobs["M06"]["spec"]["suspend"] is False
    assert "suspend" not in spec_of(converted(updater.object)), "the Job's suspend is not the schedule's"
    body = jobs["M06"]["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"]
    assert body == "{{{header}}}{{{table}}}{{{footer}}}"
    parallel = jobs["M09"]
    assert parallel["metadata"]["labels"] == {"queue.example/name": "user-queue"}
    assert {parallel["spec"][name] for name in ("parallelism", "completions")} == {3}
    assert parallel["spec"]["ttlSecondsAfterFinished"] == 86400


def test_c149_only_timestamps_that_are_null_are_left_out() -> None:
    obj = cronjob(pod={"volumes": [{"name": "a", "emptyDir": None}]})
    template = obj["spec"]["jobTemplate"]
    template["metadata"] = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    template["spec"]["template"]["metadata"] = {"creationTimestamp": None}
    wanted = copy.deepcopy(template)
    wanted["spec"]["template"]["metadata"] = {}
    assert spec_of(converted(obj))["job"]["template"] == wanted


def test_c149_a_suspended_job_is_not_a_suspended_schedule() -> None:
    obj = copy.deepcopy(MANIFESTS["updater"].object)
    obj["spec"]["jobTemplate"]["spec"]["suspend"] = True
    spec = spec_of(converted(obj))
    assert spec["job"]["template"]["spec"]["suspend"] is True
    assert "suspend" not in spec


def test_an_exported_object_leaves_behind_what_its_cluster_wrote() -> None:
    conversion = converted(MANIFESTS["dump"].object)
    assert conversion.job_schedule is not None
    assert set(conversion.job_schedule) == {"apiVersion", "kind", "metadata", "spec"}
    assert conversion.job_schedule["metadata"] == {"name": "dump", "namespace": "lab"}
    assert "creationTimestamp" not in str(conversion.job_schedule)
    assert "not-a-real-one" not in " ".join(notes_of(conversion)), "a report must not show the secret"


def test_labels_and_annotations_are_carried() -> None:
    metadata: Any = (converted(MANIFESTS["scale-down"].object).job_schedule or {})["metadata"]
    assert metadata["annotations"] == {"wanted-local-time": "19:25", "wanted-zone": "Europe/Berlin"}
    metadata = (converted(MANIFESTS["pg-backup"].object).job_schedule or {})["metadata"]
    assert metadata["labels"] == {"nodePool": "staging"}


@pytest.mark.parametrize("row", CONVERTED, ids=_named)
def test_the_cluster_would_take_it_as_it_is_written(row: dict[str, Any]) -> None:
    conversion = converted(MANIFESTS[row["name"]].object)
    assert conversion.job_schedule is not None
    assert check(conversion.job_schedule) == []
    (again,) = read(yaml_text([conversion.job_schedule]))
    again.object["metadata"] = {name: value for name, value in again.object["metadata"].items() if value}
    assert again.object == conversion.job_schedule


def _without_null_timestamps(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_null_timestamps(child)
            for name, child in value.items()
            if (name, child) != ("creationTimestamp", None)
        }
    return [_without_null_timestamps(item) for item in value] if isinstance(value, list) else value

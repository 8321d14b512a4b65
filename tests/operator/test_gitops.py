"""JobSchedules from Git: applied again and again, by several managers, beside a person with kubectl, and waited for."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import ApiServer, condition, eventually, settled
from jobschedule_objects import manifest
from verdicts import argo_cd, kstatus

from slotkeeper.operator import Operator

#: One object with nearly every field that has a default, an atomic list or free content.
FULL: dict[str, Any] = {
    "cron": ["0 0 1 1 *", "30 2 1 1 *"],
    "timeZone": "Europe/Berlin",
    "daylightSaving": {"skippedTime": "Skip"},
    "payload": {"list": [1, {"b": False}], "nested": {"a": "x"}},
    "catchUp": {"policy": "RunAll"},
    "retry": {"maxAttempts": 3},
}


def seen(api_server: ApiServer, namespace: str, name: str) -> dict[str, Any]:
    """The object once the controller has written what it thinks of it."""
    return eventually(
        lambda: settled(obj := api_server.get(namespace, name)) and condition(obj, "Ready") and obj,
        what=f"{name} is seen",
    )


def given(*objects: dict[str, Any]) -> str:
    return yaml.safe_dump_all(objects)


@pytest.mark.parametrize("how", [[], ["--server-side"]], ids=["client-side", "server-side"])
def test_diff_is_empty_after_an_apply_and_applying_again_changes_nothing(
    api_server: ApiServer, namespace: str, operator: Operator, how: list[str]
) -> None:
    files = given(manifest("small", namespace), manifest("full", namespace, **FULL))
    api_server.kubectl("apply", *how, "-f", "-", given=files)
    before = {name: seen(api_server, namespace, name) for name in ("small", "full")}
    eventually(lambda: not operator.statuses._waiting and condition(api_server.get(namespace, "full"), "Healthy"))
    difference = api_server.kubectl("diff", *how, "-f", "-", given=files, check=False)
    assert (difference.returncode, difference.stdout) == (0, "")
    again = api_server.kubectl("apply", *how, "-f", "-", given=files).stdout.splitlines()
    assert [line.rpartition(" ")[2] for line in again] == ["serverside-applied" if how else "unchanged"] * 2
    for name, obj in before.items():
        now = api_server.get(namespace, name)
        assert now is not None
        assert now["metadata"]["generation"] == obj["metadata"]["generation"] == 1
        assert now["spec"] == obj["spec"]
        # The controller's is the status alone, and it leaves nothing in anybody's way.
        theirs = json.loads(
            api_server.kubectl(
                "-n", namespace, "get", "jsched", name, "-o", "json", "--show-managed-fields"
            ).stdout
        )["metadata"]["managedFields"]  # fmt: skip
        status = [entry for entry in theirs if entry.get("subresource") == "status"]
        assert [set(entry["fieldsV1"]) for entry in status] == [{"f:status"}]
        assert all("f:status" not in entry["fieldsV1"] for entry in theirs if entry not in status)


def test_two_managers_of_one_object(api_server: ApiServer, namespace: str, operator: Operator) -> None:
    def apply(manager: str, *more: str, **spec: Any) -> subprocess.CompletedProcess[str]:
        obj = manifest("report", namespace)
        obj["spec"] = spec
        flags = ["--server-side", f"--field-manager={manager}", *more]
        return api_server.kubectl("apply", *flags, "-f", "-", given=given(obj), check=False)

    def spec() -> dict[str, Any]:
        found: dict[str, Any] = seen(api_server, namespace, "report")["spec"]
        return found

    git = {"cron": ["0 1 * * *", "0 2 * * *"], "task": "report"}
    assert apply("git", **git).returncode == 0
    assert apply("operations", queue="slow").returncode == 0
    assert apply("git", **git).returncode == 0
    assert (spec()["queue"], spec()["cron"]) == ("slow", git["cron"])
    # A list is one thing: it cannot be shared, only taken over as a whole.
    refused = apply("operations", queue="slow", cron=["0 3 * * *"])
    assert refused.returncode != 0
    assert 'conflict with "git": .spec.cron' in refused.stderr
    assert apply("operations", "--force-conflicts", queue="slow", cron=["0 3 * * *"]).returncode == 0
    assert spec()["cron"] == ["0 3 * * *"]
    assert 'conflict with "operations": .spec.cron' in apply("git", **git).stderr
    assert apply("git", "--force-conflicts", **git).returncode == 0
    assert (spec()["queue"], spec()["cron"]) == ("slow", git["cron"])
    obj = seen(api_server, namespace, "report")
    assert obj["status"]["resolvedSchedule"] == "0 1 * * *;0 2 * * *"
    assert obj["metadata"]["generation"] == obj["status"]["acceptedGeneration"] == 4


def test_what_a_person_edited_is_undone_by_the_next_forced_apply(
    api_server: ApiServer, namespace: str, operator: Operator, tmp_path: Path
) -> None:
    files = given(manifest("report", namespace, cron=["0 1 * * *"], payload={"a": 1}))
    api_server.kubectl("apply", "--server-side", "--field-manager=git", "-f", "-", given=files)
    seen(api_server, namespace, "report")
    editor = tmp_path / "editor"
    # A person adds an expression, suspends, and adds to the payload.
    edits = [
        r"s/^  - 0 1 \* \* \*$/  - 0 1 * * *\n  - 0 5 * * */", "s/suspend: false/suspend: true/",
        r"s/^    a: 1$/    a: 1\n    b: 2/",
    ]  # fmt: skip
    words = " ".join(f"-e '{edit}'" for edit in edits)
    editor.write_text(f'#!/bin/sh\nsed -i {words} "$1"\n')
    editor.chmod(0o755)
    api_server.kubectl("-n", namespace, "edit", "jsched", "report", KUBE_EDITOR=str(editor))
    obj = seen(api_server, namespace, "report")
    assert (obj["spec"]["cron"], obj["spec"]["suspend"]) == (["0 1 * * *", "0 5 * * *"], True)
    assert obj["spec"]["payload"] == {"a": 1, "b": 2}
    assert condition(obj, "Ready")["reason"] == "Suspended"  # type: ignore[index]
    flags = ["--server-side", "--field-manager=git"]
    refused = api_server.kubectl("apply", *flags, "-f", "-", given=files, check=False)
    assert refused.returncode != 0
    assert ".spec.cron" in refused.stderr
    api_server.kubectl("apply", *flags, "--force-conflicts", "-f", "-", given=files)
    obj = seen(api_server, namespace, "report")
    assert (obj["spec"]["cron"], obj["spec"]["payload"]) == (["0 1 * * *"], {"a": 1})
    assert obj["status"]["resolvedSchedule"] == "0 1 * * *"
    # What Git does not say stays as it was edited: `suspend` stands in no file.
    assert obj["spec"]["suspend"] is True


def test_what_tools_conclude(
    api_server: ApiServer, namespace: str, new_namespace: Callable[[], str], operator: Operator
) -> None:
    """kubectl wait, kstatus and Argo CD of the same objects: good, suspended, never firing, past, and wrong ones."""
    api_server.apply(
        manifest("good", namespace, cron=["0 0 1 1 *"]),
        manifest("suspended", namespace, suspend=True),
        manifest("never", namespace, cron=["0 0 31 2 *"]),
        manifest("past", namespace, at=["2020-01-01T00:00:00Z"]),
        manifest("invalid", namespace, cron=["61 * * * *"]),
        manifest("edited-wrongly", namespace),
        manifest("nowhere", namespace, timeZone="Mars/Base"),
    )
    seen(api_server, namespace, "edited-wrongly")
    patch = '{"spec": {"cron": ["* * * * MOON"]}}'
    api_server.kubectl("-n", namespace, "patch", "jsched", "edited-wrongly", "--type=merge", "-p", patch)
    good, wrong = ["good", "suspended", "never", "past"], ["invalid", "nowhere", "edited-wrongly"]
    api_server.kubectl("-n", namespace, "wait", "--for=condition=Ready", "--timeout=30s", "jsched", *good)
    for name in good:
        obj = seen(api_server, namespace, name)
        assert (kstatus(obj), argo_cd(obj)[0]) == ("Current", "Healthy"), name
    for name in wrong:
        obj = seen(api_server, namespace, name)
        assert (kstatus(obj), argo_cd(obj)[0]) == ("Failed", "Degraded"), name
        assert "spec." in argo_cd(obj)[1]
    waited = api_server.kubectl(
        "-n", namespace, "wait", "--for=condition=Ready", "--timeout=1s", "jsched", *wrong, check=False
    )
    assert waited.returncode != 0
    assert waited.stderr.count("timed out waiting") == len(wrong)
    # Nobody watches here: neither tool takes silence for consent.
    elsewhere = new_namespace()
    api_server.apply(manifest("unseen", elsewhere))
    obj = api_server.get(elsewhere, "unseen")
    assert obj is not None
    assert (kstatus(obj), argo_cd(obj)[0]) == ("InProgress", "Progressing")
    # Nor what was said of an earlier generation.
    obj = seen(api_server, namespace, "good")
    obj["metadata"]["generation"] += 1
    assert (kstatus(obj), argo_cd(obj)[0]) == ("InProgress", "Progressing")

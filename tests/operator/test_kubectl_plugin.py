"""`kubectl slotkeeper …`: the real kubectl finds our program, and it finds the objects as kubectl would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from api_server import ApiServer, condition, eventually, settled
from jobschedule_objects import manifest

from slotkeeper.operator import Operator

PROGRAMS = Path(sys.executable).parent
NIGHTLY = {"cron": ["30 2 * * *"], "timeZone": "Europe/Berlin", "task": "report"}
FROM = ("--from", "2027-03-28T00:00:00Z", "--count", "1")

#: Each command is a process of its own, and the client of Kubernetes is slow to import on a busy machine.
pytestmark = pytest.mark.timeout(180)

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kubectl(api_server: ApiServer, tmp_path: Path) -> Kubectl:
    """kubectl with our programs on PATH and no flags of its own; KUBECONFIG names the cluster."""

    def run(*words: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(api_server.program), *words], input=given, capture_output=True, text=True, timeout=50, cwd=tmp_path,
            env={
                "PATH": os.pathsep.join([str(PROGRAMS), os.defpath]), "HOME": str(tmp_path),
                "KUBECONFIG": str(api_server.kubeconfig), **environment,
            },
        )  # fmt: skip

    return run


def test_kubectl_lists_it_without_a_warning(kubectl: Kubectl) -> None:
    done = kubectl("plugin", "list")
    assert done.returncode == 0, done.stderr
    assert str(PROGRAMS / "kubectl-slotkeeper") in done.stdout
    assert "warning" not in done.stderr


def test_its_help_calls_it_as_people_do(kubectl: Kubectl) -> None:
    assert kubectl("slotkeeper", "preview", "--help").stdout.startswith("Usage: kubectl slotkeeper preview ")


def test_a_schedule_of_the_cluster(kubectl: Kubectl, api_server: ApiServer, namespace: str) -> None:
    api_server.apply(manifest("nightly", namespace, **NIGHTLY))
    for name in (["-n", namespace, "nightly"], [f"{namespace}/nightly"]):
        done = kubectl("slotkeeper", "preview", *name, *FROM, "-o", "json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == [
            {
                "namespace": namespace,
                "name": "nightly",
                "slots": [
                    {
                        "slot": "2027-03-28T01:00:00Z",
                        "local": "2027-03-28T03:00:00+02:00",
                        "note": "02:30 does not exist: first instant after the gap",
                    }
                ],
            }
        ]


def test_the_namespace_of_the_context(kubectl: Kubectl, api_server: ApiServer, namespace: str, tmp_path: Path) -> None:
    api_server.apply(manifest("nightly", namespace, **NIGHTLY))
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    context = next(entry for entry in config["contexts"] if entry["name"] == config["current-context"])
    config["contexts"].append({"name": "elsewhere", "context": {**context["context"], "namespace": namespace}})
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    by_flags = kubectl(
        "slotkeeper", "preview", "nightly", "--kubeconfig", str(file), "--context", "elsewhere", KUBECONFIG="/nowhere"
    )
    assert by_flags.returncode == 0, by_flags.stderr
    assert by_flags.stdout.startswith(f"{namespace}/nightly: ")
    config["current-context"] = "elsewhere"
    file.write_text(yaml.safe_dump(config))
    by_variable = kubectl("slotkeeper", "preview", "nightly", KUBECONFIG=str(file))
    assert by_variable.stdout.startswith(f"{namespace}/nightly: ")
    assert kubectl("slotkeeper", "preview", "nightly").returncode == 3


def test_exit_statuses_pass_through_kubectl(kubectl: Kubectl, namespace: str) -> None:
    wrong = yaml.safe_dump(manifest("a", namespace, cron=["0 0 * * L"], task="t"))
    assert kubectl("slotkeeper", "lint", "-", given=wrong).returncode == 4
    assert kubectl("slotkeeper", "preview", "-n", namespace, "nobody").returncode == 3
    assert kubectl("slotkeeper", "preview", "--count", "x", "y").returncode == 2
    unknown = kubectl("slotkeeper", "preview", "y", "--context", "nowhere")
    assert unknown.returncode == 2
    assert "--kubeconfig: no way to the API server" in unknown.stderr


def test_what_the_controller_refuses_and_what_stays_in_force(
    kubectl: Kubectl, api_server: ApiServer, namespace: str, operator: Operator
) -> None:
    api_server.apply(manifest("nightly", namespace, **NIGHTLY))
    eventually(lambda: settled(api_server.get(namespace, "nightly")), what="it is accepted")
    api_server.apply(manifest("nightly", namespace, **{**NIGHTLY, "cron": ["0 0 * * FRI-MON"]}))
    eventually(
        lambda: (condition(api_server.get(namespace, "nightly"), "Ready") or {}).get("status") == "False",
        what="the edit is refused",
    )
    done = kubectl("slotkeeper", "preview", f"{namespace}/nightly")
    assert (done.returncode, done.stdout) == (4, "")
    assert f"{namespace}/nightly: spec.cron[0]: " in done.stderr
    assert "(generation 1 stays in force; --dsn shows its slots)" in done.stderr


def test_an_edit_against_the_cluster(
    kubectl: Kubectl, api_server: ApiServer, namespace: str, operator: Operator
) -> None:
    api_server.apply(manifest("nightly", namespace, **NIGHTLY))
    eventually(lambda: settled(api_server.get(namespace, "nightly")), what="it is accepted")
    new = manifest("nightly", namespace, **{**NIGHTLY, "cron": ["30 3 * * *"]})
    del new["metadata"]["namespace"]
    done = kubectl(
        "slotkeeper", "preview", "--diff", f"{namespace}/nightly", "-", "-o", "json", "--count", "2",
        given=yaml.safe_dump(new),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert (found["change"], found["firesNow"]) == ("Edited", [])
    assert (len(found["added"]), len(found["removed"])) == (1, 1)


def test_a_held_schedule_says_so(
    kubectl: Kubectl, api_server: ApiServer, namespace: str, operator: Operator, dsn: str
) -> None:
    api_server.apply(manifest("nightly", namespace, **NIGHTLY))
    eventually(lambda: settled(api_server.get(namespace, "nightly")), what="it is accepted")
    held = kubectl(
        "slotkeeper", "hold", f"{namespace}/nightly", "--reason", "no bank", "--by", "anna", SLOTKEEPER_DSN=dsn
    )  # fmt: skip
    assert held.returncode == 0, held.stderr
    eventually(
        lambda: (condition(api_server.get(namespace, "nightly"), "Ready") or {}).get("reason") == "Held",
        what="its condition says so",
    )
    (found,) = json.loads(kubectl("slotkeeper", "preview", f"{namespace}/nightly", "-o", "json").stdout)
    assert (found["slots"], found["reason"]) == ([], "Held")
    assert "no bank" in found["message"]

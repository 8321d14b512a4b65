"""Helm and the CRD, on an API server of its own: upgraded with the release, kept when it goes, owned by one release."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import CRDS, ApiServer, own_api_server
from jobschedule_objects import manifest

from helm_chart import CHART, helm

#: The control plane of this module's own takes half a minute on a busy machine.
pytestmark = pytest.mark.timeout(180)
CRD = "jobschedules.slotkeeper.dev"
#: Nothing here runs that a hook would wait for.
VALUES: dict[str, Any] = {"migrations": {"enabled": False}, "database": {"existingSecret": "slotkeeper-database"}}
Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def own_server() -> Iterator[ApiServer]:
    """The CRD of the session's server is not ours to delete."""
    with own_api_server() as server:
        for namespace in ("a", "b", "jobs"):
            server.kubectl("create", "namespace", namespace)
        yield server


@pytest.fixture
def run_helm(own_server: ApiServer) -> Iterator[Helm]:
    """Runs Helm with values; what it installed, and the CRD, are gone afterwards."""

    def run(*arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        given = [] if values is None else ["-f", "-"]
        return helm(
            *arguments, *given, "--kubeconfig", str(own_server.kubeconfig),
            given=None if values is None else yaml.safe_dump(values),
        )  # fmt: skip

    yield run
    for namespace in ("a", "b"):
        listed = run("list", "--short", "-n", namespace)
        _ok(listed)
        for name in listed.stdout.split():
            _ok(run("uninstall", name, "-n", namespace, "--no-hooks"))
    own_server.kubectl("delete", "crd", CRD, "--ignore-not-found")


def _crd(server: ApiServer) -> Any:
    return json.loads(server.kubectl("get", "crd", CRD, "-o", "json").stdout)


def _fields(server: ApiServer, part: str) -> set[str]:
    (version,) = _crd(server)["spec"]["versions"]
    return set(version["schema"]["openAPIV3Schema"]["properties"][part]["properties"])


def _ok(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@pytest.fixture
def older_chart(tmp_path: Path) -> Path:
    """The chart when its CRD did not have maxSuccessAgeSeconds yet, nor status.deadRuns."""
    older = tmp_path / "slotkeeper"
    shutil.copytree(CHART, older)
    file = older / "files" / "crds" / "jobschedules.yaml"
    crd = yaml.safe_load(file.read_text())
    properties = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del properties["spec"]["properties"]["maxSuccessAgeSeconds"]
    del properties["status"]["properties"]["deadRuns"]
    text = yaml.safe_dump(crd, sort_keys=False)
    assert "\nmetadata:\n" in text
    file.write_text(text)
    return older


def test_c117_an_upgrade_of_the_release_upgrades_the_crd(
    own_server: ApiServer, run_helm: Helm, older_chart: Path
) -> None:
    own_server.kubectl("delete", "crd", CRD, "--ignore-not-found")
    _ok(run_helm("install", "one", str(older_chart), "-n", "a", values=VALUES))
    own_server.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"crd/{CRD}")
    assert "maxSuccessAgeSeconds" not in _fields(own_server, "spec")
    schedule = manifest("spread", "jobs", every={"periodSeconds": 3600}, maxSuccessAgeSeconds=7200)
    refused = own_server.kubectl("apply", "-f", "-", given=yaml.safe_dump(schedule), check=False)
    assert 'unknown field "spec.maxSuccessAgeSeconds"' in refused.stderr, "no object loses a field without a word"

    _ok(run_helm("upgrade", "one", str(CHART), "-n", "a", values=VALUES))
    assert "maxSuccessAgeSeconds" in _fields(own_server, "spec")
    assert "deadRuns" in _fields(own_server, "status")
    own_server.apply(schedule)
    stored = own_server.get("jobs", "spread")
    assert stored is not None
    assert stored["spec"]["maxSuccessAgeSeconds"] == 7200
    assert _crd(own_server)["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def _documented(*, name: str, namespace: str) -> list[str]:
    """The command with which the chart's README hands the CRD over, without its file of values."""
    (line,) = re.findall(r"^helm (install .*--take-ownership.*)$", (CHART / "README.md").read_text(), re.MULTILINE)
    words = {"NAME": name, "NAMESPACE": namespace, "charts/slotkeeper": str(CHART)}
    arguments = [words.get(word, word) for word in shlex.split(line)]
    place = arguments.index("-f")
    return [*arguments[:place], *arguments[place + 2 :]]


def test_c147_the_crd_has_one_owner_and_outlives_it(own_server: ApiServer, run_helm: Helm) -> None:
    own_server.kubectl("apply", "--server-side", "-f", str(CRDS))
    own_server.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"crd/{CRD}")
    own_server.apply(manifest("kept", "jobs"))
    without = {**VALUES, "crds": {"install": False}}

    # It was applied with kubectl: a release that wants it is refused, and has it by the command of the README.
    refused = run_helm("install", "one", str(CHART), "-n", "a", values=VALUES)
    assert "invalid ownership metadata" in refused.stderr
    _ok(run_helm(*_documented(name="one", namespace="a"), values=VALUES))
    assert _crd(own_server)["metadata"]["annotations"]["meta.helm.sh/release-name"] == "one"

    # A second release leaves it to the first.
    assert "invalid ownership metadata" in run_helm("install", "two", str(CHART), "-n", "b", values=VALUES).stderr
    _ok(run_helm("install", "two", str(CHART), "-n", "b", values=without))

    # Neither takes it along, nor what is in it.
    for name, namespace in (("two", "b"), ("one", "a")):
        _ok(run_helm("uninstall", name, "-n", namespace))
        assert own_server.get("jobs", "kept") is not None

    # Another name after the first: the same two ways; and the same name simply goes on.
    assert "invalid ownership metadata" in run_helm("install", "three", str(CHART), "-n", "a", values=VALUES).stderr
    _ok(run_helm(*_documented(name="three", namespace="a"), values=VALUES))
    _ok(run_helm("uninstall", "three", "-n", "a"))
    _ok(run_helm("install", "three", str(CHART), "-n", "a", values=VALUES))
    assert own_server.get("jobs", "kept") is not None
    assert "deletionTimestamp" not in _crd(own_server)["metadata"]

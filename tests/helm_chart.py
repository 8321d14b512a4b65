"""The Helm chart rendered by the real Helm, for the tests of several rooms."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "slotkeeper"
CI_FILES = sorted((CHART / "ci").glob("*-values.yaml"))
NAMESPACE = RELEASE = "slotkeeper"
#: What every render needs.
DATABASE = {"database": {"existingSecret": "slotkeeper-database"}}
Object = dict[str, Any]


@cache
def helm_program() -> str:
    """SLOTKEEPER_TEST_HELM, or the one that tests/cluster has built; `make test` builds it."""
    given = os.environ.get("SLOTKEEPER_TEST_HELM")
    if given:
        found = shutil.which(given)
        assert found is not None, f"SLOTKEEPER_TEST_HELM: there is no program {given}"
        return found
    build = str(ROOT / "tests" / "cluster" / "build")
    assert subprocess.run([build, "--built", "helm"]).returncode == 0, "Helm is not built yet: make cluster-programs"
    done = subprocess.run([build, "helm"], capture_output=True, text=True, check=True, timeout=30)
    return str(Path(done.stdout.strip()) / "helm")


def helm(*arguments: str, given: str | None = None, timeout: float = 50) -> subprocess.CompletedProcess[str]:
    """Runs Helm without any configuration of the user's."""
    return subprocess.run(
        [helm_program(), *arguments], input=given, capture_output=True, text=True, timeout=timeout,
        env={"PATH": os.defpath, "HOME": "/nonexistent", "HELM_CACHE_HOME": "/tmp/slotkeeper-helm"},
    )  # fmt: skip


def template(values: Mapping[str, Any] | Path, *more: str) -> subprocess.CompletedProcess[str]:
    """`helm template` of the release slotkeeper in the namespace slotkeeper, with a file of values or values."""
    file = ["-f", str(values)] if isinstance(values, Path) else ["-f", "-"]
    given = None if isinstance(values, Path) else yaml.safe_dump(dict(values))
    return helm("template", RELEASE, str(CHART), "-n", NAMESPACE, *file, *more, given=given)


def objects_of(text: str) -> list[Object]:
    """The objects of a stream of documents."""
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


@cache
def _rendered(key: str) -> str:
    values = json.loads(key)
    done = template(Path(values) if isinstance(values, str) else values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(values: Mapping[str, Any] | Path) -> list[Object]:
    """What the values render to; fails with Helm's words if they do not."""
    return objects_of(_rendered(json.dumps(str(values) if isinstance(values, Path) else values)))


def refusal(values: Mapping[str, Any]) -> str:
    """What Helm says to values that it must refuse."""
    done = template(values)
    assert done.returncode != 0, "Helm renders this"
    return done.stderr


def find(objects: list[Object], kind: str, name: str) -> Object:
    """The one object of that kind and name."""
    (found,) = [obj for obj in objects if obj["kind"] == kind and obj["metadata"]["name"] == name]
    return found


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """The pods that the objects make: the name of what makes them, and their spec."""
    for obj in objects:
        name = f"{obj['kind']}/{obj['metadata']['name']}"
        if obj["kind"] == "Pod":
            yield name, obj["spec"]
        elif obj["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield name, obj["spec"]["template"]["spec"]

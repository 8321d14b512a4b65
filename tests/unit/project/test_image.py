"""The Dockerfile and the lock files, as files: nothing here builds an image."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT: Any = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_PINNED = re.compile(r"^(?P<name>[a-z0-9._-]+)==(?P<version>[^ ;\\]+)(?: ; [^\\]+)?(?: \\)?$", re.MULTILINE)


def _pins(lock: Path) -> dict[str, set[str]]:
    pins: dict[str, set[str]] = {}
    for pin in _PINNED.finditer(lock.read_text(encoding="utf-8")):
        pins.setdefault(pin["name"], set()).add(pin["version"])
    return pins


def _normal(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_names_no_registry_and_no_machine(lock: Path) -> None:
    for number, line in enumerate(lock.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{lock.name}:{number}: {line}"
        assert "://" not in line, where
        assert not re.match(
            r"\s*(-i|-f|-e|--index-url|--extra-index-url|--find-links|--trusted-host|--editable)\b", line
        ), where
        assert not re.search(r"(^|[\s(=@])/[a-z]", line), where
        assert " @ " not in line, where


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_pin_of_a_lock_has_hashes(lock: Path) -> None:
    blocks = re.split(r"^(?=[a-z0-9])", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)
    pinned = [block for block in blocks if _PINNED.match(block)]
    assert pinned
    assert [block for block in blocks if re.match("[a-z0-9]", block) and block not in pinned] == []
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in pinned)


def test_the_image_has_the_versions_that_are_tested() -> None:
    run, dev = _pins(ROOT / "requirements" / "run.txt"), _pins(ROOT / "requirements" / "dev.txt")
    assert {name: dev.get(name) for name in run} == run
    assert {_normal(requirement) for requirement in PROJECT["project"]["dependencies"]} <= run.keys()


def test_what_is_copied_is_there_and_not_ignored() -> None:
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")
    }
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]
    ]
    assert copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert path in allowed, path
    assert allowed == set(copied)


def test_the_base_is_pinned_to_a_supported_python() -> None:
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${PYTHON_IMAGE}"}
    base = re.search(r"^ARG PYTHON_IMAGE=python:(\d+\.\d+)-slim-\w+$", DOCKERFILE, re.MULTILINE)
    assert base is not None
    assert f"Programming Language :: Python :: {base[1]}" in PROJECT["project"]["classifiers"]


def test_c142_the_image_names_its_user_by_number() -> None:
    """Kubernetes cannot see that a name is not root's."""
    assert re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE) == ["65532:65532"]
    assert DOCKERFILE.rstrip().endswith('ENTRYPOINT ["slotkeeper"]')


def test_what_builds_the_wheel_is_what_is_tested() -> None:
    build, dev = _pins(ROOT / "requirements" / "build.txt"), _pins(ROOT / "requirements" / "dev.txt")
    assert {name: dev.get(name) for name in build} == build
    assert {_normal(requirement) for requirement in PROJECT["dependency-groups"]["build"]} <= build.keys()

"""`slotkeeper dev` as a process, on a copy of the quick start."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import Processes, own_processes

QUICK_START = Path(__file__).parents[2] / "examples" / "quickstart"


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that the server's own user can reach, whoever we are."""
    folder = Path(tempfile.mkdtemp(prefix="slotkeeper-test-dev-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def processes(tmp_path: Path, reachable: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """Their throw-away databases lie in ``reachable``: one that is killed cannot remove its own."""
    monkeypatch.setenv("TMPDIR", str(reachable))
    with own_processes(tmp_path) as processes:
        yield processes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the quick start, to be edited."""
    return Path(shutil.copytree(QUICK_START, tmp_path / "quickstart"))

"""`slotkeeper dev` as a process, on a copy of the quick start."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import Processes, own_processes

QUICK_START = Path(__file__).parents[2] / "examples" / "quickstart"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with own_processes(tmp_path) as processes:
        yield processes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the quick start, to be edited."""
    return Path(shutil.copytree(QUICK_START, tmp_path / "quickstart"))

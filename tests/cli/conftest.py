"""The command as its entry point runs it, in this process: arguments and standard input in, status and output out."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from slotkeeper.cli.main import main


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str


@pytest.fixture
def slotkeeper(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Done]]:
    """Runs ``slotkeeper ARGUMENTS``."""

    def run(*arguments: str | Path, given: str = "") -> Done:
        monkeypatch.setattr(sys, "argv", ["slotkeeper", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        code = ended.value.code
        return Done(code if isinstance(code, int) else int(bool(code)), said.out, said.err)

    return run

"""What `cancel` and `requeue` take for a run."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from slotkeeper.cli.main import commands
from slotkeeper.errors import InvalidField


@pytest.mark.parametrize("command", ["cancel", "requeue"])
@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("9" * 5000, "longer than any run id"), ("٣", "neither a run id nor NAMESPACE/SCHEDULE"),
        ("report", "neither a run id nor NAMESPACE/SCHEDULE"), ("billing/report@soon", "2026-11-30T10:45:00Z"),
    ],
)  # fmt: skip
def test_what_names_no_run_is_refused(command: str, run: str, words: str, dsn: str) -> None:
    done = CliRunner().invoke(commands, [command, "--dsn", dsn, run])
    said = f"{done.output}{done.exception}"
    assert words in said
    assert len(said) < 500
    assert isinstance(done.exception, InvalidField | SystemExit)

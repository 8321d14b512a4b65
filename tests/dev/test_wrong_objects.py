"""What the API server and the controller refuse, `slotkeeper dev` refuses too: the same objects, field and text."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from slotkeeper.cli.dev_files import DevFiles
from slotkeeper.operator.apply import Applier
from slotkeeper.store.connection import Session

SPEC_TESTS = Path(__file__).parents[1] / "unit" / "spec"
WRONG = yaml.safe_load((SPEC_TESTS / "wrong.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def refused(shared_dsn: str) -> list[str]:
    """What loading all of them at once says."""
    session = Session(shared_dsn, "test")
    loaded = DevFiles([SPEC_TESTS / "wrong"], Applier(session, "dev", lambda *_: True)).load()
    session.close()
    assert loaded.lines == [], "a wrong object was applied"
    return loaded.errors


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong["file"])
def test_dev_refuses_what_the_cluster_refuses(refused: list[str], wrong: dict[str, str]) -> None:
    mine = [error for error in refused if wrong["file"] in error]
    assert any(wrong["field"] in error and wrong["text"] in error for error in mine), mine


def test_there_are_at_least_25(refused: list[str]) -> None:
    assert len(WRONG) >= 25
    assert len({error.partition(":")[0] for error in refused}) == len(WRONG)

"""The SQL files as files: each says what is in it, and every named statement is used under a name that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slotkeeper.store.queries import queries

ROOT = Path(__file__).parents[3]
SQL = ROOT / "sql"
PACKAGE = ROOT / "controller" / "slotkeeper"
FILES = sorted(SQL.rglob("*.sql"))
_CALL = re.compile(r"""(?:\bcall|\b_call|\bexecute)\(\s*(?:\w+,\s*)?"([\w.]+)"|queries\(\)\["([\w.]+)"\]""")


def _python() -> str:
    return "\n".join(file.read_text(encoding="utf-8") for file in sorted(PACKAGE.rglob("*.py")))


def _used() -> set[str]:
    return {first or second for first, second in _CALL.findall(_python())}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SQL)))
def test_a_file_begins_with_what_is_in_it(file: Path) -> None:
    first = file.read_text(encoding="utf-8").splitlines()[0]
    assert re.match(r"-- \S", first), first


def test_every_used_name_is_a_statement() -> None:
    assert _used() <= queries().keys()
    assert len(_used()) > 20  # else the pattern has stopped finding them


def test_every_statement_is_used() -> None:
    assert queries().keys() == _used()


def test_migrations_are_numbered_without_gaps() -> None:
    names = [file.name for file in sorted((SQL / "migrations").glob("*"))]
    assert [name[:5] for name in names] == [f"{number:04}_" for number in range(1, len(names) + 1)]
    assert all(re.fullmatch(r"\d{4}_[a-z0-9_]+\.sql", name) for name in names)


def test_a_functions_file_names_what_it_creates_in_comments() -> None:
    for file in sorted((SQL / "functions").glob("*.sql")):
        comments = "\n".join(line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("--"))
        assert comments.strip(), file.name

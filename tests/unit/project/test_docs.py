"""The pages say what is there: links lead somewhere, and lists are as long as what they list."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from slotkeeper.cli.main import commands

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
LINKED = [
    *PAGES,
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "charts/slotkeeper/README.md")),
]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
CONTEXT = click.Context(commands)
COMMANDS = {
    name: command for name in commands.list_commands(CONTEXT) if (command := commands.get_command(CONTEXT, name))
}


def _prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _section(page: str, heading: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no section {heading}"
    return found[1]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    for link in LINK.finditer(_prose(page)):
        target, _, anchor = link["target"].partition("#")
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name}: {link['target']}"
        if anchor:
            assert anchor in _anchors(file), f"{page.name}: {link['target']}"


def test_the_index_lists_every_page_once() -> None:
    listed = [link["target"] for link in LINK.finditer(_prose(DOCS / "README.md"))]
    assert sorted(listed) == [page.name for page in PAGES if page.name != "README.md"]


def _direct_dependencies() -> Iterator[str]:
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lists = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    for requirement in (requirement for requirements in lists for requirement in requirements):
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        assert name is not None, requirement
        yield name[0]


def test_every_direct_dependency_has_its_reason() -> None:
    told = re.findall(
        r"^\| `([^`]+)` \| \S.* \|$", (DOCS / "dependencies.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(told) == sorted(set(_direct_dependencies()))


def test_every_command_is_on_the_page() -> None:
    told = re.findall(
        r"^\| `([\w-]+)[ `]", (DOCS / "cli.md").read_text(encoding="utf-8").split("\n## ")[0], re.MULTILINE
    )
    assert sorted(told) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_is_on_the_page_with_its_default(name: str) -> None:
    page = _section("cli.md", "Shared")
    page += _section("cli.md", "requeue and cancel" if name in ("requeue", "cancel") else name)
    for option in COMMANDS[name].params:
        if not isinstance(option, click.Option):
            continue
        row = re.search(rf"^(\| `{option.opts[0]}`.*|.*`{option.opts[0]}[ `].*)$", page, re.MULTILINE)
        assert row is not None, option.opts[0]
        default = option.default
        if isinstance(default, (int, float, str)) and not isinstance(default, bool):
            told = re.fullmatch(r"\| `[^|]*\| `?([^|`]*)`? \|.*", row[0])
            assert told is not None, row[0]
            assert told[1] == (f"{default:g}" if isinstance(default, float) else str(default)), row[0]


def test_every_flag_on_the_page_is_there() -> None:
    told = set(re.findall(r"`(--[a-z-]+)[` =]", (DOCS / "cli.md").read_text(encoding="utf-8")))
    known = {
        flag
        for command in COMMANDS.values()
        for option in command.params
        for flag in (*option.opts, *option.secondary_opts)
    }
    assert told <= known | {"--help", "--version"}


def test_every_table_is_on_the_page() -> None:
    files = sorted((ROOT / "sql" / "migrations").glob("*.sql"))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    tables = {
        name for name in re.findall(r"^create table slotkeeper\.(\w+)", text, re.MULTILINE) if "_default" not in name
    }
    told = re.findall(r"^\| `(\w+)` \|", _section("database.md", "Tables"), re.MULTILINE)
    assert sorted(told) == sorted(tables | {"migration"})


def test_every_role_is_on_the_page() -> None:
    roles = set(re.findall(r"'(slotkeeper_\w+)'", (ROOT / "sql" / "roles.sql").read_text(encoding="utf-8")))
    assert set(re.findall(r"^\| `(\w+)` \|", _section("database.md", "Roles"), re.MULTILINE)) == roles


def test_every_variable_of_a_command_is_on_the_page() -> None:
    source = (ROOT / "controller" / "slotkeeper" / "worker" / "command.py").read_text(encoding="utf-8")
    told = set(re.findall(r"`SLOTKEEPER_([A-Z_]+)`", _section("worker.md", "What a run is told")))
    assert told == set(re.findall(r'^            "([A-Z_]+)": ', source, re.MULTILINE))


def test_every_variable_of_the_tests_is_used_by_them() -> None:
    told = set(re.findall(r"^\| `([A-Z_]+)` \|", (DOCS / "testing.md").read_text(encoding="utf-8"), re.MULTILINE))
    here = Path(__file__).parent
    files = [file for file in (ROOT / "tests").rglob("*") if file.is_file() and here not in file.parents]
    files = [file for file in files if file.suffix in (".py", "") and "__pycache__" not in file.parts]
    texts = [file.read_text(encoding="utf-8") for file in (*files, ROOT / ".ci" / "run")]
    used = set(re.findall(r"\b(SLOTKEEPER_(?:TEST|CLUSTER|TORTURE)_[A-Z_]+|KUBEBUILDER_ASSETS)\b", "\n".join(texts)))
    assert told == used

"""docs/jobschedule.md is what the CRD says."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotkeeper.resources import resource_folder
from slotkeeper.spec.reference import reference
from slotkeeper.spec.schema import object_schema, walk

PAGE = Path(__file__).parents[3] / "docs" / "jobschedule.md"


def test_the_page_is_up_to_date() -> None:
    command = "python -m slotkeeper.spec.reference > docs/jobschedule.md"
    assert PAGE.read_text(encoding="utf-8") == reference(), f"run {command}"


@pytest.mark.parametrize("path", [path for path, _ in walk(object_schema()) if path.startswith(("spec.", "status."))])
def test_every_field_is_on_the_page(path: str) -> None:
    assert f"| `{path}` |" in reference()


def test_tables_have_whole_rows() -> None:
    rows = [line for line in reference().splitlines() if line.startswith("|")]
    assert all(row.endswith(" |") for row in rows)
    assert {row.replace("\\|", "").count("|") for row in rows} == {5, 6}


def test_the_folder_of_a_checkout() -> None:
    assert (resource_folder("crds") / "jobschedules.yaml").is_file()


def test_a_missing_folder_names_both_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("slotkeeper.resources.__file__", str(tmp_path / "a" / "b" / "resources.py"))
    with pytest.raises(FileNotFoundError, match=r"neither at .* nor at"):
        resource_folder("crds")
    installed = tmp_path / "a" / "b" / "data" / "crds"
    installed.mkdir(parents=True)
    assert resource_folder("crds") == installed

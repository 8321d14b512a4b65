"""Each case of docs/cases.md has a test under its number, in the file that the page names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_ROW = re.compile(r"\| (C\d{3}) \| (.+?) \| (.*?) ?\| (.*?) ?\|")
_LINES = (ROOT / "docs/cases.md").read_text().splitlines()
CASES = [found.groups() for line in _LINES if (found := _ROW.fullmatch(line))]


@pytest.mark.parametrize(("number", "tests"), [(case[0], case[2]) for case in CASES], ids=lambda value: value[:4])
def test_the_page_names_tests_that_are_there(number: str, tests: str) -> None:
    files = re.findall(r"`(tests/[^`]+)`", tests)
    assert files, f"docs/cases.md names no test of {number}"
    for name in files:
        text = (ROOT / name).read_text()
        in_a_name = re.search(rf"def test_\w*{number}(?!\d)\w*", text, re.IGNORECASE)
        in_data = re.search(rf"""^[- ]*(case: )?["']?{number}\b""", text, re.MULTILINE)
        assert in_a_name or in_data, f"{name} has no test whose name has {number}"


def test_the_page_lists_each_case_once() -> None:
    numbers = [case[0] for case in CASES]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 50

"""Every reason that a slot has for not running is explained to people, and none that it never has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from slotkeeper.reasons import WHY_NO_RUN, why_no_run
from slotkeeper.timetable.catch_up import SkipReason

ROOT = Path(__file__).parents[3]


def test_every_reason_has_words() -> None:
    """Those of the plan, and those that only SQL gives."""
    stored = set()
    for file in (ROOT / "sql/functions").glob("*.sql"):
        for insert in re.findall(r"insert into slot_skip \([^)]*\)(.*?);", file.read_text(encoding="utf-8"), re.DOTALL):
            stored |= set(re.findall(r"'([A-Z]\w+)'", insert)) - {"Superseded"}
    assert stored >= {"Overlap", "CatchUpLimit", "StartDeadlineExceeded"}
    assert set(WHY_NO_RUN) == stored | set(get_args(SkipReason))


def test_every_reason_is_on_the_page() -> None:
    page = (ROOT / "docs/catch-up.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \| (?:skipped|superseded) \|", page, re.MULTILINE)) == set(WHY_NO_RUN)


def test_a_reason_of_another_version_is_told_as_it_is() -> None:
    assert why_no_run("Sunspots") == "Sunspots"
    assert why_no_run("Late").startswith("Late (it could not start within")

"""What becomes of the slots of an outage: the table of docs/catch-up.md, written by hand from the rules.

`tests/store/test_outage.py` proves each cell on a real Postgres. The page is made from it:
``python tests/outages.py > docs/catch-up.md``, with the words of tests/outages.md around it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_PROSE = Path(__file__).with_suffix(".md")

POLICIES = ("RunOnce", "RunAll", "Skip")
OVERLAPS = ("Skip", "Queue", "Replace", "Allow")
AWAYS = ("controller", "workers", "both")
BEFORE = ("ended", "started")
#: The columns: (startingDeadlineSeconds is set, spreadSeconds is set).
COLUMNS = {(False, False): "neither", (True, False): "deadline", (False, True): "spread", (True, True): "both"}

#: Of the schedule: how many runs RunAll makes up, and the two durations (seconds).
MAX_RUNS, GRACE, DEADLINE, SPREAD = 2, 300, 1200, 300


class Row(NamedTuple):
    """``overlaps`` and ``aways`` share their four cells, one for each of COLUMNS."""

    policy: str
    before: str
    overlaps: tuple[str, ...]
    aways: tuple[str, ...]
    cells: tuple[str, str, str, str]


_DECIDED_AT_ONCE = ("controller", "both")
_ONE_AT_A_TIME = ("Skip", "Queue", "Replace")

ROWS = (
    Row("RunOnce", "ended", OVERLAPS, _DECIDED_AT_ONCE, (
        "D; B C Superseded",
        "D; B C StartDeadlineExceeded",
        "D; B C Superseded",
        "D; B StartDeadlineExceeded, C Superseded",
    )),
    Row("RunOnce", "ended", OVERLAPS, ("workers",), ("D; B C Superseded",) * 4),
    Row("RunOnce", "started", ("Skip",), _DECIDED_AT_ONCE, (
        "A; B C Superseded, D Overlap",
        "A; B C StartDeadlineExceeded, D Overlap",
        "A; B C Superseded, D Overlap",
        "A; B StartDeadlineExceeded, C Superseded, D Overlap",
    )),
    Row("RunOnce", "started", ("Skip",), ("workers",), ("A; B C D Overlap",) * 4),
    Row("RunOnce", "started", ("Queue",), _DECIDED_AT_ONCE, (
        "A then D; B C Superseded",
        "A then D; B C StartDeadlineExceeded",
        "A then D; B C Superseded",
        "A then D; B StartDeadlineExceeded, C Superseded",
    )),
    Row("RunOnce", "started", ("Queue",), ("workers",), ("A then D; B C Superseded",) * 4),
    Row("RunOnce", "started", ("Replace",), _DECIDED_AT_ONCE, (
        "D; A Replaced, B C Superseded",
        "D; A Replaced, B C StartDeadlineExceeded",
        "D; A Replaced, B C Superseded",
        "D; A Replaced, B StartDeadlineExceeded, C Superseded",
    )),
    Row("RunOnce", "started", ("Replace",), ("workers",), ("D; A Replaced, B C Superseded",) * 4),
    Row("RunOnce", "started", ("Allow",), _DECIDED_AT_ONCE, (
        "A and D; B C Superseded",
        "A and D; B C StartDeadlineExceeded",
        "A and D; B C Superseded",
        "A and D; B StartDeadlineExceeded, C Superseded",
    )),
    Row("RunOnce", "started", ("Allow",), ("workers",), ("A and D; B C Superseded",) * 4),
    Row("RunAll", "ended", _ONE_AT_A_TIME, AWAYS, (
        "C then D; B CatchUpLimit",
        "D; B C StartDeadlineExceeded",
        "C then D; B CatchUpLimit",
        "C then D; B StartDeadlineExceeded",
    )),
    Row("RunAll", "ended", ("Allow",), AWAYS, (
        "C and D; B CatchUpLimit",
        "D; B C StartDeadlineExceeded",
        "C and D; B CatchUpLimit",
        "C and D; B StartDeadlineExceeded",
    )),
    Row("RunAll", "started", ("Skip",), _DECIDED_AT_ONCE, (
        "A; B CatchUpLimit, C D Overlap",
        "A; B C StartDeadlineExceeded, D Overlap",
        "A; B CatchUpLimit, C D Overlap",
        "A; B StartDeadlineExceeded, C D Overlap",
    )),
    Row("RunAll", "started", ("Skip",), ("workers",), ("A; B C D Overlap",) * 4),
    Row("RunAll", "started", ("Queue",), AWAYS, (
        "A then C then D; B CatchUpLimit",
        "A then D; B C StartDeadlineExceeded",
        "A then C then D; B CatchUpLimit",
        "A then C then D; B StartDeadlineExceeded",
    )),
    Row("RunAll", "started", ("Replace",), AWAYS, (
        "C then D; A Replaced, B CatchUpLimit",
        "D; A Replaced, B C StartDeadlineExceeded",
        "C then D; A Replaced, B CatchUpLimit",
        "C then D; A Replaced, B StartDeadlineExceeded",
    )),
    Row("RunAll", "started", ("Allow",), AWAYS, (
        "A and C and D; B CatchUpLimit",
        "A and D; B C StartDeadlineExceeded",
        "A and C and D; B CatchUpLimit",
        "A and C and D; B StartDeadlineExceeded",
    )),
    Row("Skip", "ended", OVERLAPS, AWAYS, ("none; B C D Late", "none; B C D Late", "D; B C Late", "D; B C Late")),
    Row("Skip", "started", ("Skip",), _DECIDED_AT_ONCE, (
        "A; B C D Late",
        "A; B C D Late",
        "A; B C Late, D Overlap",
        "A; B C Late, D Overlap",
    )),
    Row("Skip", "started", ("Skip",), ("workers",), ("A; B C D Overlap",) * 4),
    Row("Skip", "started", ("Queue",), AWAYS, (
        "A; B C D Late", "A; B C D Late", "A then D; B C Late", "A then D; B C Late",
    )),
    Row("Skip", "started", ("Replace",), _DECIDED_AT_ONCE, (
        "A; B C D Late", "A; B C D Late", "D; A Replaced, B C Late", "D; A Replaced, B C Late",
    )),
    Row("Skip", "started", ("Replace",), ("workers",), (
        "none; A Replaced, B C D Late",
        "none; A Replaced, B C D Late",
        "D; A Replaced, B C Late",
        "D; A Replaced, B C Late",
    )),
    Row("Skip", "started", ("Allow",), AWAYS, (
        "A; B C D Late", "A; B C D Late", "A and D; B C Late", "A and D; B C Late",
    )),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One cell of the product: who was away, under which settings, and what is right."""

    policy: str
    overlap: str
    away: str
    before: str
    deadline: bool
    spread: bool
    outcome: str

    @property
    def runs(self) -> str:
        return self.outcome.partition("; ")[0]

    @property
    def did_not_run(self) -> list[str]:
        """``B Superseded`` and so on, one for each slot."""
        found = []
        for group in self.outcome.partition("; ")[2].split(", "):
            *slots, reason = group.split()
            found += [f"{slot} {reason}" for slot in slots]
        return sorted(found)

    def __str__(self) -> str:
        return f"{self.policy}-{self.overlap}-{self.away}-{self.before}-{COLUMNS[self.deadline, self.spread]}"


def cases() -> Iterator[Case]:
    """Every cell."""
    for row in ROWS:
        for overlap in row.overlaps:
            for away in row.aways:
                for (deadline, spread), outcome in zip(COLUMNS, row.cells, strict=True):
                    yield Case(row.policy, overlap, away, row.before, deadline, spread, outcome)


def page() -> str:
    """docs/catch-up.md."""
    parts = []
    for policy in POLICIES:
        parts.append(f"## catchUp.policy: {policy}\n")
        for before in BEFORE:
            parts.append(f"\nA had {before}:\n\n| overlapPolicy | away | neither | deadline | spread | both |\n")
            parts.append("| --- | --- | --- | --- | --- | --- |\n")
            parts += [_line(row) for row in ROWS if (row.policy, row.before) == (policy, before)]
        parts.append("\n")
    return _PROSE.read_text(encoding="utf-8").replace("TABLES\n\n", "".join(parts))


def _line(row: Row) -> str:
    overlaps = "any" if row.overlaps == OVERLAPS else ", ".join(f"`{overlap}`" for overlap in row.overlaps)
    aways = "any" if row.aways == AWAYS else ", ".join(row.aways).replace("controller, both", "controller or both")
    cells = " | ".join(_shown(cell) for cell in row.cells)
    return f"| {overlaps} | {aways} | {cells} |\n"


def _shown(cell: str) -> str:
    runs, _, rest = cell.partition("; ")
    return f"{'nothing' if runs == 'none' else f'**{runs}**'}; {rest}"


if __name__ == "__main__":
    sys.stdout.write(page())

"""The outputs in docs/preview.md are what the commands print.

``python tests/cli/test_outputs_on_the_page.py`` writes them anew after a change that is meant.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "preview.md"
BLOCK = re.compile(r"^```\n\$ (?P<command>slotkeeper .*)\n(?P<output>(?:.*\n)*?)```$", re.MULTILINE)
BLOCKS = list(BLOCK.finditer(PAGE.read_text(encoding="utf-8")))


def _printed(command: str) -> str:
    """What a person sees on a terminal, from the folder of the repository."""
    words = [sys.executable, "-m", "slotkeeper.cli", *shlex.split(command)[1:]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLOTKEEPER_")}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_there_are_outputs_of_each_command() -> None:
    assert len(BLOCKS) == 3


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block["command"].split(" --from")[0])
def test_the_output_is_what_the_command_prints(block: re.Match[str]) -> None:
    assert block["output"] == _printed(block["command"])


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        BLOCK.sub(lambda block: f"```\n$ {block['command']}\n{_printed(block['command'])}```", text), encoding="utf-8"
    )

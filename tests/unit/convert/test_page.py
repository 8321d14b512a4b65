"""docs/migrating-from-cronjob.md and examples/migrating-from-cronjob show what the command prints.

``python tests/unit/convert/test_page.py`` writes both anew after a change that is meant.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "migrating-from-cronjob.md"
EXAMPLE = ROOT / "examples" / "migrating-from-cronjob"
BLOCK = re.compile(
    r"^```\n\$ (?P<command>slotkeeper convert .*) > jobschedule\.yaml\n(?P<told>(?:.*\n)*?)```$", re.MULTILINE
)


def _run(command: str) -> tuple[str, str]:
    words = [sys.executable, "-m", "slotkeeper.cli", *shlex.split(command)[1:]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLOTKEEPER_")}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_the_page_and_the_example_show_what_is_printed() -> None:
    (block,) = BLOCK.finditer(PAGE.read_text(encoding="utf-8"))
    written, told = _run(block["command"])
    assert block["told"] == told
    assert (EXAMPLE / "jobschedule.yaml").read_text(encoding="utf-8") == written


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        objects, report = _run(found["command"])
        (EXAMPLE / "jobschedule.yaml").write_text(objects, encoding="utf-8")
        text = text.replace(found[0], f"```\n$ {found['command']} > jobschedule.yaml\n{report}```")
    PAGE.write_text(text, encoding="utf-8")

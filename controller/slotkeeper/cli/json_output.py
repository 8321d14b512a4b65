"""JSON on standard output, for every `-o json`: right whatever encoding the terminal or the pipe has."""

from __future__ import annotations

import codecs
import json
import sys
from typing import Any


def json_text(value: Any) -> str:
    """``value`` as people read it, with the characters themselves where standard output can have them all."""
    return json.dumps(value, indent=2, ensure_ascii=not takes_every_character(), allow_nan=False)


def takes_every_character() -> bool:
    """Whether standard output is UTF-8. What it cannot have would become an escape that JSON or YAML may not know."""
    encoding: str | None = getattr(sys.stdout, "encoding", None)
    return encoding is not None and codecs.lookup(encoding).name == "utf-8"

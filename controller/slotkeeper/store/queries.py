"""The named statements of ``sql/queries``: each has a name, a purpose and named parameters.

Reads and splits the files, once; knows nothing of connections. A file holds any number of blocks::

    -- name: due
    -- Schedules that have a slot due.
    select * from slotkeeper.due_v1(%(limit)s::integer);
"""

from __future__ import annotations

import re
from functools import cache
from typing import LiteralString, NamedTuple, cast

from slotkeeper.resources import resource_folder

_BLOCK = re.compile(
    r"^-- name: (?P<name>[a-z0-9_.]+)\n(?P<purpose>(?:-- [^\n]*\n)+)(?P<text>.*?)(?=^-- name:|\Z)",
    re.MULTILINE | re.DOTALL,
)
_PARAMETER = re.compile(r"%\((\w+)\)[sb]")


class Query(NamedTuple):
    """One statement: its text with ``%(name)s`` parameters, and what it is for."""

    name: str
    purpose: str
    text: LiteralString
    parameters: frozenset[str]


@cache
def queries() -> dict[str, Query]:
    """Every statement by name; raises ValueError when two share one or a file holds text outside a block."""
    found: dict[str, Query] = {}
    for file in sorted((resource_folder("sql") / "queries").glob("*.sql")):
        content = file.read_text(encoding="utf-8")
        blocks = list(_BLOCK.finditer(content))
        if _BLOCK.sub("", content).strip() or not blocks:
            raise ValueError(f"{file.name}: text outside a block that begins with '-- name:' and a purpose")
        for block in blocks:
            name = block["name"]
            if name in found:
                raise ValueError(f"{file.name}: the name {name} is taken")
            # The files are part of the program, so their text is as literal as a string in it.
            text = cast(LiteralString, block["text"].strip().rstrip(";"))
            if not text:
                raise ValueError(f"{file.name}: {name} has no statement")
            purpose = " ".join(line[3:] for line in block["purpose"].splitlines())
            found[name] = Query(name, purpose, text, frozenset(_PARAMETER.findall(text)))
    return found

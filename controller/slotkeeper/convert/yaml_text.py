"""Objects as YAML that kubectl reads back as the same values.

PyYAML alone would leave texts such as ``0o755`` and ``1e3`` without quotes, and kubectl would make numbers of
them. Comments of the file that was read are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from slotkeeper.spec.yaml_scalars import plain_scalar

# Line breaks to one reader and characters like any other to the next; only in double quotes are they escaped.
_ODD_BREAKS = frozenset("\x85\u2028\u2029\ufeff")


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's own
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - PyYAML's own
        # Lists stand to the right of their key, as most people write them.
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    odd = not _ODD_BREAKS.isdisjoint(text)
    if not odd and "\n" in text.strip("\n") and not text.startswith((" ", "\n")):
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
    # Whatever begins like a number or a sign is quoted for people, the rest where kubectl would read something else.
    quoted = odd or not text or not (text[0].isalpha() or text[0] == "/") or plain_scalar(text) != text
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if quoted else None)


_Dumper.add_representer(str, _text)


def yaml_text(objects: Iterable[Mapping[str, object]], *, every_character: bool = True) -> str:
    """One document for each object, fields in their own order; empty if there is none.

    Without ``every_character`` it is ASCII alone, and other characters are escapes in double quotes.
    """
    return yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, allow_unicode=every_character, width=1_000_000, explicit_start=True
    )

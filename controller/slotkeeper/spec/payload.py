"""What no schema can refuse: strings that Postgres cannot store, and payloads that are too large or too deep.

Only looks at values; nothing is cleaned or cut here, because a changed payload would be a different job.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

from slotkeeper.errors import InvalidField
from slotkeeper.spec.wording import json_type, shown

MAX_PAYLOAD_BYTES = 64 * 1024
# Far below what Postgres (max_stack_depth) and Python's JSON encoder stand.
MAX_DEPTH = 100
# What a float can hold, as every other reader of JSON will read it.
_MAX_INTEGER_BITS = 1024


def check_payload(payload: Mapping[str, object], field: str) -> None:
    """Raise InvalidField if ``payload`` is more than 64 KiB as compact JSON in UTF-8."""
    size = len(json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_PAYLOAD_BYTES:
        raise InvalidField(
            field,
            f"{size} bytes as JSON, more than the {MAX_PAYLOAD_BYTES} (64 KiB) that a payload may have",
            instead="store the data elsewhere and write where it is",
        )


def check_storable(value: object, field: str) -> None:
    """Raise InvalidField at the first part of ``value`` that cannot be stored as JSON in Postgres.

    Refused: NUL and lone surrogates in strings and keys, NaN and infinity, nesting deeper than 100 levels.
    """
    for path, part, depth in _parts(value, field):
        if depth > MAX_DEPTH:
            raise InvalidField(field, f"nested deeper than {MAX_DEPTH} levels", instead="flatten it")
        if isinstance(part, str):
            _check_text(part, path)
        elif isinstance(part, float) and not math.isfinite(part):
            raise InvalidField(path, f"{part} is not a number in JSON", instead="write a string or leave it out")
        elif isinstance(part, int) and part.bit_length() > _MAX_INTEGER_BITS:
            raise InvalidField(path, "the number is too large for JSON", instead="write it as a string")
        elif part is not None and not isinstance(part, bool | int | float | Mapping | list):
            raise InvalidField(path, f"a {json_type(part)} is not a JSON value", instead="write a string")


def _check_text(text: str, path: str) -> None:
    if "\0" in text:
        raise InvalidField(
            path,
            f"{shown(text)} holds a NUL character, which Postgres cannot store",
            instead="encode it, as base64",
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        problem = f"{shown(text)} holds half of a surrogate pair, which is not valid Unicode"
        raise InvalidField(path, problem, instead="write the whole character") from None


def _parts(value: object, field: str) -> Iterator[tuple[str, object, int]]:
    # A stack instead of recursion: nesting comes from the user and may be thousands of levels deep.
    stack: list[tuple[str, object, int]] = [(field, value, 0)]
    while stack:
        path, part, depth = stack.pop()
        yield path, part, depth
        if isinstance(part, Mapping):
            for key, child in part.items():
                yield f"{path} (a key)", key, depth
                stack.append((f"{path}.{key}", child, depth + 1))
        elif isinstance(part, list):
            stack.extend((f"{path}[{index}]", child, depth + 1) for index, child in enumerate(part))

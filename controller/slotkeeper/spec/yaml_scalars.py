"""Plain YAML scalars as kubectl reads them: a mixture of YAML 1.1 and 1.2 with Go's numbers.

PyYAML's own rules would turn ``12:30`` into 750, ``2026-01-01`` into a date, and leave ``0o755`` a text. What
is here was compared with sigs.k8s.io/yaml 1.6, the reader in kubectl; the comparison is a test.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

_TRUE = "y Y yes Yes YES true True TRUE on On ON"
_FALSE = "n N no No NO false False FALSE off Off OFF"
_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(_TRUE.split(), True),
    **dict.fromkeys(_FALSE.split(), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
# Text that starts with a dot is read by another function there, which wants digits around an underscore.
_DOTTED_FLOAT = re.compile(r"\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+)?", re.ASCII)

Scalar = bool | int | float | str | None


def plain_scalar(text: str) -> Scalar:
    """The value of the plain (unquoted) scalar ``text``; not-a-number and infinity come back as floats."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == ".":
        return _number(float(text), text) if _DOTTED_FLOAT.fullmatch(text) else text
    if text[0] not in "+-0123456789":
        return text
    digits = text.replace("_", "")
    integer = _integer(digits)
    if integer is not None:
        return integer
    return _number(float(digits), text) if _FLOAT.fullmatch(digits) else text


def json_number(number: float) -> int | float:
    """``number`` as it is after kubectl has written it as JSON and the API server has read it.

    A float without a fraction becomes an integer, with the digits that Go writes: the shortest that name it.
    """
    if number.is_integer() and abs(number) < 1e21:
        return int(Decimal(repr(number)))
    return number


def json_integer(number: int) -> int | float:
    """``number`` as the API server reads it: beyond 64 bits it is a float, and loses digits."""
    return number if -(2**63) <= number < 2**63 else json_number(float(number))


def _integer(digits: str) -> int | float | None:
    match = _INTEGER.fullmatch(digits)
    if match is None:
        return None
    sign, *by_base = match.groups()
    number = next(int(group, base) for group, base in zip(by_base, (16, 2, 8, 10), strict=True) if group is not None)
    number = -number if sign == "-" else number
    # Go has no integer beyond 64 bits, and reads an unsigned one only without a sign.
    if number >= 2**64 or number < -(2**63) or (sign and number >= 2**63):
        return None
    return json_integer(number)


def _number(value: float, text: str) -> Scalar:
    return json_number(value) if math.isfinite(value) else text

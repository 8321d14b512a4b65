"""An expression of more characters than a JobSchedule takes: shorter, or as several that together have the same times.

Only where that is exact. A list that holds a term with ``*`` stays as it is: whether a day field is free, and whether
an expression follows the clock or elapsed time, depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from slotkeeper.errors import InvalidField
from slotkeeper.timetable.refusals import LONGEST_TEXT

_MOST_EXPRESSIONS = 16  # spec.cron


def expressions_of(text: str, field: str = "spec.schedule") -> list[str]:
    """``text`` itself if it is short enough or no five fields, else the expressions that say the same.

    Raises InvalidField for ``field`` where there are none.
    """
    fields = text.split(" ")
    if len(text) <= LONGEST_TEXT or len(fields) != 5:
        return [text]
    found = _halves([_with_ranges(value) for value in fields])
    if found is None or len(found) > _MOST_EXPRESSIONS:
        raise InvalidField(
            field,
            f"it has {len(text)} characters, and an expression of a JobSchedule at most {LONGEST_TEXT}",
            instead="write ranges and steps, such as 0-58/2, in the place of long lists",
        )
    return found


def _with_ranges(value: str) -> str:
    """``3-6`` in the place of ``3,4,5,6``."""
    terms = value.split(",")
    if "*" in value or len(terms) < 3:
        return value
    numbers = sorted({int(term) for term in terms if term.isdecimal()})
    return ",".join([*_ranges(numbers), *(term for term in terms if not term.isdecimal())])


def _ranges(numbers: list[int]) -> Iterator[str]:
    first = 0
    for place, number in enumerate(numbers):
        if place + 1 < len(numbers) and numbers[place + 1] == number + 1:
            continue
        same = numbers[first : place + 1]
        yield from [f"{same[0]}-{number}"] if len(same) > 2 else map(str, same)
        first = place + 1


def _halves(fields: list[str]) -> list[str] | None:
    """The longest list is halved until every expression is short enough; None where there is no list to halve."""
    text = " ".join(fields)
    if len(text) <= LONGEST_TEXT:
        return [text]
    lists = [place for place, value in enumerate(fields) if "," in value and "*" not in value]
    if not lists:
        return None
    longest = max(lists, key=lambda place: len(fields[place]))
    values = fields[longest].split(",")
    found: list[str] = []
    for half in (values[: len(values) // 2], values[len(values) // 2 :]):
        expressions = _halves([*fields[:longest], ",".join(half), *fields[longest + 1 :]])
        if expressions is None:
            return None
        found += expressions
    return found

"""Five-field cron expressions: the grammar, and the fields as sets.

Every term is checked and spelled out here first, so that what reaches croniter means to it what it means
to us (to croniter ``5-5`` is the whole field, and ``1/2`` as a weekday includes Sunday). The wording of
refusals is in `refusals`. Not for instants, zones or clocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from croniter import CroniterError, croniter

from slotkeeper.errors import InvalidField
from slotkeeper.timetable.refusals import (
    Refused,
    check_characters,
    check_macro,
    check_term_by_name,
    check_zone_prefix,
    descending_range,
    step_too_large,
    wrong_number_of_fields,
)

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_MONTH_NAMES = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_MONTHS = {name: n for n, name in enumerate(_MONTH_NAMES, 1)}
_WEEKDAYS = {name: n for n, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"])}
_FREE = "*"


class _Field(NamedTuple):
    """One of the five. ``top`` ends ``*`` and ``a/n``; ``high`` is the largest number that may be written."""

    name: str
    low: int
    high: int
    top: int
    names: dict[str, int]

    @property
    def size(self) -> int:
        return self.top - self.low + 1

    @property
    def takes_question_mark(self) -> bool:
        return self.name.startswith("day-")


_FIELDS = (
    _Field("minute", 0, 59, 59, {}),
    _Field("hour", 0, 23, 23, {}),
    _Field("day-of-month", 1, 31, 31, {}),
    _Field("month", 1, 12, 12, _MONTHS),
    _Field("day-of-week", 0, 7, 6, _WEEKDAYS),
)


@dataclass(frozen=True)
class CronExpression:
    """One accepted expression. ``text`` is as written, with single blanks; the rest follows from it.

    ``minutes_of_day`` ascend from 0 to 1439. Weekdays count from Sunday = 0. ``either_day``: both day fields
    are restricted, so one of them is enough (Kubernetes' rule). ``follows_clock``: the hour field starts
    with ``*``, so the expression follows elapsed time through a change of the clock.
    ``differs_from_vixie_cron`` says where Vixie cron would choose other days, or is None.
    """

    text: str
    minutes_of_day: tuple[int, ...] = field(compare=False, repr=False)
    days: frozenset[int] = field(compare=False, repr=False)
    months: frozenset[int] = field(compare=False, repr=False)
    weekdays: frozenset[int] = field(compare=False, repr=False)
    either_day: bool = field(compare=False, repr=False)
    follows_clock: bool = field(compare=False, repr=False)
    differs_from_vixie_cron: str | None = field(compare=False, repr=False)

    def names_date(self, month: int, day: int, weekday: int) -> bool:
        """Whether the three date fields match (month 1–12, day 1–31, weekday 0–6 from Sunday)."""
        if month not in self.months:
            return False
        if self.either_day:
            return day in self.days or weekday in self.weekdays
        return day in self.days and weekday in self.weekdays


def parse_expression(text: str, field: str = "spec.cron[0]") -> CronExpression:
    """Parse five fields or one of the seven macros.

    Raises `InvalidField` that names ``field``, what is wrong in the text, and what to write instead.
    """
    try:
        return _parse(text)
    except Refused as refused:
        raise InvalidField(field, refused.problem, instead=refused.instead) from None


@lru_cache(maxsize=8192)
def _parse(text: str) -> CronExpression:
    check_characters(text)
    check_zone_prefix(text.strip())
    written = " ".join(text.split())
    if written.startswith("@"):
        check_macro(written, MACROS)
        spelled = MACROS[written.lower()]
    else:
        spelled = written
    parts = spelled.split(" ")
    if len(parts) != len(_FIELDS):
        raise wrong_number_of_fields(text.strip(), _accepts)
    return _expression(written, parts)


def _accepts(text: str) -> bool:
    try:
        _parse(text)
    except Refused:
        return False
    return True


def _expression(written: str, parts: list[str]) -> CronExpression:
    spelled = [_spell_out(part, kind) for part, kind in zip(parts, _FIELDS, strict=True)]
    values = _expand(written, spelled)
    minutes, hours, days, months, weekdays = values
    free = [_FREE in spelled[k].split(",") for k in (2, 4)]
    return CronExpression(
        text=written,
        minutes_of_day=tuple(hour * 60 + minute for hour in hours for minute in minutes),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(weekdays),
        either_day=not any(free),
        follows_clock=parts[1].startswith("*"),
        differs_from_vixie_cron=_difference_from_vixie(written, parts, free, (days, weekdays)),
    )


def _expand(written: str, spelled: list[str]) -> list[list[int]]:
    """The five sets, ascending, by croniter. A list that holds a free term is the whole field."""
    texts = [_FREE if _FREE in text.split(",") else text for text in spelled]
    try:
        expanded, _ = croniter.expand(" ".join(texts))
    except CroniterError as error:
        # Not known to happen: every term was checked. If it does, it is still the user's text that is named.
        raise Refused(f"{written!r} is not understood ({error})", "write plain numbers") from error
    values = []
    for kind, names in zip(_FIELDS, expanded, strict=True):
        whole = names == [_FREE]
        numbers = range(kind.low, kind.top + 1) if whole else (n for n in names if isinstance(n, int))
        values.append(sorted(numbers))
    return values


def _spell_out(text: str, kind: _Field) -> str:
    return ",".join(_spell_out_term(term, kind) for term in text.split(","))


def _spell_out_term(term: str, kind: _Field) -> str:
    """The term with numbers for names, explicit ends for steps, and ``*`` for all that is free."""
    check_term_by_name(kind.name, term)
    base, slash, step_text = term.partition("/")
    step = _step(term, step_text, kind) if slash else 1
    if base in ("*", "?"):
        if base == "?" and not kind.takes_question_mark:
            raise Refused(f"{kind.name} {term!r}: '?' is for the two day fields", "write *")
        return _FREE if step == 1 else f"{kind.low}-{kind.top}/{step}"
    if "-" in base:
        first, last = _range(term, base, step, kind)
    else:
        first = last = _number(term, base, kind)
        if slash:
            last = max(first, kind.top)  # a/n runs to the end of the field; 7/n is Sunday alone
    if first == last:
        return str(first)
    return f"{first}-{last}/{step}" if step > 1 else f"{first}-{last}"


def _range(term: str, base: str, step: int, kind: _Field) -> tuple[int, int]:
    left, _, right = base.partition("-")
    first, last = _number(term, left, kind), _number(term, right, kind)
    if kind.names is _WEEKDAYS and right.upper() == "SUN" and first > 0:
        last = 7  # FRI-SUN reads forward: this Sunday ends the week
    if first == last:
        raise Refused(f"{kind.name} {term!r} is a range of one value", f"write {left}")
    if first > last:
        raise descending_range(kind.name, term, [first, last, step], kind.low, kind.top)
    return first, last


def _number(term: str, text: str, kind: _Field) -> int:
    number = kind.names.get(text.upper())
    if number is not None:
        return number
    shown = f"{kind.name} {term!r}" if term else f"{kind.name}: an empty value in a list"
    bounds = f"write {kind.low} to {kind.high}"
    if not text.isdigit():
        names = f" or a name such as {next(iter(kind.names))}" if kind.names else ""
        raise Refused(f"{shown}: {text!r} is not a number", f"{bounds}{names}, or *")
    number = int(text)
    if not kind.low <= number <= kind.high:
        raise Refused(f"{shown}: {number} is outside {kind.low}-{kind.high}", bounds)
    return number


def _step(term: str, text: str, kind: _Field) -> int:
    if not text.isdigit() or int(text) == 0:
        raise Refused(f"{kind.name} {term!r}: the step {text!r} is not a number from 1", "write */2 or larger, or *")
    step = int(text)
    if step > kind.size:
        raise step_too_large(kind.name, term, step, kind.size)
    return step


def _difference_from_vixie(
    written: str, parts: list[str], free: list[bool], values: tuple[list[int], list[int]]
) -> str | None:
    """Vixie cron looks at the first character: a day field that starts with ``*`` is free to it."""
    starred = [parts[k].startswith(("*", "?")) for k in (2, 4)]
    whole = [len(set(v)) == _FIELDS[k].size for v, k in zip(values, (2, 4), strict=True)]
    if any(free) == any(starred) or all(whole):
        return None
    days, weekdays = parts[2], parts[4]
    if any(starred):
        return (
            f"{written!r}: day-of-month {days!r} and day-of-week {weekdays!r} are both restricted here, so a "
            "date that matches either is enough; Vixie cron takes a field that starts with * as free and "
            "asks for both"
        )
    return (
        f"{written!r}: a list that holds * is free here, so a date has to match day-of-month {days!r} and "
        f"day-of-week {weekdays!r}; Vixie cron looks at the first character only and takes either"
    )

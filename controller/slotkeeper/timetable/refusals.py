"""What people write in a cron field that is not accepted here, and what to write instead.

Every function either returns silently or raises (or returns) a `Refused` with both halves of the message.
Only words: what is accepted, and what it means, is `expression`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

LONGEST_TEXT = 128

_FIVE_FIELDS = "write five fields: minute hour day-of-month month day-of-week, such as '30 2 * * *'"

_ZONE_PREFIX = re.compile(r"(?:CRON_)?TZ=(\S*)\s*(.*)", re.DOTALL | re.IGNORECASE)

# Letters and signs of other schedulers, each with a way to the same end.
_FOREIGN_TERMS = (
    (
        re.compile(r"H(\(\d+-\d+\))?(/\d+)?", re.IGNORECASE),
        "'H' (a value from a hash) is not supported",
        "write a fixed value such as 0, and spec.spreadSeconds to spread the load",
    ),
    (
        re.compile(r"R(\(\d+-\d+\))?(/\d+)?|\d*~\d*(/\d+)?", re.IGNORECASE),
        "a random value is not supported",
        "write a fixed value such as 0, and spec.spreadSeconds to spread the load",
    ),
    (
        re.compile(r"(\d+|L)W|W\d+", re.IGNORECASE),
        "'W' (the nearest weekday) is not supported",
        "write the weekdays, 1-5 in day-of-week, or several fixed days",
    ),
    (
        re.compile(r"L|L-\d+|(\d+|[A-Z]{3})L|L\d+", re.IGNORECASE),
        "'L' (the last day) is not supported",
        "write a day that every month has, such as 28, or day 1 and treat the month before",
    ),
    (
        re.compile(r".*#.*"),
        "'#' (the n-th weekday of a month) is not supported",
        "write the weekday alone and let the job skip the other weeks",
    ),
)

_SECONDS_PER_STEP = {"minute": 60, "hour": 3600, "day-of-month": 86400}
_LONGEST_PERIOD = 31_622_400  # spec.every.periodSeconds


class Refused(Exception):
    """Why a text is refused, and what to write instead."""

    def __init__(self, problem: str, instead: str) -> None:
        self.problem = problem
        self.instead = instead
        super().__init__(problem)


def check_characters(text: str) -> None:
    """Refuse what is too long, empty, or not plain ASCII."""
    if len(text) > LONGEST_TEXT:
        raise Refused(
            f"{text[:20] + '…'!r} has {len(text)} characters, the limit is {LONGEST_TEXT}",
            "split it into several items of the list",
        )
    if not text.strip():
        raise Refused(f"{text!r} is empty", _FIVE_FIELDS)
    for position, character in enumerate(text, 1):
        if not character.isascii():
            raise Refused(
                f"{text!r} has a character that is not ASCII, {character!r}, at position {position}",
                "write plain digits, letters and blanks",
            )


def check_zone_prefix(text: str) -> None:
    """Refuse ``TZ=`` and ``CRON_TZ=``: an old CronJob carries its zone that way."""
    prefix = _ZONE_PREFIX.fullmatch(text)
    if prefix:
        zone, rest = prefix[1] or "an IANA name such as Europe/Berlin", " ".join(prefix[2].split())
        here = f"{rest!r} here" if rest else "five fields here, such as '30 2 * * *'"
        raise Refused(f"{text!r} has a time zone prefix", f"write spec.timeZone: {zone} and {here}")


def check_macro(text: str, known: dict[str, str]) -> None:
    """Refuse every macro but the known ones."""
    word, _, argument = text.partition(" ")
    if word.lower() in known and not argument:
        return
    if word.lower() == "@every":
        period = f" (every {argument.strip()})" if argument.strip() else ""
        raise Refused(f"{text!r} is no calendar expression", f"write spec.every.periodSeconds{period}")
    if word.lower() == "@reboot":
        raise Refused(f"{text!r} has no meaning in a cluster", "write the times at which it should run")
    raise Refused(f"{text!r} is not a known macro", "write one of " + " ".join(known))


def check_term_by_name(field_name: str, term: str) -> None:
    """Refuse the special letters of other schedulers by name."""
    for pattern, problem, instead in _FOREIGN_TERMS:
        if pattern.fullmatch(term):
            raise Refused(f"{field_name} {term!r}: {problem}", instead)


def descending_range(field_name: str, term: str, values: list[int], low: int, high: int) -> Refused:
    """A range that runs backwards; ``values`` are its two ends and its step."""
    first, last, step = values
    if step > 1:
        wrapped = [*range(first, high + 1), *range(low, last + 1)][::step]
        instead = ",".join(map(str, sorted(wrapped)))
    else:
        upper = f"{first}-{high}" if first < high else f"{first}"
        lower = f"{low}-{last}" if low < last else f"{last}"
        instead = f"{upper},{lower}"
    return Refused(f"{field_name} {term!r} runs backwards", f"write {instead}")


def step_too_large(field_name: str, term: str, step: int, size: int) -> Refused:
    """A step larger than the field, which would match once per cycle: surely not what was meant."""
    seconds = _SECONDS_PER_STEP.get(field_name, _LONGEST_PERIOD) * step
    instead = f"write a step of at most {size}"
    if seconds <= _LONGEST_PERIOD:
        instead = f"for that period write spec.every.periodSeconds: {seconds}"
    return Refused(f"{field_name} {term!r}: the step {step} is larger than the field ({size} values)", instead)


def wrong_number_of_fields(text: str, accepts: Callable[[str], bool]) -> Refused:
    """Not five fields. ``accepts`` says whether a text of five fields would pass."""
    parts = text.split()
    several = [piece.strip() for piece in re.split(r",\s+|\s*;\s*|\s*\n\s*|\s*\|+\s*", text) if piece.strip()]
    if len(several) > 1 and all(len(p.split()) == 5 or p.startswith("@") for p in several):
        listed = ", ".join(f'"{" ".join(piece.split())}"' for piece in several)
        return Refused(f"{text!r} is several expressions in one", f"write a list item each: [{listed}]")
    unspaced = " ".join(re.sub(r"\s*,\s*", ",", text).split())
    if len(unspaced.split()) == 5 and accepts(unspaced):
        return Refused(f"{text!r} has a blank inside a list", f"write {unspaced!r}")
    problem = f"{text!r} has {len(parts)} field{'s' if len(parts) != 1 else ''}, not five"
    if len(parts) == 7:
        kept = " ".join(parts[1:6])
        return Refused(problem, f"without seconds and year write {kept!r}" if accepts(kept) else _FIVE_FIELDS)
    if len(parts) != 6:
        return Refused(problem, _FIVE_FIELDS)
    return Refused(problem, _five_of_six(parts, accepts))


def _five_of_six(parts: list[str], accepts: Callable[[str], bool]) -> str:
    without_seconds, without_year = " ".join(parts[1:]), " ".join(parts[:5])
    if not accepts(without_seconds) and not accepts(without_year):
        return _FIVE_FIELDS
    # A first field of 0 is what every scheduler with seconds writes; a year is never 0.
    if accepts(without_seconds) and (parts[0].strip("0") == "" or not accepts(without_year)):
        return f"without the seconds write {without_seconds!r}"
    if not accepts(without_seconds):
        return f"without the year write {without_year!r}"
    return f"if the first field is seconds write {without_seconds!r}, if the last is a year {without_year!r}"

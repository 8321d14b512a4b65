"""The same slots as cronsim, which restates Debian's cron, wherever the two have the same rules.

Where they do not is a class with its reason; each class has an example in which the two really differ, so that none
stands here for convenience.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from typing import NamedTuple

import pytest
from cronsim import CronSim, CronSimError

from slotkeeper.timetable import cron_timetable, load_zone
from unit.timetable import oracle
from unit.timetable.inputs import ODD_ZONES, clock_changes, random_expression
from unit.timetable.oracle import utc

SEED = int(os.environ.get("SLOTKEEPER_ORACLE_SEED") or random.SystemRandom().getrandbits(48))
COMPARED = 200
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


class Shift(NamedTuple):
    """A change of the clock: by how many minutes, and the hour that it shows soon after."""

    minutes: float
    hour: int


class Question(NamedTuple):
    """The slots of ``text`` in two days, on a clock that changes by ``shifts`` in these days or the one before."""

    text: str
    zone: str
    start: datetime
    shifts: tuple[Shift, ...]

    @property
    def parts(self) -> list[str]:
        return oracle.MACROS.get(self.text.lower(), self.text).split()

    @property
    def has_fixed_hour(self) -> bool:
        return not self.parts[1].startswith("*")


class Difference(NamedTuple):
    """A class of questions that the two answer differently, why, and an example."""

    reason: str
    applies: Callable[[Question], bool]
    example: tuple[str, str, str]


DIFFERENCES = {
    "macro": Difference(
        "cronsim has no macros",
        lambda q: q.text.startswith("@"),
        ("@daily", "UTC", "2026-01-01T00:00Z"),
    ),
    "question-mark": Difference(
        "cronsim has no '?'",
        lambda q: "?" in q.text,
        ("0 0 ? * *", "UTC", "2026-01-01T00:00Z"),
    ),
    "range-to-sunday": Difference(
        "cronsim reads SUN as 0 alone, so that FRI-SUN runs backwards",
        lambda q: "-SUN" in q.text.upper(),
        ("0 0 * * FRI-SUN", "UTC", "2026-01-01T00:00Z"),
    ),
    "star-in-a-day-field": Difference(
        "Debian looks at the first character of a day field, Kubernetes at what it means",
        lambda q: oracle.Cron(q.text).both_days != oracle.Cron(q.text, "vixie").both_days,
        ("0 0 */2 * 1", "UTC", "2026-01-05T00:00Z"),
    ),
    "steps-from-a-weekday": Difference(
        "the weekday 1/2 ends at Saturday here, as in Kubernetes; in cronsim at 7, which is Sunday",
        lambda q: any("/" in term and term[0] != "*" and "-" not in term for term in q.parts[4].split(",")),
        ("0 0 * * 1/2", "UTC", "2026-01-03T00:00Z"),
    ),
    "never": Difference(
        "cronsim refuses some dates that never come, and stops at others; they are accepted here, and have no slot",
        lambda q: cron_timetable([q.text]).next(q.start) is None,
        ("0 0 31 2 *", "UTC", "2026-01-01T00:00Z"),
    ),
    "every-minute-of-a-fixed-hour": Difference(
        "to Debian a star in the minute field too makes an expression follow elapsed time; here only the hour decides",
        lambda q: bool(q.shifts) and q.has_fixed_hour and q.parts[0].startswith("*"),
        ("*/20 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z"),
    ),
    "missing-day": Difference(
        "a calendar day that never was is not made up for here; cronsim moves its times to the next day",
        lambda q: any(shift.minutes > 180 for shift in q.shifts) and q.has_fixed_hour,
        ("30 2 * * *", "Pacific/Apia", "2011-12-29T20:00Z"),
    ),
    "elapsed-time-at-an-odd-change": Difference(
        "cronsim follows elapsed time by setting the clock to minute 0 and adding hours; where the clock changes by "
        "half an hour that skips a time, and where it repeats midnight (St. John's until 2011) it may go on for ever",
        lambda q: not q.has_fixed_hour and any(s.minutes % 60 or s.hour in (22, 23, 0, 1) for s in q.shifts),
        ("30 * * * *", "Australia/Lord_Howe", "2026-10-03T12:00Z"),
    ),
}  # fmt: skip


def _question(text: str, zone: str, start: datetime) -> Question:
    tz = load_zone(zone)
    hours = [(start + timedelta(hours=k)).astimezone(tz) for k in range(-24, 49)]
    shifts = tuple(
        # What the two clocks show is an hour apart, and the rest is the jump.
        Shift((after.replace(tzinfo=None) - before.replace(tzinfo=None)) / MINUTE - 60, after.hour)
        for before, after in pairwise(hours)
        if before.utcoffset() != after.utcoffset()
    )
    return Question(text, zone, start, shifts)


def _by_cronsim(question: Question) -> list[datetime]:
    """Each instant once: cronsim tells an instant again for each of several times in one gap."""
    local = question.start.astimezone(load_zone(question.zone)) if question.zone != "UTC" else question.start
    end = question.start + 2 * DAY
    told = (slot.astimezone(UTC) for slot in CronSim(question.text, local))
    # After a start in a second pass it begins with times of the first.
    return sorted({slot for slot in takewhile(lambda slot: slot <= end, told) if slot > question.start})


def _ours(question: Question) -> list[datetime]:
    return cron_timetable([question.text], question.zone).window(question.start, question.start + 2 * DAY)


def _random_question(random_: random.Random) -> Question:
    zone, year = random_.choice(["UTC", *ODD_ZONES]), random_.randint(1973, 2037)
    changes = clock_changes(zone, year) if random_.random() < 0.7 else []
    if changes:
        start = random_.choice(changes) - MINUTE * random_.randint(0, 47 * 60)
    else:
        start = datetime(year, 1, 1, tzinfo=UTC) + MINUTE * random_.randint(0, 365 * 1440)
    return _question(random_expression(random_), zone, start)


def test_the_two_agree_wherever_their_rules_do() -> None:
    random_ = random.Random(SEED)
    compared = at_changes = 0
    while compared < COMPARED:
        question = _random_question(random_)
        if any(difference.applies(question) for difference in DIFFERENCES.values()):
            continue
        assert _by_cronsim(question) == _ours(question), f"SLOTKEEPER_ORACLE_SEED={SEED}: {question}"
        compared += 1
        at_changes += bool(question.shifts)
    assert at_changes > COMPARED // 10


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_class_that_is_left_out_really_differs(name: str) -> None:
    text, zone, start = DIFFERENCES[name].example
    question = _question(text, zone, utc(start))
    assert [other for other, difference in DIFFERENCES.items() if difference.applies(question)] == [name]
    try:
        theirs = _by_cronsim(question)
    except CronSimError:
        return
    assert theirs != _ours(question), DIFFERENCES[name].reason

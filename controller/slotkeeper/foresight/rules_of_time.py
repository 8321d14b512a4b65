"""What is worth a warning about when a schedule has slots: never, no more, or at other times than people think."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta

from slotkeeper.foresight.finding import Finding, Level, Look
from slotkeeper.foresight.wording import rfc3339
from slotkeeper.spec import DaylightSaving
from slotkeeper.timetable import CronExpression, parse_expression

_DAY = 86_400
#: Vixie cron's first other day is looked for so long: every combination of date and weekday comes within 28 years.
_YEARS = 28
_EVERY_N = re.compile(r"(?:\*|0|\?)/(\d+)")
#: A term with a step, in numbers, and the smallest and the largest value of each field.
_STEP = re.compile(r"(?:\*|\?|(?P<first>\d+)(?:-(?P<last>\d+))?)/(?P<step>\d+)")
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
#: Fields of an expression: place, name, how many values, their unit, and its seconds.
_STEPPED = ((0, "minute", 60, "minutes", 60), (1, "hour", 24, "hours", 3600))


def standstill(look: Look) -> Iterator[Finding]:
    """No slot is left, or there never is one."""
    spec, timetable = look.schedule.spec, look.timetable
    if timetable.next(look.now) is not None:
        return
    last = timetable.previous(look.now)
    if last is None:
        yield Finding(
            Level.WARNING, "NeverFires", _when(look),
            f"no instant matches {timetable.resolved!r}"
            + (" between startTime and endTime" if spec.start_time or spec.end_time else "")
            + ": it runs only when it is triggered; if that is meant, write suspend: true, which says so",
        )  # fmt: skip
    elif spec.end_time is not None and spec.end_time <= look.now:
        yield Finding(
            Level.WARNING, "EndTimePassed", "spec.endTime",
            f"{rfc3339(spec.end_time)} has passed: there are no slots any more; the last one was {rfc3339(last)}",
        )  # fmt: skip
    else:
        yield Finding(
            Level.WARNING, "AllInThePast", _when(look),
            f"every slot has passed, the last one was {rfc3339(last)}: nothing fires for the past, not even when the "
            "object is made; write instants to come",
        )  # fmt: skip


def some_in_the_past(look: Look) -> Iterator[Finding]:
    """Of a list of instants, those that come too late."""
    at = look.schedule.spec.at or ()
    gone = sorted(instant for instant in at if instant <= look.now)
    if gone and len(gone) < len(at):
        yield Finding(
            Level.NOTE, "SomeInThePast", "spec.at",
            f"{len(gone)} of {len(at)} instants have passed, the last one was {rfc3339(gone[-1])}: they fire only "
            "where the object was there in time",
        )  # fmt: skip


def start_time_passed(look: Look) -> Iterator[Finding]:
    """A start in the past makes no slot."""
    start = look.schedule.spec.start_time
    if start is not None and start <= look.now and look.timetable.next(look.now) is not None:
        yield Finding(
            Level.NOTE, "StartTimePassed", "spec.startTime",
            f"{rfc3339(start)} has passed: slots since then are not made up for an object that is new",
        )  # fmt: skip


def suspended(look: Look) -> Iterator[Finding]:
    """It is meant, and forgotten."""
    if look.schedule.spec.suspend:
        yield Finding(Level.NOTE, "Suspended", "spec.suspend", "true: there are no slots until it is false")


def vixie(look: Look) -> Iterator[Finding]:
    """Days on which Vixie cron would run it and Kubernetes not, or the other way round."""
    for field, expression in _expressions(look):
        sentence = expression.differs_from_vixie_cron
        if sentence is None:
            continue
        here, there = _first_other_days(expression, look.timetable.local(look.now).date())
        days = [
            f"{day:%a %Y-%m-%d} has slots {where}" for day, where in ((here, "only here"), (there, "only there")) if day
        ]
        yield Finding(Level.WARNING, "DiffersFromVixieCron", field, "; ".join([sentence, *days]))


def clock_changes(look: Look) -> Iterator[Finding]:
    """The next change of the clock that skips or repeats a time of it."""
    for change in look.timetable.clock_changes(look.now, 1):
        yield Finding(Level.NOTE, "ClockChange", _when(look), change.told)


def daylight_saving_unused(look: Look) -> Iterator[Finding]:
    """Settings that apply to nothing."""
    spec = look.schedule.spec
    if spec.daylight_saving != DaylightSaving() and all(
        expression.follows_clock for _, expression in _expressions(look)
    ):
        why = "the hour of every expression starts with *" if spec.cron else "there is no cron expression"
        yield Finding(
            Level.WARNING, "DaylightSavingUnused", "spec.daylightSaving",
            f"has no effect: {why}, so slots follow elapsed time; leave it out, or name hours",
        )  # fmt: skip


def zone_unused(look: Look) -> Iterator[Finding]:
    """A zone beside a period, which it does not move."""
    spec = look.schedule.spec
    if spec.every is not None and spec.time_zone != "Etc/UTC":
        yield Finding(
            Level.WARNING, "TimeZoneUnused", "spec.timeZone",
            f"moves no slot of every, which is elapsed time; for a time of day write cron: [{_time_of_day(look)!r}]",
        )  # fmt: skip


def every_day(look: Look) -> Iterator[Finding]:
    """An interval of whole days is not a time of day."""
    every = look.schedule.spec.every
    if every is not None and every.period_seconds % _DAY == 0:
        yield Finding(
            Level.NOTE, "EveryIsElapsedTime", "spec.every.periodSeconds",
            f"{every.period_seconds} is elapsed time, not a time of day: where the clock changes, slots move by an "
            f"hour; for a time of day write cron: [{_time_of_day(look)!r}] with timeZone",
        )  # fmt: skip


def uneven_step(look: Look) -> Iterator[Finding]:
    """Steps that start anew at the end of the field."""
    for field, expression in _expressions(look):
        parts = expression.text.split(" ")
        for place, name, size, unit, seconds in _STEPPED if len(parts) == 5 else ():
            step = _step(parts[place])
            if step < 2 or size % step == 0:
                continue
            last = size // step * step
            yield Finding(
                Level.WARNING, "UnevenStep", field,
                f"{parts[place]!r} starts anew: after {name} {last} the next is {name} 0, {size - last} {unit} later, "
                f"not {step}; for a fixed period write every.periodSeconds: {step * seconds}",
            )  # fmt: skip
        if len(parts) == 5 and 1 < (step := _step(parts[2])) < 31:
            yield Finding(
                Level.WARNING, "UnevenStep", field,
                f"{parts[2]!r} starts anew on the first of every month, so that some of its days are less than {step} "
                f"days apart; for a fixed period write every.periodSeconds: {step * _DAY}",
            )  # fmt: skip


def step_of_one_value(look: Look) -> Iterator[Finding]:
    """A step that reaches beyond its own range."""
    for field, expression in _expressions(look):
        for part, (low, high) in zip(expression.text.split(" "), _BOUNDS, strict=False):  # a macro is one part
            for term in filter(None, map(_STEP.fullmatch, part.split(","))):
                first, last = int(term["first"] or low), int(term["last"] or high)
                if first + int(term["step"]) > last:
                    yield Finding(
                        Level.WARNING, "StepOfOneValue", field,
                        f"{term[0]!r} names one value alone, {first}: the step is as large as its range; write "
                        f"{first}, or every.periodSeconds for a fixed period",
                    )  # fmt: skip


def every_minute_of_an_hour(look: Look) -> Iterator[Finding]:
    """A minute left free where an hour is named."""
    for field, expression in _expressions(look):
        parts = expression.text.split(" ")
        if len(parts) == 5 and parts[0] in ("*", "*/1") and not parts[1].startswith("*"):
            fixed = " ".join(["0", *parts[1:]])
            yield Finding(
                Level.WARNING, "EveryMinuteOfAnHour", field,
                f"{expression.text!r} has a slot in every minute of the hour {parts[1]}; for one in an hour write "
                f"{fixed!r}",
            )  # fmt: skip


def either_day(look: Look) -> Iterator[Finding]:
    """Two day fields of which one is enough."""
    for field, expression in _expressions(look):
        if expression.either_day and expression.differs_from_vixie_cron is None:
            _, _, days, _, weekdays = expression.text.split(" ")
            yield Finding(
                Level.WARNING, "EitherDay", field,
                f"{expression.text!r} runs on day-of-month {days} and also on every day-of-week {weekdays}: one of "
                "them is enough; if both are meant, let the handler look at the date",
            )  # fmt: skip


def missing_days(look: Look) -> Iterator[Finding]:
    """Days that not every month has."""
    for field, expression in _expressions(look):
        if expression.either_day or min(expression.days) < 29 or len(expression.weekdays) < 7:
            continue
        short = [month for month in sorted(expression.months) if min(expression.days) > monthrange(2001, month)[1]]
        if short and len(short) < len(expression.months):
            names = ", ".join(f"{date(2001, month, 1):%b}" for month in short)
            leap = " (but for leap years)" if min(expression.days) == 29 else ""
            yield Finding(
                Level.WARNING, "DayMissingInSomeMonths", field,
                f"{expression.text!r} has no slot in {names}{leap}, which have no such day; for the end of a month "
                "write the first of the next one",
            )  # fmt: skip


RULES = (
    standstill,
    some_in_the_past,
    start_time_passed,
    suspended,
    vixie,
    clock_changes,
    daylight_saving_unused,
    zone_unused,
    every_day,
    uneven_step,
    step_of_one_value,
    every_minute_of_an_hour,
    either_day,
    missing_days,
)


def _when(look: Look) -> str:
    spec = look.schedule.spec
    return "spec.cron" if spec.cron is not None else "spec.every" if spec.every is not None else "spec.at"


def _expressions(look: Look) -> list[tuple[str, CronExpression]]:
    """The expressions with their fields' paths."""
    texts = look.schedule.spec.cron or ()
    return [(f"spec.cron[{k}]", parse_expression(text, f"spec.cron[{k}]")) for k, text in enumerate(texts)]


def _time_of_day(look: Look) -> str:
    """The daily expression that begins where the period does."""
    every = look.schedule.spec.every
    begin = look.timetable.local(every.anchor_time if every is not None else look.now)
    return f"{begin.minute} {begin.hour} * * *"


def _step(field: str) -> int:
    """Of ``*/n`` over a whole field; 1 for anything else."""
    step = _EVERY_N.fullmatch(field)
    return 1 if step is None else int(step[1])


def _first_other_days(expression: CronExpression, begin: date) -> tuple[date | None, date | None]:
    """The first days on which only we, and only Vixie cron, would run it: the two differ in whether one of the day
    fields is enough.
    """
    vixie = replace(expression, either_day=not expression.either_day)
    here = there = None
    for day in (begin + timedelta(days=number) for number in range(366 * _YEARS)):
        place = day.month, day.day, day.isoweekday() % 7
        ours, theirs = expression.names_date(*place), vixie.names_date(*place)
        if ours and not theirs and here is None:
            here = day
        if theirs and not ours and there is None:
            there = day
        if ours != theirs:
            break  # one of the two rules takes in all that the other does
    return here, there

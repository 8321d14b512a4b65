"""Every rule about one schedule, in one fixed order. What is refused is not judged here: it never gets so far."""

from __future__ import annotations

from datetime import datetime

from slotkeeper.foresight import rules_of_runs, rules_of_time
from slotkeeper.foresight.finding import Finding, look_at
from slotkeeper.foresight.schedule import Schedule

#: Of every warning and every note, those about many schedules too.
CODES = frozenset(
    {
        "AllInThePast",
        "AttemptBeyondInterval",
        "CatchUpFlood",
        "ClockChange",
        "CommandIsOneWord",
        "DayMissingInSomeMonths",
        "DaylightSavingUnused",
        "DiffersFromVixieCron",
        "EitherDay",
        "EndTimePassed",
        "EveryIsElapsedTime",
        "EveryMinuteOfAnHour",
        "ManyAtOneMinute",
        "MaxRunsUnused",
        "NeverFires",
        "NoBackoff",
        "NoSlotCanStart",
        "NoTimeForRetries",
        "RetriesBeyondInterval",
        "ShellWordInCommand",
        "SomeInThePast",
        "SpreadBeyondInterval",
        "StartDeadlineBelowPoll",
        "StartTimePassed",
        "StepOfOneValue",
        "SuccessAgeBelowInterval",
        "Suspended",
        "TimeZoneUnused",
        "UnevenStep",
    }
)


def warnings_of(schedule: Schedule, now: datetime) -> list[Finding]:
    """What is worth saying about ``schedule`` if it were applied at ``now``."""
    look = look_at(schedule, now)
    return [finding for rule in (*rules_of_time.RULES, *rules_of_runs.RULES) for finding in rule(look)]

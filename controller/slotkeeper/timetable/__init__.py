"""Time: which slots exist, and which of the missed ones still run.

Pure: no I/O but the bundled zone files, no "now", nothing of ours but the errors. What a JobSchedule looks
like is `slotkeeper.spec`; what is stored, and when, is `slotkeeper.store` and `slotkeeper.ticker`.
"""

from slotkeeper.timetable.at import at_timetable
from slotkeeper.timetable.catch_up import (
    CatchUp,
    CatchUpPolicy,
    Plan,
    PlannedRun,
    SkippedSlots,
    SkipReason,
    Trigger,
    plan,
    spread_offset,
)
from slotkeeper.timetable.cron import RepeatedTime, SkippedTime, cron_timetable
from slotkeeper.timetable.every import every_timetable
from slotkeeper.timetable.expression import CronExpression, parse_expression
from slotkeeper.timetable.timetable import ClockChange, Timetable
from slotkeeper.timetable.zone import TZDATA_VERSION, load_zone
from slotkeeper.timetable.zone_rules import MovedSlots, ZoneRules, moved_slots, zone_rules

__all__ = [
    "TZDATA_VERSION",
    "CatchUp",
    "CatchUpPolicy",
    "ClockChange",
    "CronExpression",
    "MovedSlots",
    "Plan",
    "PlannedRun",
    "RepeatedTime",
    "SkipReason",
    "SkippedSlots",
    "SkippedTime",
    "Timetable",
    "Trigger",
    "ZoneRules",
    "at_timetable",
    "cron_timetable",
    "every_timetable",
    "load_zone",
    "moved_slots",
    "parse_expression",
    "plan",
    "spread_offset",
    "zone_rules",
]

"""What a schedule will do: the slots to come, what an edit would change, and what is worth a warning.

Pure: no I/O, and "now" is an argument. Told from a spec, whether it lies in a file or is in force already; the slots
are those of the timetable, never worked out here. How it looks on a terminal is `slotkeeper.cli`.
"""

from slotkeeper.foresight.crowds import crowds
from slotkeeper.foresight.difference import Difference, FieldDifference, SlotDifference, difference
from slotkeeper.foresight.finding import Finding, Level
from slotkeeper.foresight.lint import CODES, warnings_of
from slotkeeper.foresight.schedule import Schedule
from slotkeeper.foresight.upcoming import Standstill, Upcoming, UpcomingSlot, upcoming

__all__ = [
    "CODES",
    "Difference",
    "FieldDifference",
    "Finding",
    "Level",
    "Schedule",
    "SlotDifference",
    "Standstill",
    "Upcoming",
    "UpcomingSlot",
    "crowds",
    "difference",
    "upcoming",
    "warnings_of",
]

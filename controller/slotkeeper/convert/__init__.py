"""A CronJob as a JobSchedule, and in words what is different: for ``slotkeeper convert``.

Pure: no files, no cluster, no clock of its own. Reading YAML is `slotkeeper.spec`, slots are
`slotkeeper.timetable`, options and exit status are the command's.
"""

from slotkeeper.convert.conversion import Conversion, Note, NoteKind, Options, Verdict, refused
from slotkeeper.convert.jobschedule import convert
from slotkeeper.convert.report import report_json, report_text
from slotkeeper.convert.yaml_text import yaml_text

__all__ = [
    "Conversion",
    "Note",
    "NoteKind",
    "Options",
    "Verdict",
    "convert",
    "refused",
    "report_json",
    "report_text",
    "yaml_text",
]

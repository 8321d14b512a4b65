"""CronJobs for the tests of this room, and what comes of them."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slotkeeper.convert import Conversion, NoteKind, Options, convert
from slotkeeper.spec import Manifest, manifests_in, parse_spec
from slotkeeper.timetable import Timetable
from slotkeeper.timing import timetable

DATA = Path(__file__).parent / "data"
#: Where looks ahead begin. Two changes of the clock a year follow.
NOW = datetime(2026, 12, 1, tzinfo=UTC)

_POD: dict[str, Any] = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/tool:1"}]}


def cronjob(schedule: str = "30 2 * * *", *, job: Any = None, pod: Any = None, meta: Any = None, **spec: Any) -> Any:
    """A CronJob with these fields of its spec; ``job`` and ``pod`` add to the Job's and the pod's spec."""
    template = {"spec": {**copy.deepcopy(_POD), **(pod or {})}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "a", **(meta or {})},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": {"template": template, **(job or {})}}, **spec},
    }


def container(**fields: Any) -> dict[str, Any]:
    """A pod's spec with one container that has these fields."""
    return {"containers": [{"name": "main", "image": "example.com/tool:1", **fields}]}


def converted(obj: Any, options: Options | None = None) -> Conversion:
    """The conversion of ``obj``, looking ahead from NOW."""
    return convert(obj, NOW, options)


def spec_of(conversion: Conversion) -> Any:
    """The spec of the JobSchedule; fails if it was refused."""
    assert conversion.job_schedule is not None, [str(finding) for finding in conversion.findings]
    return conversion.job_schedule["spec"]


def times_of(conversion: Conversion) -> Timetable:
    """The slots of the JobSchedule."""
    return timetable(parse_spec(spec_of(conversion)))


def notes_of(conversion: Conversion, *kinds: NoteKind) -> list[str]:
    """The notes with their fields, of these kinds or of all."""
    return [f"{note.field}: {note.text}" for note in conversion.notes if not kinds or note.kind in kinds]


def findings_of(conversion: Conversion) -> list[str]:
    """Why it was refused, in words."""
    return [str(finding) for finding in conversion.findings]


def read(text: str) -> list[Manifest]:
    """The objects of a YAML file with this text, as the command reads them."""
    return manifests_in(text.encode(), Path("file.yaml"), "")

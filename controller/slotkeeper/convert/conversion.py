"""What comes of one object: a verdict, the JobSchedule, and notes for whoever signs it off. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from slotkeeper.errors import InvalidField


class Verdict(StrEnum):
    """``same``: it runs at the CronJob's times. ``changed``: times, or how they are written, differ; the notes of
    the same kind say how. ``refused``: no JobSchedule was made. ``ignored``: none of it is a schedule.
    """

    SAME = "same"
    CHANGED = "changed"
    REFUSED = "refused"
    IGNORED = "ignored"


class NoteKind(StrEnum):
    """``changed`` makes the verdict; ``differs``: the same times, another behaviour; ``warning``: look at it before
    the cut-over; ``note``: nothing to do.
    """

    CHANGED = "changed"
    DIFFERS = "differs"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Note:
    """One sentence about ``field`` of the CronJob. ``shared``: true of many, so a report tells it once."""

    kind: NoteKind
    field: str
    text: str
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """``time_zone``: of CronJobs that name none, instead of Etc/UTC. ``keep_clock_changes``: skip and double the
    times around a change of the clock as the CronJob does. ``start_time``: no slots before it, for a cut-over; aware.
    """

    time_zone: str | None = None
    keep_clock_changes: bool = False
    start_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Conversion:
    """``job_schedule`` is the object to apply, None if ``verdict`` is refused or ignored; ``findings`` then say why.

    ``namespace`` is empty where the CronJob names none.
    """

    kind: str
    namespace: str
    name: str
    verdict: Verdict
    job_schedule: Mapping[str, object] | None = None
    notes: tuple[Note, ...] = ()
    findings: tuple[InvalidField, ...] = field(default=(), compare=False)

    @property
    def key(self) -> str:
        """``namespace/name``, or the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def refused(obj: Mapping[str, object], findings: Iterable[InvalidField]) -> Conversion:
    """The conversion of an object that cannot be converted, for reasons that name its own fields."""
    return without_schedule(obj, Verdict.REFUSED, findings)


def without_schedule(obj: Mapping[str, object], verdict: Verdict, findings: Iterable[InvalidField]) -> Conversion:
    """A refused or ignored object."""
    metadata = obj.get("metadata")
    names = metadata if isinstance(metadata, Mapping) else {}
    return Conversion(
        kind=str(obj.get("kind", "")),
        namespace=str(names.get("namespace") or ""),
        name=str(names.get("name") or ""),
        verdict=verdict,
        findings=tuple(findings),
    )

"""A CronJob's schedule in the words of a JobSchedule: the times stay those at which Kubernetes fires.

Kubernetes' grammar is wider in a few odd places (``?`` anywhere, ``*/90``, ``5-5``, empty values in a list,
``@every``, zone prefixes). What it takes is rewritten; what neither takes is refused in the timetable's words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from slotkeeper.convert.conversion import Note, NoteKind, Options
from slotkeeper.convert.cronjob import CronJob
from slotkeeper.convert.long_expression import expressions_of
from slotkeeper.errors import InvalidField
from slotkeeper.spec.instants import format_instant
from slotkeeper.timetable import load_zone, parse_expression
from slotkeeper.timetable.expression import MACROS
from slotkeeper.timetable.refusals import LONGEST_TEXT

_FIELD = "spec.schedule"
# No expression says more in more characters, and no duration: every value of every field is less than 400.
_LONGEST_TEXT = 1000
_ZONE_PREFIX = re.compile(r"(?:CRON_)?TZ=(\S*)\s+(\S.*)", re.DOTALL)
_EVERY = re.compile(r"@every\s+(\S+)", re.ASCII)
_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|ms|s|m|h)", re.ASCII)
_SECONDS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_SHORTEST, _LONGEST = 10, 31_622_400  # spec.every.periodSeconds

#: Per field: its name, the lowest value, how many values there are, and what they are in.
_FIELDS = (
    ("minute", 0, 60, "hour"),
    ("hour", 0, 24, "day"),
    ("day-of-month", 1, 31, "month"),
    ("month", 1, 12, "year"),
    ("day-of-week", 0, 7, "week"),
)


@dataclass(frozen=True, slots=True)
class When:
    """The fields of a JobSchedule's spec that say when: ``cron`` or ``every``, and ``timeZone`` if it counts."""

    fields: Mapping[str, object]
    notes: tuple[Note, ...]


def when(cronjob: CronJob, options: Options) -> When:
    """When ``cronjob`` runs. Raises InvalidField or UnknownTimeZone, naming the CronJob's own field."""
    zone, text, notes = _zone(cronjob)
    every = _EVERY.fullmatch(text)
    if len(text) > _LONGEST_TEXT:
        raise InvalidField(_FIELD, f"it has {len(text)} characters", instead=f"write at most {_LONGEST_TEXT}")
    if every:
        fields, note = _every(cronjob, text, every[1])
        if zone is not None:
            fields["timeZone"] = zone
        return When(fields, (*notes, note))
    text, more = _rewritten(text)
    cron = [parse_expression(one, _FIELD).text for one in expressions_of(text)]
    if len(text) > LONGEST_TEXT:
        written = repr(cron[0]) if len(cron) == 1 else f"{len(cron)} expressions"
        told = f"it has {len(text)} characters, more than {LONGEST_TEXT}: written as {written} with the same times"
        more.append(Note(NoteKind.NOTE, _FIELD, told))
    if zone is None:
        zone_written = options.time_zone or "Etc/UTC"
        notes.append(_unset_zone(zone_written))
    else:
        zone_written = zone
    fields = {"cron": cron, "timeZone": zone_written}
    return When(fields, (*notes, *more))


def _zone(cronjob: CronJob) -> tuple[str | None, str, list[Note]]:
    """The zone that the CronJob names, its schedule without a zone, and what to say about it."""
    text = cronjob.schedule.strip()
    prefix = _ZONE_PREFIX.fullmatch(text)
    zone, notes = cronjob.time_zone, []
    if prefix:
        told, text = prefix[1], prefix[2].strip()
        if zone is not None and zone != told:
            raise InvalidField(
                _FIELD,
                f"the prefix names the zone {told!r}, and spec.timeZone {zone!r}",
                instead="keep the one that is meant",
            )
        zone = told
        notes.append(
            Note(NoteKind.CHANGED, _FIELD, f"the zone prefix {told!r} moved to timeZone; cron has the rest, {text!r}")
        )
    if zone is not None:
        load_zone(zone, _FIELD if prefix else "spec.timeZone")
    return zone, text, notes


def _unset_zone(written: str) -> Note:
    return Note(
        NoteKind.NOTE,
        "spec.timeZone",
        f"it is unset, so the CronJob follows the zone of the kube-controller-manager, usually UTC; written as "
        f"{written}",
        shared=True,
    )


def _rewritten(text: str) -> tuple[str, list[Note]]:
    """Five fields, in the grammar of a JobSchedule as far as it goes, and what to say about it."""
    if text.lower() in MACROS:
        return MACROS[text.lower()], []
    parts = text.split()
    if len(parts) != len(_FIELDS) or not text.isascii():  # what neither takes; digits of other scripts, for one
        return text, []
    notes: list[Note] = []
    written = [_field(part, kind, notes) for part, kind in zip(parts, _FIELDS, strict=True)]
    result = " ".join(written)
    if not notes and written != parts and len(text) <= LONGEST_TEXT:
        notes.append(Note(NoteKind.NOTE, _FIELD, f"{' '.join(parts)!r} is written {result!r}, which means the same"))
    return result, notes


def _field(text: str, kind: tuple[str, int, int, str], notes: list[Note]) -> str:
    # Kubernetes passes over empty values in a list.
    terms = [term for term in text.split(",") if term]
    return ",".join(_term(term, kind, notes) for term in terms) or text


def _term(term: str, kind: tuple[str, int, int, str], notes: list[Note]) -> str:
    name, low, size, period = kind
    base, slash, step = term.partition("/")
    base = "*" if base == "?" else base
    first, dash, last = base.partition("-")
    if dash and first.upper() == last.upper() and first:
        base, slash, step = first, "", ""
    if slash and step.isdecimal() and int(step) > size:
        single = str(low) if base == "*" else first
        notes.append(
            Note(
                NoteKind.CHANGED,
                _FIELD,
                f"{name} {term!r}: the step {step} is larger than the field ({size} values), so Kubernetes fires at "
                f"one value per {period}; written as {single!r}{_period_meant(name, step)}",
            )
        )
        return single
    return f"{base}{slash}{step}"


def _period_meant(name: str, step: str) -> str:
    seconds = {"minute": 60, "hour": 3600, "day-of-month": 86400}.get(name, _LONGEST + 1) * int(step)
    return f". If that period was meant, write every.periodSeconds: {seconds}" if seconds <= _LONGEST else ""


def _every(cronjob: CronJob, text: str, duration: str) -> tuple[dict[str, object], Note]:
    period = _period(text, duration)
    anchor = cronjob.created or cronjob.last_scheduled
    every: dict[str, object] = {"periodSeconds": period}
    told = f"{text!r}: @every has no calendar meaning; written as every {period} s "
    if anchor is None:
        told += (
            "from 1970-01-01T00:00:00Z, because the object has no metadata.creationTimestamp, from which the CronJob "
            "counts. Convert what `kubectl get cronjob -o yaml` prints, or set every.anchorTime"
        )
    else:
        every["anchorTime"] = format_instant(anchor.astimezone(UTC))
        source = "metadata.creationTimestamp" if cronjob.created else "status.lastScheduleTime"
        told += f"from {every['anchorTime']}, its {source}{_off_the_grid(cronjob, anchor, period)}"
    return {"every": every}, Note(NoteKind.CHANGED, _FIELD, told)


def _off_the_grid(cronjob: CronJob, anchor: datetime, period: int) -> str:
    last = cronjob.last_scheduled
    if last is None or (last - anchor) % timedelta(seconds=period) == timedelta():
        return ""
    return (
        f". Its last run, {format_instant(last)}, was not on that grid: set every.anchorTime to it if the rhythm is "
        "to go on from there"
    )


def _period(text: str, duration: str) -> int:
    """Whole seconds of a duration such as 1h30m; a fraction of a second is cut, as Kubernetes does."""
    parts = _DURATION.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration.removeprefix("+"):
        raise InvalidField(_FIELD, f"{text!r}: {duration!r} is not a duration", instead="write one such as 90m or 6h")
    seconds = int(sum((Decimal(number) * _SECONDS[unit] for number, unit in parts), Decimal()))
    if not _SHORTEST <= seconds <= _LONGEST:
        raise InvalidField(
            _FIELD,
            f"{text!r}: a period of {seconds} s is outside {_SHORTEST} to {_LONGEST} s",
            instead="write a period within it",
        )
    return seconds

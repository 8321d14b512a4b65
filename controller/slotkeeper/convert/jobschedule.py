"""Puts the JobSchedule together: times, policies, the job, metadata; collects the notes for all that is different.

Every object that comes out is one that a JobSchedule's own parser accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from slotkeeper.convert.clock_changes import AS_A_CRONJOB, WITHOUT_CHANGES, differences, hint_of_a_zone, may_be_touched
from slotkeeper.convert.conversion import Conversion, Note, NoteKind, Options, Verdict, refused, without_schedule
from slotkeeper.convert.cronjob import API_VERSIONS, ConcurrencyPolicy, CronJob, cronjob_findings, read_cronjob
from slotkeeper.convert.differences import (
    history_notes,
    metadata_notes,
    policy_notes,
    slot_notes,
    unserved_notes,
)
from slotkeeper.convert.schedule import When, when
from slotkeeper.convert.template import retries, secrets, verbatim
from slotkeeper.errors import InvalidField
from slotkeeper.spec import (
    API_VERSION,
    KIND,
    CatchUpPolicy,
    JobScheduleSpec,
    OverlapPolicy,
    parse_spec,
)
from slotkeeper.spec.instants import format_instant
from slotkeeper.spec.metadata import metadata_findings

_OVERLAP = {
    ConcurrencyPolicy.ALLOW: OverlapPolicy.ALLOW,
    ConcurrencyPolicy.FORBID: OverlapPolicy.QUEUE,
    ConcurrencyPolicy.REPLACE: OverlapPolicy.REPLACE,
}
_LONGEST_DEADLINE = 3_153_600_000  # spec.startingDeadlineSeconds, 100 years
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_CARRIED = ("name", "namespace", "labels", "annotations")


def convert(obj: Mapping[str, object], now: datetime, options: Options | None = None) -> Conversion:
    """The JobSchedule that ``obj``, any Kubernetes object, becomes; one that is no schedule is ignored.

    ``now`` is where the look ahead for differences begins. Never raises for what the object says: a CronJob that
    cannot be converted is refused, with all that was found.
    """
    kind, api_version = str(obj.get("kind")), str(obj.get("apiVersion"))
    if kind != "CronJob" or api_version not in API_VERSIONS:
        return _other(obj, kind, api_version)
    findings = cronjob_findings(obj)
    try:
        cronjob = read_cronjob(obj)
        conversion = _converted(cronjob, now, options or Options())
    except InvalidField as error:
        # One wrong value may be found in both ways.
        return refused(obj, [*(finding for finding in findings if finding.field != error.field), error])
    return refused(obj, [*findings, *conversion.findings]) if findings or conversion.findings else conversion


def _other(obj: Mapping[str, object], kind: str, api_version: str) -> Conversion:
    if kind == "CronJob":
        wanted = f"write {API_VERSIONS[0]}" if api_version.startswith("batch/") else f"convert takes {API_VERSIONS[0]}"
        finding = InvalidField("apiVersion", f"{api_version} is not supported", instead=wanted)
        return refused(obj, [finding])
    spec = obj.get("spec")
    on_a_schedule = isinstance(spec, Mapping) and ("schedule" in spec or "schedules" in spec)
    if kind != KIND and (kind.startswith(("Cron", "Scheduled")) or on_a_schedule):
        finding = InvalidField("kind", f"kind {kind} is not supported", instead="convert takes CronJob")
        return refused(obj, [finding])
    return without_schedule(obj, Verdict.IGNORED, [InvalidField("kind", f"a {kind} is no CronJob")])


def _converted(cronjob: CronJob, now: datetime, options: Options) -> Conversion:
    times = when(cronjob, options)
    retry, retry_note = retries(cronjob)
    daylight_saving, clock_notes = _clock(times, cronjob, now, options)
    spec: dict[str, object] = {
        **times.fields,
        **daylight_saving,
        **({} if options.start_time is None else {"startTime": format_instant(options.start_time)}),
        **({"suspend": True} if cronjob.suspend else {}),
        "overlapPolicy": str(_OVERLAP[cronjob.concurrency_policy]),
        "catchUp": {"policy": str(CatchUpPolicy.RUN_ONCE)},
        **_starting_deadline(cronjob),
        **retry,
        "job": {"template": verbatim(cronjob.job_template)},
    }
    obj = {"apiVersion": API_VERSION, "kind": KIND, "metadata": _metadata(cronjob), "spec": spec}
    parsed = _parsed(spec)
    notes = [*times.notes, *clock_notes, *slot_notes(parsed, now), *policy_notes(cronjob), retry_note]
    notes += [*secrets(cronjob), *history_notes(cronjob), *metadata_notes(cronjob), *unserved_notes(parsed)]
    changed = any(note.kind is NoteKind.CHANGED for note in notes)
    return Conversion(
        kind="CronJob",
        namespace=str(cronjob.metadata.get("namespace") or ""),
        name=str(cronjob.metadata["name"]),
        verdict=Verdict.CHANGED if changed else Verdict.SAME,
        job_schedule=obj,
        notes=tuple(notes),
        findings=tuple(metadata_findings(obj)),
    )


def _metadata(cronjob: CronJob) -> dict[str, object]:
    result = {name: cronjob.metadata[name] for name in _CARRIED if cronjob.metadata.get(name)}
    if isinstance(result.get("annotations"), Mapping):
        annotations = {key: text for key, text in cronjob.annotations.items() if key != _LAST_APPLIED}
        result["annotations"] = annotations
        if not annotations:
            del result["annotations"]
    return result


def _starting_deadline(cronjob: CronJob) -> dict[str, object]:
    deadline = cronjob.starting_deadline_seconds
    return {} if deadline is None else {"startingDeadlineSeconds": min(deadline, _LONGEST_DEADLINE)}


def _clock(times: When, cronjob: CronJob, now: datetime, options: Options) -> tuple[dict[str, object], list[Note]]:
    """What is set for the nights on which the clock changes, and what they make different."""
    expressions, zone = times.fields.get("cron"), str(times.fields.get("timeZone"))
    if not isinstance(expressions, list):
        return {}, []
    hint = None
    if zone in WITHOUT_CHANGES and len(expressions) == 1:
        hint = hint_of_a_zone(str(expressions[0]), cronjob.annotations, now)
    kept = options.keep_clock_changes and may_be_touched(expressions, zone)
    if kept:
        text = "local times are skipped and doubled when the clock changes, as the CronJob does"
        notes = [Note(NoteKind.NOTE, "spec.schedule", text, shared=True)]
    else:
        notes = differences(expressions, zone, now)
    fields: dict[str, object] = {"daylightSaving": dict(AS_A_CRONJOB)} if kept else {}
    return fields, notes if hint is None else [*notes, hint]


def _parsed(spec: Mapping[str, object]) -> JobScheduleSpec:
    """``spec`` as its own parser takes it; an error names the field of the CronJob."""
    try:
        return parse_spec(spec)
    except InvalidField as error:
        field = error.field.replace("spec.job.template", "spec.jobTemplate", 1)
        raise InvalidField(field, error.problem, instead=error.instead) from None

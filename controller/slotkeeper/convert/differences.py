"""What a converted job does differently from its CronJob, apart from its times: a note for each.

Texts only; the fields themselves are set in `jobschedule`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from slotkeeper.convert.clock_changes import cronjob_timetable
from slotkeeper.convert.conversion import Note, NoteKind
from slotkeeper.convert.cronjob import ConcurrencyPolicy, CronJob
from slotkeeper.spec import JobScheduleSpec, unsupported_fields
from slotkeeper.timing import timetable


def slot_notes(spec: JobScheduleSpec, now: datetime) -> Iterator[Note]:
    """That it never fires; that Vixie cron would choose other days."""
    table = timetable(spec)
    if table.next(now) is None:
        text = (
            "it never fires; run it by hand with the annotation slotkeeper.dev/trigger, in place of kubectl create job"
        )
        yield Note(NoteKind.NOTE, "spec.schedule", text)
    if spec.cron is not None:
        vixie = cronjob_timetable(spec.cron, spec.time_zone).differs_from_vixie_cron
        if vixie is not None:
            yield Note(NoteKind.NOTE, "spec.schedule", f"the days are Kubernetes', as before: {vixie}")


def policy_notes(cronjob: CronJob) -> Iterator[Note]:
    """Overlap, lateness, and what happens when it is resumed."""
    deadline = cronjob.starting_deadline_seconds
    yield _overlap_note(cronjob.concurrency_policy, deadline)
    if deadline is None:
        text = (
            "it is unset, so an outage of any length is followed by one run of the newest missed time, as with the "
            "CronJob; but a CronJob that missed more than 100 may never start again, and a JobSchedule goes on"
        )
    else:
        text = (
            "it bounds the start by a worker, where the CronJob's bounds the creation of the Job: while no worker is "
            "free it goes on counting"
        )
    yield Note(NoteKind.DIFFERS, "spec.startingDeadlineSeconds", text, shared=True)
    text = "resumed, a CronJob starts the newest time that it missed while suspended; a JobSchedule waits for the next"
    yield Note(NoteKind.DIFFERS, "spec.suspend", text, shared=not cronjob.suspend)


def _overlap_note(policy: ConcurrencyPolicy, deadline: int | None) -> Note:
    kind = NoteKind.DIFFERS
    match policy:
        case ConcurrencyPolicy.FORBID:
            kind = NoteKind.NOTE
            until = "" if deadline is None else f", unless that is more than {deadline} s late"
            text = (
                "Forbid is overlapPolicy: Queue with catchUp.policy: RunOnce: the newest time that passed during a run "
                f"starts when the run ends, as with the CronJob{until}. overlapPolicy: Skip would record it as skipped "
                "instead"
            )
        case ConcurrencyPolicy.REPLACE:
            text = (
                "the CronJob deletes the old Job and starts the new one at once; here the new one waits until the old "
                "one has stopped"
            )
        case ConcurrencyPolicy.ALLOW:
            text = (
                "each time starts a Job of its own, as with the CronJob; but one that no worker has started when the "
                "next one comes is superseded by it (catchUp.policy: RunOnce), where the CronJob creates both Jobs"
            )
    return Note(kind, "spec.concurrencyPolicy", text, shared=True)


def history_notes(cronjob: CronJob) -> Iterator[Note]:
    """The limits that are not carried, and how long finished Jobs stay."""
    limits = {
        "successfulJobsHistoryLimit": cronjob.successful_limit,
        "failedJobsHistoryLimit": cronjob.failed_limit,
    }
    written = " and ".join(f"{name} {limit}" for name, limit in limits.items() if limit is not None)
    job = cronjob.job_template.get("spec")
    ttl = job.get("ttlSecondsAfterFinished") if isinstance(job, Mapping) else None
    jobs = "go a day after they finished (ttlSecondsAfterFinished)" if ttl is None else f"go after {ttl} s"
    yield Note(
        NoteKind.DIFFERS,
        f"spec.{next(iter(name for name, limit in limits.items() if limit is not None), 'successfulJobsHistoryLimit')}",
        f"{written or 'the history limits'}: not carried; history in the database is kept by a setting of the "
        f"installation (30 days, dead runs 90), and finished Jobs {jobs}",
        shared=not written and ttl is None,
    )


def metadata_notes(cronjob: CronJob) -> Iterator[Note]:
    """Jobs that run at this moment, and ties of the object to others."""
    if cronjob.active:
        yield Note(
            NoteKind.WARNING,
            "status.active",
            f"running when this was read: {', '.join(cronjob.active)}. The JobSchedule does not know it: let it end, "
            "or delete it, before the cut-over",
        )
    owners = cronjob.metadata.get("ownerReferences")
    if isinstance(owners, list) and owners:
        named = ", ".join(f"{owner.get('kind')} {owner.get('name')}" for owner in owners if isinstance(owner, Mapping))
        text = f"not carried; the CronJob belongs to {named}, which may make it again after you have deleted it"
        yield Note(NoteKind.WARNING, "metadata.ownerReferences", text)
    if cronjob.metadata.get("finalizers"):
        yield Note(NoteKind.WARNING, "metadata.finalizers", "not carried; whoever set them still expects the CronJob")


def unserved_notes(spec: JobScheduleSpec) -> Iterator[Note]:
    """Fields that this version accepts and cannot serve yet."""
    for path in unsupported_fields(spec):
        text = f"this version of slotkeeper cannot serve {path} yet: the object would be Ready=False, NotYetSupported"
        yield Note(NoteKind.WARNING, "spec.jobTemplate", text, shared=True)

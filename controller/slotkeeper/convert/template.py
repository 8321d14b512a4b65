"""The job template, carried as it is, and what follows from it: retries, and secrets written in plain sight.

Nothing of the template is modelled, templated or expanded. Only ``creationTimestamp: null``, which old tools
print, is left out.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping

from slotkeeper.convert.conversion import Note, NoteKind
from slotkeeper.convert.cronjob import CronJob

_JOB = "spec.jobTemplate.spec"
_POD = f"{_JOB}.template.spec"

# What Kubernetes takes for an unset backoffLimit, and how long its Jobs wait: 10 s, doubling, at most 10 min. Where
# each index has a limit of its own, there is none in all.
_BACKOFF_LIMIT, _NO_LIMIT = 6, 2**31 - 1
_INITIAL_BACKOFF, _MAX_BACKOFF = 10, 600
_LONGEST = 3_153_600_000  # spec.activeDeadlineSeconds

_SECRET_NAME = re.compile(
    r".*(PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|SECRET_?KEY(_BASE)?|CREDENTIALS?)\d*"
    r"|(.*_)?PASS|.*_PWD",
    re.IGNORECASE,
)
_REFERENCES = re.compile(r"(\$\([A-Za-z_][-A-Za-z0-9_.]*\))+")
_PASSWORD_IN_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/:@]*:[^\s/@$]+@", re.IGNORECASE)


def verbatim(template: Mapping[str, object]) -> dict[str, object]:
    """A deep copy of ``template`` without ``creationTimestamp: null``."""
    result = _without_null_timestamps(template)
    assert isinstance(result, dict)  # noqa: S101 - a mapping stays one
    return result


def _without_null_timestamps(value: object) -> object:
    if isinstance(value, Mapping):
        return {
            key: _without_null_timestamps(child)
            for key, child in value.items()
            if not (key == "creationTimestamp" and child is None)
        }
    if isinstance(value, list):
        return [_without_null_timestamps(item) for item in value]
    return copy.deepcopy(value)


def retries(cronjob: CronJob) -> tuple[dict[str, object], Note]:
    """The fields of a spec that say how often a slot is tried, so that nothing runs more often than before.

    A set backoffLimit stays the Job's business: one attempt is one Job. An unset one becomes 0 in a JobSchedule,
    which then retries itself; only where that repeats no more than the Job would have repeated.
    """
    job = _mapping(cronjob.job_template, "spec")
    limit = job.get("backoffLimit")
    field = f"{_JOB}.backoffLimit"
    once: dict[str, object] = {"retry": {"maxAttempts": 1}}
    if limit is not None:
        text = "retries stay the Job's, by its backoffLimit; retry.maxAttempts is 1: one Job a slot, as before"
        return once, Note(NoteKind.NOTE, field, text, shared=True)
    reason = _why_one_attempt(job)
    default = _BACKOFF_LIMIT if job.get("backoffLimitPerIndex") is None else _NO_LIMIT
    if reason is not None:
        return once, Note(
            NoteKind.DIFFERS,
            field,
            f"it is unset, which a CronJob takes as {default} and a JobSchedule as 0; retry.maxAttempts is 1, "
            f"because {reason}. So a failed pod is not retried: set it to {default} in job.template to keep the "
            "Job's own retries",
        )
    fields: dict[str, object] = {
        "retry": {
            "maxAttempts": _BACKOFF_LIMIT + 1,
            "initialBackoffSeconds": _INITIAL_BACKOFF,
            "maxBackoffSeconds": _MAX_BACKOFF,
        }
    }
    deadline = job.get("activeDeadlineSeconds")
    told = ""
    if isinstance(deadline, int) and 1 <= deadline <= _LONGEST:
        # The Job's own deadline bounded all of its retries; now each attempt is a Job.
        fields = {"activeDeadlineSeconds": deadline, **fields}
        told = f"; spec.activeDeadlineSeconds is {deadline}, for the Job's own would bound each attempt alone"
    return fields, Note(
        NoteKind.DIFFERS,
        field,
        f"it is unset, which a CronJob takes as {_BACKOFF_LIMIT} and a JobSchedule as 0; retry.maxAttempts is "
        f"{_BACKOFF_LIMIT + 1}, so that it is tried as often as before, each time as a new Job and after a wait of "
        f"random length{told}",
        shared=not told,
    )


def _why_one_attempt(job: Mapping[str, object]) -> str | None:
    """Why a new Job would repeat more than the old Job's retry of one pod."""
    pod = _mapping(_mapping(job, "template"), "spec")
    for name in ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex"):
        if job.get(name) is not None:
            return f"a new Job would not know what {name} decided about the one before"
    if any(job.get(name, 1) not in (None, 1) for name in ("parallelism", "completions")):
        return "a new Job would run pods again that had succeeded"
    containers = [pod.get(name) for name in ("initContainers", "containers")]
    several = sum(len(value) for value in containers if isinstance(value, list)) > 1
    if pod.get("restartPolicy") == "OnFailure" and several:
        return "a new Job would run containers again that had succeeded"
    return None


def secrets(cronjob: CronJob) -> Iterator[Note]:
    """A warning for each variable that looks like a secret and stands there in plain sight; never its value."""
    pod = _mapping(_mapping(_mapping(cronjob.job_template, "spec"), "template"), "spec")
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(_list(pod, kind)):
            for number, variable in enumerate(_list(container, "env")):
                if _is_secret(variable):
                    yield Note(
                        NoteKind.WARNING,
                        f"{_POD}.{kind}[{index}].env[{number}].value",
                        f"container {container.get('name')!r}: {variable.get('name')} looks like a literal password or "
                        "key; it is copied, and whoever may read JobSchedules or the database will read it. Keep it in "
                        "a Secret and write valueFrom.secretKeyRef",
                    )


def _is_secret(variable: Mapping[str, object]) -> bool:
    name, value = variable.get("name"), variable.get("value")
    if not isinstance(name, str) or not isinstance(value, str) or not value or _REFERENCES.fullmatch(value):
        return False
    return _SECRET_NAME.fullmatch(name) is not None or _PASSWORD_IN_URL.search(value) is not None


def _mapping(value: Mapping[str, object], name: str) -> Mapping[str, object]:
    child = value.get(name)
    return child if isinstance(child, Mapping) else {}


def _list(value: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    """The items that are objects; a place is kept for those that are not, so that indexes stay right."""
    items = value.get(name)
    return [item if isinstance(item, Mapping) else {} for item in items] if isinstance(items, list) else []

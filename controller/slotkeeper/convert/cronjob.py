"""A CronJob as typed values, and all that the API server would refuse in it and a converter must not guess.

batch/v1 and batch/v1beta1, whose fields are the same. The job template stays what it is: nothing of it is
modelled, only the texts that YAML easily turns into numbers are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from slotkeeper.errors import InvalidField
from slotkeeper.spec.fields import Fields, required
from slotkeeper.spec.wording import instead_of_unknown, shown

API_VERSIONS = ("batch/v1", "batch/v1beta1")

_SPEC_FIELDS = (
    "schedule",
    "timeZone",
    "suspend",
    "startingDeadlineSeconds",
    "concurrencyPolicy",
    "successfulJobsHistoryLimit",
    "failedJobsHistoryLimit",
    "jobTemplate",
)

# Where the API server takes strings only and people write 8080, on or 1e3. ``*`` is every item or every field.
_POD = ("spec", "jobTemplate", "spec", "template", "spec")
_CONTAINERS = tuple((*_POD, name, "*") for name in ("initContainers", "containers"))
_TEXTS = (
    *(("spec", "jobTemplate", *place, "*") for place in (("metadata", "labels"), ("metadata", "annotations"))),
    *((*_POD[:-1], "metadata", name, "*") for name in ("labels", "annotations")),
    (*_POD, "nodeSelector", "*"),
    *((*_POD, "tolerations", "*", name) for name in ("key", "operator", "value", "effect")),
    *((*container, name) for container in _CONTAINERS for name in ("name", "image", "workingDir")),
    *((*container, name, "*") for container in _CONTAINERS for name in ("command", "args")),
    *((*container, "env", "*", name) for container in _CONTAINERS for name in ("name", "value")),
    *(
        ("spec", "jobTemplate", "spec", "podFailurePolicy", "rules", "*", "onPodConditions", "*", name)
        for name in ("type", "status")
    ),
)

# Of their path: what stands there may be a password, and a report is read by many.
_MAY_BE_SECRET = re.compile(r"\.(value|(args|command)\[\d+\])$")


class ConcurrencyPolicy(StrEnum):
    """What a CronJob does when the one before still runs."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class CronJob:
    """One CronJob. None means unset; ``active`` are the names of the Jobs that run, as its status has them."""

    metadata: Mapping[str, object]
    schedule: str
    time_zone: str | None
    suspend: bool
    starting_deadline_seconds: int | None
    concurrency_policy: ConcurrencyPolicy
    successful_limit: int | None
    failed_limit: int | None
    job_template: Mapping[str, object]
    active: tuple[str, ...]
    created: datetime | None
    last_scheduled: datetime | None

    @property
    def annotations(self) -> Mapping[str, object]:
        """The annotations of the CronJob itself."""
        value = self.metadata.get("annotations")
        return value if isinstance(value, Mapping) else {}


def read_cronjob(obj: Mapping[str, object]) -> CronJob:
    """The CronJob that ``obj`` holds. Raises InvalidField at the first field that is missing or of another type."""
    metadata = Fields(obj.get("metadata"), "metadata")
    required(metadata.text("name", None), "metadata.name")
    spec, status = Fields(obj.get("spec"), "spec"), Fields(obj.get("status") or {}, "status")
    deadline = spec.whole("startingDeadlineSeconds", None)
    if deadline is not None and deadline < 1:
        raise InvalidField(
            "spec.startingDeadlineSeconds",
            f"{deadline}: a CronJob with this never starts a Job, for it always looks a moment after the time",
            instead="write 1 or more, or leave it out; or write suspend: true",
        )
    template = spec.section("jobTemplate")
    job = template.section("spec")
    required(job.value("template"), job.path("template"))
    job.section("template").section("spec")
    return CronJob(
        metadata=_mapping(obj, "metadata"),
        schedule=required(spec.text("schedule", None), "spec.schedule"),
        time_zone=spec.text("timeZone", None),
        suspend=spec.flag("suspend", False),
        starting_deadline_seconds=deadline,
        concurrency_policy=spec.choice("concurrencyPolicy", ConcurrencyPolicy.ALLOW),
        successful_limit=spec.whole("successfulJobsHistoryLimit", None),
        failed_limit=spec.whole("failedJobsHistoryLimit", None),
        job_template=spec.mapping("jobTemplate"),
        active=tuple(job.text("name", "") for job in status.sections("active")),
        created=metadata.instant("creationTimestamp", None),
        last_scheduled=status.instant("lastScheduleTime", None),
    )


def cronjob_findings(obj: Mapping[str, object]) -> list[InvalidField]:
    """Fields that a CronJob does not have, and numbers or booleans where Kubernetes takes strings."""
    unknown = [
        InvalidField(f"spec.{name}", "a CronJob has no such field", instead=_instead_of(name))
        for name in _mapping(obj, "spec")
        if name not in _SPEC_FIELDS
    ]
    return [*unknown, *(finding for place in _TEXTS for finding in _not_texts(obj, place, ""))]


def _instead_of(name: str) -> str:
    close = next((field for field in _SPEC_FIELDS if field.lower() == name.lower()), None)
    if close is not None:
        return f"write {close}"
    instead = instead_of_unknown(name, _SPEC_FIELDS, {})
    # The words of a JobSchedule would mislead here.
    return instead if instead.removeprefix("write ") in _SPEC_FIELDS else "leave it out, or correct its name"


def _not_texts(value: object, place: tuple[str, ...], path: str) -> Iterator[InvalidField]:
    """Findings for what is at ``place`` below ``value`` and is no string; what is missing or null is none."""
    if not place:
        if value is not None and not isinstance(value, str):
            kind = "boolean" if isinstance(value, bool) else "number" if isinstance(value, int | float) else "value"
            secret = not isinstance(value, bool) and _MAY_BE_SECRET.search(path)
            told = f"a {kind}" if secret else f"the {kind} {shown(value)}"
            problem = f"YAML makes it {told}, and Kubernetes takes only a string here"
            yield InvalidField(path, problem, instead="write in quotes what was meant")
        return
    name, *rest = place
    if name != "*":
        if isinstance(value, Mapping):
            yield from _not_texts(value.get(name), tuple(rest), f"{path}.{name}" if path else name)
    elif isinstance(value, Mapping):
        for key, child in value.items():
            yield from _not_texts(child, tuple(rest), f"{path}.{key}")
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _not_texts(child, tuple(rest), f"{path}[{index}]")


def _mapping(obj: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = obj.get(name)
    return value if isinstance(value, Mapping) else {}

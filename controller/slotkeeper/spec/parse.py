"""From the object that the API server stores to typed values.

Expects defaults to be filled in and the schema's rules to be checked already; what is left to refuse here is
what no schema can refuse (see ``payload``) and what this build cannot serve. Grammar of cron expressions and
names of time zones belong to the timetable.
"""

from __future__ import annotations

from collections.abc import Mapping

from slotkeeper.errors import InvalidField
from slotkeeper.spec.fields import Fields, required
from slotkeeper.spec.jobschedule import (
    Action,
    CatchUp,
    CommandAction,
    CredentialHeader,
    DaylightSaving,
    Every,
    Header,
    HttpAction,
    Identity,
    JobAction,
    JobSchedule,
    JobScheduleSpec,
    Retry,
    TaskAction,
)
from slotkeeper.spec.payload import check_payload, check_storable
from slotkeeper.spec.wording import json_type, shown

TRIGGER_ANNOTATION = "slotkeeper.dev/trigger"


def parse_object(obj: Mapping[str, object]) -> JobSchedule:
    """The JobSchedule that ``obj`` holds, as the API server stores it.

    Raises InvalidField for the first thing that cannot be accepted, NotYetSupported for a field that came
    with a CRD newer than this build.
    """
    identity = parse_identity(obj)
    spec = obj.get("spec")
    if not isinstance(spec, Mapping):
        raise InvalidField("spec", f"must be of type object, not {json_type(spec)}")
    return JobSchedule(
        namespace=identity.namespace,
        name=identity.name,
        uid=identity.uid,
        generation=identity.generation,
        resource_version=identity.resource_version,
        suspend=identity.suspend,
        trigger_key=identity.trigger_key,
        spec=parse_spec(spec),
    )


def parse_identity(obj: Mapping[str, object]) -> Identity:
    """Which object it is, and whether it wants to be suspended, whatever else its spec says.

    Raises InvalidField only if metadata has no usable name or namespace.
    """
    metadata = Fields(obj.get("metadata"), "metadata")
    spec = obj.get("spec")
    trigger = metadata.mapping("annotations").get(TRIGGER_ANNOTATION)
    return Identity(
        namespace=required(metadata.text("namespace", None), "metadata.namespace"),
        name=required(metadata.text("name", None), "metadata.name"),
        uid=metadata.text("uid", ""),
        generation=metadata.whole("generation", 0),
        resource_version=metadata.text("resourceVersion", ""),
        suspend=isinstance(spec, Mapping) and spec.get("suspend") is True,
        trigger_key=trigger if isinstance(trigger, str) and trigger else None,
    )


def parse_spec(value: Mapping[str, object]) -> JobScheduleSpec:
    """The spec that ``value`` holds: an object's ``spec``, or the stored canonical form.

    Missing fields get the CRD's defaults. Raises InvalidField, or NotYetSupported for an unknown field.
    """
    check_storable(value, "spec")
    fields = Fields(value, "spec")
    payload = fields.mapping("payload")
    check_payload(payload, "spec.payload")
    cron, at = fields.texts("cron"), fields.instants("at")
    every = None if fields.value("every") is None else _every(fields.section("every"))
    _exactly_one("spec", {"cron": cron, "every": every, "at": at})
    spec = JobScheduleSpec(
        action=_action(fields),
        cron=cron,
        every=every,
        at=at,
        time_zone=fields.text("timeZone", _spec_default.time_zone),
        daylight_saving=_daylight_saving(fields.section("daylightSaving")),
        start_time=fields.instant("startTime", None),
        end_time=fields.instant("endTime", None),
        spread_seconds=fields.whole("spreadSeconds", _spec_default.spread_seconds),
        suspend=fields.flag("suspend", _spec_default.suspend),
        payload=payload,
        queue=fields.text("queue", _spec_default.queue),
        priority=fields.whole("priority", _spec_default.priority),
        overlap_policy=fields.choice("overlapPolicy", _spec_default.overlap_policy),
        catch_up=_catch_up(fields.section("catchUp")),
        starting_deadline_seconds=fields.whole("startingDeadlineSeconds", None),
        retry=_retry(fields.section("retry")),
        attempt_deadline_seconds=fields.whole("attemptDeadlineSeconds", None),
        active_deadline_seconds=fields.whole("activeDeadlineSeconds", None),
        max_success_age_seconds=fields.whole("maxSuccessAgeSeconds", None),
    )
    fields.end()
    return spec


# Any action serves: only the defaults of the other fields are read from it.
_spec_default = JobScheduleSpec(action=TaskAction(""))


def _exactly_one(path: str, members: Mapping[str, object]) -> None:
    present = [name for name, value in members.items() if value is not None]
    if len(present) != 1:
        names = ", ".join(members)
        problem = f"set only one of {names}, not {', '.join(present)}" if present else f"set one of {names}"
        raise InvalidField(path, problem)


def _every(fields: Fields) -> Every:
    period = required(fields.whole("periodSeconds", None), fields.path("periodSeconds"))
    if period < 1:
        raise InvalidField(fields.path("periodSeconds"), f"{period} is below 10", instead="write 10 or more")
    every = Every(period)
    every = Every(period, fields.instant("anchorTime", every.anchor_time))
    fields.end()
    return every


def _daylight_saving(fields: Fields) -> DaylightSaving:
    default = DaylightSaving()
    value = DaylightSaving(
        fields.choice("skippedTime", default.skipped_time),
        fields.choice("repeatedTime", default.repeated_time),
    )
    fields.end()
    return value


def _catch_up(fields: Fields) -> CatchUp:
    default = CatchUp()
    value = CatchUp(
        fields.choice("policy", default.policy),
        fields.whole("maxRuns", default.max_runs),
        fields.whole("graceSeconds", default.grace_seconds),
    )
    fields.end()
    return value


def _retry(fields: Fields) -> Retry:
    default = Retry()
    value = Retry(
        fields.whole("maxAttempts", default.max_attempts),
        fields.whole("initialBackoffSeconds", default.initial_backoff_seconds),
        fields.whole("maxBackoffSeconds", default.max_backoff_seconds),
    )
    fields.end()
    return value


def _action(fields: Fields) -> Action:
    task, command = fields.text("task", None), fields.texts("command")
    http, job = fields.value("http"), fields.value("job")
    _exactly_one("spec", {"task": task, "command": command, "http": http, "job": job})
    if task is not None:
        return TaskAction(task)
    if command is not None:
        if not command:
            raise InvalidField("spec.command", shown(command) + " is empty", instead="write the program first")
        return CommandAction(command)
    return _http(fields.section("http")) if http is not None else _job(fields.section("job"))


def _http(fields: Fields) -> HttpAction:
    url = required(fields.text("url", None), fields.path("url"))
    action = HttpAction(
        url,
        fields.text("method", HttpAction(url).method),
        tuple(_header(item) for item in fields.sections("headers")),
        tuple(_credential_header(item) for item in fields.sections("headersFrom")),
        fields.wholes("successCodes"),
    )
    fields.end()
    return action


def _header(fields: Fields) -> Header:
    name, value = (required(fields.text(name, None), fields.path(name)) for name in ("name", "value"))
    fields.end()
    return Header(name, value)


def _credential_header(fields: Fields) -> CredentialHeader:
    name, value = (required(fields.text(name, None), fields.path(name)) for name in ("name", "credential"))
    fields.end()
    return CredentialHeader(name, value)


def _job(fields: Fields) -> JobAction:
    required(fields.value("template"), fields.path("template"))
    action = JobAction(fields.mapping("template"))
    fields.end()
    return action

"""The JobSchedule as typed, frozen values: parsing, checking, hashing. No clock, no network, no database.

``parse_object`` and ``parse_spec`` for what an API server or the database stores; ``read_manifests``,
``apply_defaults`` and ``check`` for files that never met one. Shape only: the grammar of cron expressions
and the names of time zones are the timetable's.
"""

from slotkeeper.spec.canonical import Timing, canonical, spec_hash, timing_of, unsupported_fields
from slotkeeper.spec.jobschedule import (
    Action,
    CatchUp,
    CatchUpPolicy,
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
    OverlapPolicy,
    RepeatedTime,
    Retry,
    SkippedTime,
    TaskAction,
)
from slotkeeper.spec.manifest import (
    Manifest,
    NothingThere,
    UnreadableManifest,
    manifest_files,
    manifests_in,
    read_manifests,
)
from slotkeeper.spec.metadata import API_GROUP, API_VERSION, KIND
from slotkeeper.spec.parse import TRIGGER_ANNOTATION, parse_identity, parse_object, parse_spec
from slotkeeper.spec.schema import apply_defaults, check, custom_resource_definition

__all__ = [
    "API_GROUP",
    "API_VERSION",
    "KIND",
    "TRIGGER_ANNOTATION",
    "Action",
    "CatchUp",
    "CatchUpPolicy",
    "CommandAction",
    "CredentialHeader",
    "DaylightSaving",
    "Every",
    "Header",
    "HttpAction",
    "Identity",
    "JobAction",
    "JobSchedule",
    "JobScheduleSpec",
    "Manifest",
    "NothingThere",
    "OverlapPolicy",
    "RepeatedTime",
    "Retry",
    "SkippedTime",
    "TaskAction",
    "Timing",
    "UnreadableManifest",
    "apply_defaults",
    "canonical",
    "check",
    "custom_resource_definition",
    "manifest_files",
    "manifests_in",
    "parse_identity",
    "parse_object",
    "parse_spec",
    "read_manifests",
    "spec_hash",
    "timing_of",
    "unsupported_fields",
]

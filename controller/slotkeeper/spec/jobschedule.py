"""The JobSchedule as typed, frozen values: what the rest of slotkeeper sees of the custom resource.

No parsing (``parse``), no checking (``schema``), no time arithmetic (the timetable). The defaults repeat
those of the CRD for whoever builds a value in code; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeAlias


class SkippedTime(StrEnum):
    """What happens to a local time that the clock skips."""

    RUN_AFTER = "RunAfter"
    SKIP = "Skip"


class RepeatedTime(StrEnum):
    """What happens to a local time that comes twice."""

    RUN_ONCE = "RunOnce"
    RUN_TWICE = "RunTwice"


class OverlapPolicy(StrEnum):
    """What happens to a slot that falls due while a run of the schedule has started."""

    SKIP = "Skip"
    QUEUE = "Queue"
    REPLACE = "Replace"
    ALLOW = "Allow"


class CatchUpPolicy(StrEnum):
    """Which slots run after an outage."""

    RUN_ONCE = "RunOnce"
    RUN_ALL = "RunAll"
    SKIP = "Skip"


@dataclass(frozen=True, slots=True)
class Every:
    """Slot k is ``anchor_time`` + k × ``period_seconds``, k ≥ 0."""

    period_seconds: int
    anchor_time: datetime = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DaylightSaving:
    """The two settings for the nights on which the clock changes."""

    skipped_time: SkippedTime = SkippedTime.RUN_AFTER
    repeated_time: RepeatedTime = RepeatedTime.RUN_ONCE


@dataclass(frozen=True, slots=True)
class CatchUp:
    """``max_runs`` is read only under RunAll; a start within ``grace_seconds`` of the due time is on time."""

    policy: CatchUpPolicy = CatchUpPolicy.RUN_ONCE
    max_runs: int = 100
    grace_seconds: int = 60


@dataclass(frozen=True, slots=True)
class Retry:
    """``max_attempts`` counts the first; waits are uniform below a bound that doubles from initial to max."""

    max_attempts: int = 6
    initial_backoff_seconds: int = 30
    max_backoff_seconds: int = 900


@dataclass(frozen=True, slots=True)
class TaskAction:
    """A Python handler, by its registered name."""

    task: str


@dataclass(frozen=True, slots=True)
class CommandAction:
    """A program with its arguments, run without a shell."""

    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """A request header with a value that is no secret."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class CredentialHeader:
    """A request header whose value is a named credential of the worker."""

    name: str
    credential: str


@dataclass(frozen=True, slots=True)
class HttpAction:
    """An HTTP request. ``success_codes`` None means every code from 200 to 299."""

    url: str
    method: str = "POST"
    headers: tuple[Header, ...] = ()
    headers_from: tuple[CredentialHeader, ...] = ()
    success_codes: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class JobAction:
    """A Kubernetes Job; ``template`` is its metadata and spec, as the user wrote them."""

    template: Mapping[str, object]


Action: TypeAlias = TaskAction | CommandAction | HttpAction | JobAction


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScheduleSpec:
    """All that a user says about one schedule; exactly one of ``cron``, ``every`` and ``at`` is set.

    Instants are aware and in UTC. ``None`` means unset, where the CRD has no default. ``payload`` and a Job's
    template are plain JSON values: treat them as read-only (``spec_hash`` stands in for a hash of the whole).
    """

    action: Action
    cron: tuple[str, ...] | None = None
    every: Every | None = None
    at: tuple[datetime, ...] | None = None
    time_zone: str = "Etc/UTC"
    daylight_saving: DaylightSaving = DaylightSaving()
    start_time: datetime | None = None
    end_time: datetime | None = None
    spread_seconds: int = 0
    suspend: bool = False
    payload: Mapping[str, object] = field(default_factory=dict)
    queue: str = "default"
    priority: int = 0
    overlap_policy: OverlapPolicy = OverlapPolicy.SKIP
    catch_up: CatchUp = CatchUp()
    starting_deadline_seconds: int | None = None
    retry: Retry = Retry()
    attempt_deadline_seconds: int | None = None
    active_deadline_seconds: int | None = None
    max_success_age_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which object it is, readable even while its spec is invalid.

    ``suspend`` is what ``spec.suspend`` says, honoured then too. ``trigger_key`` is the value of the
    annotation ``slotkeeper.dev/trigger``. An object from a file has no uid, generation or resource version.
    """

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    suspend: bool = False
    trigger_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSchedule(Identity):
    """One JobSchedule: which object it is, and what it says."""

    spec: JobScheduleSpec

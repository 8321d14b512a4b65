"""What users import: ``task``, ``Run``, ``enqueue`` and the errors that a handler raises on purpose.

No database driver is imported here: ``enqueue`` and ``run.complete`` take the caller's own psycopg connection
and use its transaction. How handlers are executed is the worker's business.
"""

from __future__ import annotations

import inspect
import json
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from slotkeeper.errors import InvalidField, SlotkeeperError

if TYPE_CHECKING:
    import psycopg

Handler = Callable[["Run"], object] | Callable[["Run"], Awaitable[object]]
_H = TypeVar("_H", bound=Callable[..., object])


class NonRetryable(SlotkeeperError):
    """Raised by a handler: trying again cannot help, so the run is dead at once."""


class InfrastructureError(SlotkeeperError):
    """Raised by a handler: not the job's fault (a service is away); back later, and the attempt is not charged."""


class Snooze(SlotkeeperError):
    """Raised by a handler: not now, but in ``seconds``; the attempt is not charged."""

    def __init__(self, seconds: float) -> None:
        if not 0 <= seconds <= 31_622_400:
            raise ValueError(f"a run can be snoozed for 0 to 31622400 seconds, not {seconds}")
        self.seconds = float(seconds)
        super().__init__(f"snoozed for {seconds} s")


class RunLost(SlotkeeperError):
    """Another attempt owns the run: this one's outcome would be refused, so its transaction must roll back."""


class RunRow(Protocol):
    """What a run's own row says."""

    @property
    def id(self) -> int: ...
    @property
    def slot(self) -> datetime | None: ...
    @property
    def run_at(self) -> datetime: ...
    @property
    def attempt(self) -> int: ...
    @property
    def charged(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def trigger(self) -> str: ...
    @property
    def payload(self) -> str | None: ...


class RunFacts(Protocol):
    """What a run knows beside its own row, computed only when a handler asks."""

    @property
    def task(self) -> str: ...
    @property
    def payload(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def schedule(self) -> str | None: ...
    def idempotency_key(self, run: Run) -> str: ...
    def late_seconds(self, run: Run) -> float: ...
    def local(self, slot: datetime) -> datetime: ...
    def previous(self, slot: datetime) -> datetime | None: ...
    def next(self, slot: datetime) -> datetime | None: ...


class RunAttempt(Protocol):
    """The attempt behind a run, as the worker that holds it keeps it; ``lost`` and ``cancelled`` change meanwhile."""

    @property
    def row(self) -> RunRow: ...
    @property
    def action(self) -> RunFacts: ...
    @property
    def token(self) -> uuid.UUID: ...
    @property
    def claimed_at(self) -> datetime: ...
    @property
    def cancelled(self) -> bool: ...

    lost: bool


class Run:
    """One attempt of one run, as its handler sees it: a view of what the worker keeps. Instants are aware, in UTC."""

    __slots__ = ("_attempt",)

    def __init__(self, attempt: RunAttempt) -> None:
        self._attempt = attempt

    @property
    def id(self) -> int:
        """The run's own number: the same for every attempt."""
        return self._attempt.row.id

    @property
    def task(self) -> str:
        """The registered name of the handler; ``command`` for a command."""
        return self._attempt.action.task

    @property
    def slot(self) -> datetime | None:
        """The instant that the run stands for; None for an ad-hoc run."""
        return self._attempt.row.slot

    @property
    def run_at(self) -> datetime:
        """When it was due, by the database's clock."""
        return self._attempt.row.run_at

    @property
    def claimed_at(self) -> datetime:
        """When this attempt was claimed, by the database's clock."""
        return self._attempt.claimed_at

    @property
    def attempt(self) -> int:
        """From 1; rises at every start, so handlers may order by it."""
        return self._attempt.row.attempt

    @property
    def charged(self) -> int:
        """How many attempts count towards ``max_attempts``, this one included."""
        return self._attempt.row.charged

    @property
    def max_attempts(self) -> int:
        """After so many charged attempts a failure is final."""
        return self._attempt.row.max_attempts

    @property
    def trigger(self) -> str:
        """Schedule, CatchUp, Backfill, Manual, Requeue or Enqueue."""
        return self._attempt.row.trigger

    @property
    def namespace(self) -> str:
        """Of the schedule; empty for an ad-hoc run."""
        return self._attempt.action.namespace

    @property
    def schedule(self) -> str | None:
        """``namespace/name``; None for an ad-hoc run."""
        return self._attempt.action.schedule

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt: ``namespace/name@slot``; the id of an ad-hoc run."""
        return self._attempt.action.idempotency_key(self)

    @property
    def late_seconds(self) -> float:
        """From the due time to the claim."""
        return self._attempt.action.late_seconds(self)

    @property
    def token(self) -> str:
        """Identifies this attempt alone: for fencing, never for keys, because it changes."""
        return str(self._attempt.token)

    @property
    def payload_json(self) -> str:
        """The payload as JSON text."""
        return self._attempt.row.payload or self._attempt.action.payload

    @property
    def payload(self) -> dict[str, Any]:
        """The payload, decoded anew at each access: keep it in a variable."""
        decoded: dict[str, Any] = json.loads(self.payload_json)
        return decoded

    @property
    def slot_local(self) -> datetime | None:
        """The slot in the schedule's time zone."""
        return None if self.slot is None else self._attempt.action.local(self.slot)

    @property
    def previous_slot(self) -> datetime | None:
        """The slot before this one: [previous_slot, slot) is the run's data interval."""
        return None if self.slot is None else self._attempt.action.previous(self.slot)

    @property
    def next_slot(self) -> datetime | None:
        """The slot after this one."""
        return None if self.slot is None else self._attempt.action.next(self.slot)

    @property
    def lost(self) -> bool:
        """True once the lease of this attempt is lost: stop, its outcome may be refused."""
        return self._attempt.lost

    @property
    def cancelled(self) -> bool:
        """True once this attempt should stop: lost, cancelled by somebody, or past its deadline. For handlers in
        threads.
        """
        return self._attempt.cancelled or self._attempt.lost

    def complete(self, conn: psycopg.Connection[Any]) -> None:
        """Records success inside the transaction of ``conn``, so that it commits together with the handler's own
        writes.

        The login of ``conn`` needs the role slotkeeper_worker or slotkeeper_enqueuer. Raises RunLost when
        another attempt owns the run: let it roll the transaction back. For an AsyncConnection use
        ``complete_async``.
        """
        row = conn.execute(_COMPLETE, (self.id, self.token)).fetchone()
        self._check_completed(row)

    async def complete_async(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """The same on an AsyncConnection."""
        row = await (await conn.execute(_COMPLETE, (self.id, self.token))).fetchone()
        self._check_completed(row)

    def _check_completed(self, row: Any) -> None:
        if row is None or not _first(row):
            self._attempt.lost = True
            raise RunLost(f"run {self.id}, attempt {self.attempt}: another attempt owns it")


@dataclass(frozen=True, slots=True)
class Task:
    """A handler under its registered name."""

    name: str
    handler: Callable[[Run], Any]
    is_async: bool


#: Every handler of this process, by registered name.
registered_tasks: dict[str, Task] = {}


@overload
def task(name: _H, /) -> _H: ...
@overload
def task(name: str | None = None, /) -> Callable[[_H], _H]: ...
def task(name: _H | str | None = None, /) -> _H | Callable[[_H], _H]:
    """Registers a handler: ``@task`` (as ``module.function``) or ``@task("billing.report")``.

    A handler takes one argument, the ``Run``, and may be ``async``. What it returns is ignored; what it raises
    decides what becomes of the run. Raises InvalidField for a name that is empty, longer than 253 characters or
    taken.
    """
    if callable(name):
        return _register(f"{name.__module__}.{name.__qualname__}", name)
    return lambda handler: _register(name or f"{handler.__module__}.{handler.__qualname__}", handler)


def _register(name: str, handler: _H) -> _H:
    if not 1 <= len(name) <= 253:
        raise InvalidField("task", f"the name {name[:60]!r} has {len(name)} characters", instead="use 1 to 253")
    other = registered_tasks.get(name)
    if other is not None and other.handler.__code__ is not handler.__code__:
        raise InvalidField("task", f"two handlers are named {name!r}", instead="give one of them another name")
    try:
        inspect.signature(handler).bind(None)
    except TypeError as error:
        raise InvalidField(
            "task", f"the handler {name!r} cannot take one argument", instead="def handler(run)"
        ) from error
    registered_tasks[name] = Task(name, handler, inspect.iscoroutinefunction(handler))
    return handler


@dataclass(frozen=True, slots=True)
class Enqueued:
    """An ad-hoc run: its id, and whether this call made it (False: the key was known)."""

    id: int
    created: bool


def enqueue(
    conn: psycopg.Connection[Any], task: str, payload: Mapping[str, object] | None = None, *, key: str | None = None,
    queue: str = "default", namespace: str = "default", run_at: datetime | None = None, priority: int = 0,
    max_attempts: int = 6,
) -> Enqueued:  # fmt: skip
    """Stores an ad-hoc run of ``task`` in the caller's transaction: it exists if and when that commits.

    ``key``: at most once per (namespace, key), from now until seven days after the run's end. ``run_at``: not
    before this instant (aware), by the database's clock. Raises InvalidField naming the argument; otherwise
    what the connection raises.
    """
    parameters = _enqueue_parameters(task, payload, key, queue, namespace, run_at, priority, max_attempts)
    return _enqueued(conn.execute(_ENQUEUE, parameters).fetchone())


async def enqueue_async(
    conn: psycopg.AsyncConnection[Any], task: str, payload: Mapping[str, object] | None = None, *,
    key: str | None = None, queue: str = "default", namespace: str = "default", run_at: datetime | None = None,
    priority: int = 0, max_attempts: int = 6,
) -> Enqueued:  # fmt: skip
    """``enqueue`` on an AsyncConnection."""
    parameters = _enqueue_parameters(task, payload, key, queue, namespace, run_at, priority, max_attempts)
    return _enqueued(await (await conn.execute(_ENQUEUE, parameters)).fetchone())


# Spelled out here and not in sql/queries: this text runs on the caller's connection, in the caller's process.
_ENQUEUE = (
    "select id, created from slotkeeper.enqueue_v1(%s::text, %s::text, %s::text, %s::text, %s::text, %s::timestamptz,"
    " %s::smallint, %s::smallint)"
)
_COMPLETE = "select slotkeeper.complete_v1(%s::bigint, %s::uuid) as recorded"
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LARGEST_PAYLOAD = 1024 * 1024


def _enqueue_parameters(
    task: str, payload: Mapping[str, object] | None, key: str | None, queue: str, namespace: str,
    run_at: datetime | None, priority: int, max_attempts: int,
) -> tuple[object, ...]:  # fmt: skip
    if not 1 <= len(task) <= 253:
        raise InvalidField("task", f"{task[:60]!r} has {len(task)} characters", instead="use 1 to 253")
    if key is not None and not 1 <= len(key.encode(errors="replace")) <= 255:
        raise InvalidField(
            "key", f"it has {len(key.encode(errors='replace'))} bytes", instead="use 1 to 255 bytes, or a hash"
        )
    for name, value in (("task", task), ("key", key or "")):
        _check_text(name, value)
    for name, label in (("queue", queue), ("namespace", namespace)):
        if not _DNS_LABEL.fullmatch(label):
            raise InvalidField(name, f"{label!r} is not a DNS label", instead="lower-case letters, digits and '-'")
    if run_at is not None and run_at.tzinfo is None:
        raise InvalidField("run_at", f"{run_at!r} has no time zone", instead="use an aware datetime")
    if not -2 <= priority <= 2:
        raise InvalidField("priority", f"{priority} is out of range", instead="use -2 to 2, higher is sooner")
    if not 1 <= max_attempts <= 100:
        raise InvalidField("max_attempts", f"{max_attempts} is out of range", instead="use 1 to 100")
    return task, payload_text(payload or {}), key, queue, namespace, run_at, priority, max_attempts


def payload_text(payload: Mapping[str, object]) -> str:
    """``payload`` as JSON text; raises InvalidField with the path of what Postgres or JSON cannot hold, or its size."""
    if not isinstance(payload, Mapping):
        raise InvalidField("payload", f"it is a {type(payload).__name__}", instead="use a mapping")
    _check_payload("payload", payload)
    try:
        text = json.dumps(dict(payload), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidField("payload", str(error), instead="use JSON values only") from error
    size = len(text.encode())
    if size > _LARGEST_PAYLOAD:
        raise InvalidField(
            "payload", f"it has {size} bytes", instead=f"use at most {_LARGEST_PAYLOAD}, or store it elsewhere"
        )
    return text


def _check_payload(path: str, value: object) -> None:
    if isinstance(value, str):
        _check_text(path, value)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _check_text(f"{path} key {name!r}", str(name))
            _check_payload(f"{path}.{name}", item)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check_payload(f"{path}[{index}]", item)


def _check_text(path: str, text: str) -> None:
    if "\0" in text:
        raise InvalidField(
            path, "it contains the character U+0000, which Postgres cannot store", instead="leave it out"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidField(
            path, f"it is not valid Unicode ({error.reason})", instead="encode binary data as base64"
        ) from error


def _enqueued(row: Any) -> Enqueued:
    if isinstance(row, Mapping):
        return Enqueued(row["id"], row["created"])
    return Enqueued(row[0], row[1])


def _first(row: Any) -> Any:
    return row["recorded"] if isinstance(row, Mapping) else row[0]

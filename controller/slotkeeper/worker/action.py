"""What a run is to do: from a version of a schedule, or from an ad-hoc row. Says what to run; runs nothing."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property

from slotkeeper.errors import SlotkeeperError
from slotkeeper.sdk import Run
from slotkeeper.spec import CommandAction, JobScheduleSpec, TaskAction, parse_spec
from slotkeeper.store.versions import OwnerVersion, StoredVersion
from slotkeeper.store.worker import TRIGGERS, ClaimedRow, WorkerStore
from slotkeeper.timing import Timing, timing

_KEPT = 50_000
#: Kinds of owner, as the migration names them.
_MANUAL, _RE_RUN = 1, 2


class Action:
    """What a version of a schedule says about running it: everything a worker needs beside the row."""

    def __init__(self, stored: StoredVersion) -> None:
        self._stored = stored
        self.spec: JobScheduleSpec = parse_spec(stored.spec)
        action = self.spec.action
        self.kind = (
            "task" if isinstance(action, TaskAction) else "command" if isinstance(action, CommandAction) else "other"
        )
        self.task = action.task if isinstance(action, TaskAction) else self.kind
        self.arguments: Sequence[str] = action.arguments if isinstance(action, CommandAction) else ()
        self.attempt_deadline = self.spec.attempt_deadline_seconds
        self.active_deadline = self.spec.active_deadline_seconds
        self.payload = stored.payload
        self.namespace = stored.namespace
        self.schedule: str | None = f"{stored.namespace}/{stored.name}"
        self._key = ("" if stored.cluster == "default" else f"{stored.cluster}/") + self.schedule

    @cached_property
    def timing(self) -> Timing:
        """Compiled when a handler first asks for its neighbours, or when a start is limited."""
        return timing(self._stored.namespace, self._stored.name, self.spec)

    @cached_property
    def start_within(self) -> timedelta | None:
        """After its due time a run must not start for the first time."""
        if self.spec.starting_deadline_seconds is None and self.spec.catch_up.policy != "Skip":
            return None
        return self.timing.catch_up.start_within

    def idempotency_key(self, run: Run) -> str:
        """``namespace/name@slot``; ``#triggerkey`` for a manual run; ``@slot#n`` for a re-run."""
        if run.slot is None or self._stored.kind == _MANUAL:
            return f"{self._key}#{self._stored.label}"
        key = f"{self._key}@{rfc3339(run.slot)}"
        return f"{key}#{self._stored.label}" if self._stored.kind == _RE_RUN else key

    def late_seconds(self, run: Run) -> float:
        """From the due time of the run to its claim."""
        due = run.run_at if run.slot is None else run.slot
        if self.spec.spread_seconds and run.slot is not None:
            due += self.timing.offset
        return max((run.claimed_at - due).total_seconds(), 0.0)

    def local(self, slot: datetime) -> datetime:
        """``slot`` in the schedule's zone."""
        return self.timing.timetable.local(slot)

    def previous(self, slot: datetime) -> datetime | None:
        """The slot before."""
        return self.timing.timetable.previous(slot)

    def next(self, slot: datetime) -> datetime | None:
        """The slot after."""
        return self.timing.timetable.next(slot)


class AdHocAction(Action):
    """What an ad-hoc row says: its task and payload stand in the row itself, and no time limits it."""

    def __init__(self) -> None:
        self.kind = "task"
        self.arguments = ()
        self.attempt_deadline = self.active_deadline = self.schedule = None
        self.namespace = ""

    def idempotency_key(self, run: Run) -> str:
        """The id of the run: its own key, if it has one, is the enqueuer's."""
        return str(run.id)

    def late_seconds(self, run: Run) -> float:
        """From the time it was due."""
        return max((run.claimed_at - run.run_at).total_seconds(), 0.0)

    @cached_property
    def start_within(self) -> timedelta | None:
        """An ad-hoc run may start at any time."""
        return None


_AD_HOC = AdHocAction()


class UnreadableAction(AdHocAction):
    """A version whose spec this worker does not understand (a newer controller stored it): another worker may."""

    def __init__(self, stored: StoredVersion | None, problem: str) -> None:
        super().__init__()
        self.kind = self.task = "unreadable"
        self.payload = "{}"
        self.problem = problem
        if stored is not None:
            self.namespace, self.schedule = stored.namespace, f"{stored.namespace}/{stored.name}"


class Actions:
    """The actions of the versions that this worker has seen; asks the database for those it has not."""

    def __init__(self) -> None:
        self._known: OrderedDict[OwnerVersion, Action] = OrderedDict()

    async def learn(self, rows: Iterable[ClaimedRow], store: WorkerStore) -> None:
        """Makes sure that every row's action is known. Raises what the database raises."""
        wanted = {(row.owner, row.version) for row in rows if row.owner is not None and row.version is not None}
        missing = wanted - self._known.keys()
        if missing:
            found = await store.versions(missing)
            for key in missing:
                self._known[key] = _read(found.get(key))
        if len(self._known) <= _KEPT:
            return
        for key in wanted:
            self._known.move_to_end(key)
        while len(self._known) > max(_KEPT, len(wanted)):
            self._known.popitem(last=False)

    def of(self, row: ClaimedRow) -> Action:
        """The action of a row that was learned."""
        if row.owner is None or row.version is None:
            return _AD_HOC
        return self._known[row.owner, row.version]


def _read(stored: StoredVersion | None) -> Action:
    if stored is None:
        return UnreadableAction(None, "its version is not stored")
    try:
        action = Action(stored)
        _ = action.start_within  # compiles the timing where a start is limited: the zone may be unknown here
        return action
    except SlotkeeperError as error:
        return UnreadableAction(stored, str(error))


def make_run(row: ClaimedRow, action: Action, token: uuid.UUID, moment: datetime) -> Run:
    """What the handler of ``row`` is told; ``moment`` is the database's time of the claim."""
    return Run(
        row.id,
        row.task or action.task,
        row.slot,
        row.attempt,
        row.charged,
        row.max_attempts,
        TRIGGERS[row.trigger],
        row.run_at,
        moment,
        row.payload or action.payload,
        token,
        action,
    )


def rfc3339(instant: datetime) -> str:
    """``2026-11-30T10:45:00Z``."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

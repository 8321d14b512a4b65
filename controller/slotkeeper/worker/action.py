"""What a run is to do: from a version of a schedule, or from an ad-hoc row. Says what to run; runs nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from slotkeeper.errors import SlotkeeperError
from slotkeeper.sdk import Run
from slotkeeper.spec import CommandAction, JobScheduleSpec, TaskAction, parse_spec
from slotkeeper.store.versions import OwnerVersion, StoredVersion
from slotkeeper.store.worker import ClaimedRow, WorkerStore
from slotkeeper.timing import Timing, timing

_KEPT = 50_000
#: Kinds of owner, as the migration names them.
_MANUAL, _RE_RUN = 1, 2


class Action:
    """What a version of a schedule says about running it: everything a worker needs beside the row.

    ``handler``: the async handler of its task in this worker, set when one is first found; ``quick``: that handler may
    begin without another look at anything. ``late_since_slot``: its slots are due when they come, not some time later.
    """

    handler: Callable[[Run], Any]
    quick: bool = False
    late_since_slot: bool = False

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
        self.late_since_slot = not self.spec.spread_seconds
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
    """What is known of every ad-hoc run of a task: its payload stands in the row, and no time limits it."""

    def __init__(self, task: str) -> None:
        self.kind, self.task = "task", task
        self.arguments = ()
        self.attempt_deadline = self.active_deadline = self.schedule = None
        self.payload = "{}"
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


class UnreadableAction(AdHocAction):
    """A version whose spec this worker does not understand (a newer controller stored it): another worker may."""

    def __init__(self, stored: StoredVersion | None, problem: str) -> None:
        super().__init__("unreadable")
        self.kind = "unreadable"
        self.problem = problem
        if stored is not None:
            self.namespace, self.schedule = stored.namespace, f"{stored.namespace}/{stored.name}"


class Actions:
    """The actions of the versions and ad-hoc tasks that this worker has seen; asks the database for versions that it
    has not.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[OwnerVersion | str, Action] = OrderedDict()

    async def learn(self, rows: Sequence[ClaimedRow], store: WorkerStore) -> list[Action]:
        """The action of each row, in their order. Raises what the database raises."""
        keys: list[OwnerVersion | str] = [
            (row.owner, row.version) if row.owner is not None and row.version is not None else row.task or ""
            for row in rows
        ]
        known = self._known
        try:
            return [known[key] for key in keys]
        except KeyError:
            pass
        missing = set(keys) - known.keys()
        versions = {key for key in missing if isinstance(key, tuple)}
        found = await store.versions(versions) if versions else {}
        fresh = {key: _read(found.get(key)) if isinstance(key, tuple) else AdHocAction(key) for key in missing}
        # A version is not told once the run is lost; the next run of it is ours again.
        known.update({key: action for key, action in fresh.items() if key not in versions or key in found})
        actions = [known.get(key) or fresh[key] for key in keys]
        self._forget([key for key in keys if key in known])
        return actions

    def _forget(self, used: Sequence[OwnerVersion | str]) -> None:
        """What was not used lately, once too many are known."""
        if len(self._known) <= _KEPT:
            return
        for key in used:
            self._known.move_to_end(key)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)


def _read(stored: StoredVersion | None) -> Action:
    if stored is None:
        return UnreadableAction(None, "its version is not stored")
    try:
        action = Action(stored)
        _ = action.start_within  # compiles the timing where a start is limited: the zone may be unknown here
        return action
    except SlotkeeperError as error:
        return UnreadableAction(stored, str(error))


def rfc3339(instant: datetime) -> str:
    """``2026-11-30T10:45:00Z``."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

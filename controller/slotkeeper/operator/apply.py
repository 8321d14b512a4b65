"""Makes the stored schedules equal to objects: the operator's from the API server, `slotkeeper dev`'s from files.

One transaction for every edit, suspension and deletion: lock the row, read the clock, decide every slot up to it
under the old spec, store the new one with the watermark at that instant. So nothing that happens here fires a slot
at once, and no due slot vanishes. No Kubernetes: whether an object with a new UID is really there, the caller's
``confirm`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import structlog

from slotkeeper.decisions import decide_before_edit, timing_of_version
from slotkeeper.errors import (
    DatabaseBusy,
    DatabaseUnavailable,
    InvalidField,
    PermissionMissing,
    SchemaMissing,
    SlotkeeperError,
)
from slotkeeper.operator.accept import Accepted, Refusal, accept, trigger_key_problem
from slotkeeper.operator.applied import Applied, Outcome, in_force, newly_stored, nothing_done
from slotkeeper.operator.errors import KubernetesUnavailable
from slotkeeper.operator.rows import schedule_row
from slotkeeper.spec import Identity, parse_identity, parse_spec, timing_of
from slotkeeper.store import schedules
from slotkeeper.store.connection import Session
from slotkeeper.store.schedules import Key, StoredSchedule
from slotkeeper.store.ticker import DueSchedule, materialise
from slotkeeper.store.versions import StoredVersion

_log = structlog.stdlib.get_logger()

#: New schedules stored in one transaction; an edit has a transaction of its own.
BATCH = 500

Connection: TypeAlias = Any
Confirm: TypeAlias = Callable[[str, str, str], bool]


class Applier:
    """Applies objects of one cluster; for one thread. ``confirm(namespace, name, uid)``: the object with this UID
    is there now.
    """

    def __init__(self, session: Session, cluster: str, confirm: Confirm) -> None:
        self._session = session
        self._cluster = cluster
        self._confirm = confirm
        # Within one generation of one UID the spec cannot change, so it need not be read again.
        self._verdicts: dict[Key, tuple[str, int, Accepted | Refusal]] = {}

    def apply(self, objects: Sequence[Mapping[str, object]]) -> list[Applied]:
        """Stores what differs; one result for each object, in order. What is equal already costs one read.

        Raises DatabaseUnavailable, PermissionMissing or SchemaMissing when no object can be served, InvalidField for
        something that has no name. Applying again what was applied already does nothing. An object that is being
        deleted is gone, whatever finalizer still keeps it.
        """
        verdicts = [self._verdict(obj) for obj in objects]
        stored: dict[Key, StoredSchedule] = {}
        keys = [_key(verdict) for verdict in verdicts]
        for start in range(0, len(keys), BATCH):
            stored |= schedules.find(self._session, self._cluster, keys[start : start + BATCH])
        results: list[Applied | None] = [None] * len(verdicts)
        new: list[int] = []
        for place, verdict in enumerate(verdicts):
            row = stored.get(_key(verdict))
            if _is_being_deleted(objects[place]):
                results[place] = self._retire_early(_identity(verdict))
            elif row is None and isinstance(verdict, Accepted):
                new.append(place)
            elif row is not None and isinstance(verdict, Accepted) and _is_equal(row, verdict):
                results[place] = in_force(Outcome.UNCHANGED, row, verdict)
            else:
                results[place] = self._guarded(verdict, row)
        for start in range(0, len(new), BATCH):
            places = new[start : start + BATCH]
            accepted = [verdict for place in places if isinstance(verdict := verdicts[place], Accepted)]
            for place, result in zip(places, self._store_new(accepted), strict=True):
                results[place] = result
        return [result for result in results if result is not None]

    def retire(self, namespace: str, name: str, uid: str | None = None) -> bool:
        """The object is gone: decides what was due, leaves a tombstone and cancels its runs.

        False: nothing is stored of it, or only of another UID. Raises DatabaseBusy when it must be tried again.
        """
        self._verdicts.pop((namespace, name), None)
        with self._session.transaction() as connection:
            row = schedules.lock(connection, self._cluster, [(namespace, name)]).get((namespace, name))
            if row is None or row.retired or uid not in (None, row.uid):
                return False
            self._decide_due(connection, row)
            return schedules.retire(connection, row)

    def _retire_early(self, identity: Identity) -> Applied:
        try:
            self.retire(identity.namespace, identity.name, identity.uid)
        except DatabaseBusy as error:
            return nothing_done(identity, Outcome.BUSY, problem=str(error))
        return nothing_done(identity, Outcome.STALE)

    def unwatch(self, namespace: str, name: str) -> bool:
        """Its namespace is no longer watched: no new slots, nothing is cancelled. Raises DatabaseBusy like
        ``retire``.
        """
        self._verdicts.pop((namespace, name), None)
        with self._session.transaction() as connection:
            row = schedules.lock(connection, self._cluster, [(namespace, name)]).get((namespace, name))
            if row is None or row.retired or row.unwatched:
                return False
            self._decide_due(connection, row)
            schedules.unwatch(connection, row)
            return True

    def _verdict(self, obj: Mapping[str, object]) -> Accepted | Refusal:
        identity = parse_identity(obj)
        key = (identity.namespace, identity.name)
        known = self._verdicts.get(key)
        if known is not None and identity.uid and known[:2] == (identity.uid, identity.generation):
            return _with_identity(known[2], identity)
        verdict = accept(obj)
        if identity.uid:
            self._verdicts[key] = (identity.uid, identity.generation, verdict)
        return verdict

    def _store_new(self, accepted: Sequence[Accepted]) -> list[Applied]:
        try:
            return self._store_all(accepted)
        except (DatabaseUnavailable, PermissionMissing, SchemaMissing):
            raise
        except SlotkeeperError:
            # One of them cannot be stored, or somebody else stores it right now: the others shall not wait for it.
            return [self._guarded(verdict, None) for verdict in accepted]

    def _store_all(self, accepted: Sequence[Accepted]) -> list[Applied]:
        with self._session.transaction() as connection:
            if schedules.lock(connection, self._cluster, [_key(verdict) for verdict in accepted]):
                raise DatabaseBusy("stored by somebody else meanwhile")
            moment = schedules.now(connection)
            schedules.store(
                connection,
                [
                    schedule_row(self._cluster, verdict, moment=moment, since=moment, new_uid=True)
                    for verdict in accepted
                ],
            )
        return [newly_stored(verdict, moment, moment, None) for verdict in accepted]

    def _guarded(self, verdict: Accepted | Refusal, row: StoredSchedule | None) -> Applied:
        """One object in a transaction of its own; only what concerns all objects is raised."""
        try:
            if isinstance(verdict, Refusal):
                return self._refuse(verdict, row)
            return self._edit(verdict, row)
        except (DatabaseUnavailable, PermissionMissing, SchemaMissing, KubernetesUnavailable):
            raise
        except SlotkeeperError as error:
            return nothing_done(_identity(verdict), Outcome.BUSY, problem=str(error))

    def _edit(self, verdict: Accepted, seen: StoredSchedule | None) -> Applied:
        schedule = verdict.schedule
        if seen is not None and _is_older(schedule, seen):
            return nothing_done(schedule, Outcome.STALE)
        doubtful = seen is not None and _needs_confirmation(schedule, seen)
        if doubtful and not self._confirm(schedule.namespace, schedule.name, schedule.uid):
            return nothing_done(schedule, Outcome.STALE)
        with self._session.transaction() as connection:
            row = schedules.lock(connection, self._cluster, [_key(verdict)]).get(_key(verdict))
            if row is None:
                moment = schedules.now(connection)
                schedules.store(
                    connection,
                    [schedule_row(self._cluster, verdict, moment=moment, since=moment, new_uid=True)],
                )
                return newly_stored(verdict, moment, moment, None)
            if _is_older(schedule, row):
                return nothing_done(schedule, Outcome.STALE)
            if _needs_confirmation(schedule, row) and not doubtful:
                raise DatabaseBusy("stored by somebody else meanwhile")
            return self._store_edit(connection, verdict, row)

    def _store_edit(self, connection: Connection, verdict: Accepted, row: StoredSchedule) -> Applied:
        schedule = verdict.schedule
        new_uid = row.retired or row.uid != schedule.uid
        if not new_uid and not _moves_anything(row, verdict):
            moment, timing_since = row.watermark, row.timing_since
            changed = False
        else:
            old = self._version(connection, row)
            self._decide_due(connection, row, old)
            if new_uid and not row.retired:
                schedules.retire(connection, row)
            changed = new_uid or row.unwatched or row.suspended != schedule.suspend or not _same_timing(old, verdict)
            moment = row.moment
            timing_since = moment if changed else row.timing_since
        since = max(row.watermark, moment)
        schedules.store(
            connection,
            [schedule_row(self._cluster, verdict, moment=moment, since=since, new_uid=new_uid, timing_changed=changed)],
        )
        stored = newly_stored(verdict, since, timing_since, row)
        if new_uid or schedule.trigger_key is None:
            return stored
        return replace(stored, triggered=self._trigger(connection, row, schedule))

    def _refuse(self, refusal: Refusal, seen: StoredSchedule | None) -> Applied:
        """The last valid generation stays in force; only ``suspend`` and the trigger annotation are heard."""
        identity = refusal.identity
        nothing = nothing_done(identity, Outcome.REFUSED, refusal=refusal)
        if seen is None or seen.retired:
            return nothing
        if _is_older(identity, seen):
            return nothing_done(identity, Outcome.STALE)
        if seen.uid != identity.uid:
            if not self._confirm(identity.namespace, identity.name, identity.uid):
                return nothing_done(identity, Outcome.STALE)
            self.retire(identity.namespace, identity.name, seen.uid)
            return nothing
        with self._session.transaction() as connection:
            row = schedules.lock(connection, self._cluster, [seen.key]).get(seen.key)
            if row is None or row.retired or row.uid != identity.uid or row.generation > identity.generation:
                raise DatabaseBusy("stored by somebody else meanwhile")
            return self._keep(connection, refusal, row)

    def _keep(self, connection: Connection, refusal: Refusal, row: StoredSchedule) -> Applied:
        version = self._version(connection, row)
        try:
            spec, timing = parse_spec(version.spec), timing_of_version(version)
        except InvalidField:
            # Nor can what is stored be read here: nothing is in force, and the rows that are there stay.
            nothing = nothing_done(refusal.identity, Outcome.REFUSED, refusal=refusal)
            return replace(nothing, triggered=self._trigger(connection, row, refusal.identity))
        suspended = spec.suspend or refusal.identity.suspend
        next_slot, since = row.next_slot, row.timing_since
        if suspended != row.suspended or row.unwatched:
            self._decide_due(connection, row, version)
            next_slot = None if suspended else timing.next_slot(max(row.watermark, row.moment))
            schedules.suspend(
                connection, row, suspended=suspended, next_slot=next_slot, next_due=timing.due_time(next_slot)
            )
            since = row.moment
        return Applied(
            namespace=row.namespace,
            name=row.name,
            uid=row.uid,
            generation=refusal.identity.generation,
            outcome=Outcome.REFUSED,
            refusal=refusal,
            accepted_generation=row.generation,
            effective_time=since,
            created_at=row.created_at,
            next_slot=None if row.held else next_slot,
            suspended=suspended,
            held=row.held,
            spec=spec,
            timing=timing,
            triggered=self._trigger(connection, row, refusal.identity),
        )

    def _trigger(self, connection: Connection, row: StoredSchedule, identity: Identity) -> str | None:
        """Makes the manual run that the annotation asks for; returns its key if this was the first time."""
        key = identity.trigger_key
        if key is None or key == row.trigger_key:
            return None
        problem = trigger_key_problem(key)
        if problem is not None:
            _log.warning("trigger_refused", namespace=row.namespace, name=row.name, problem=problem)
            return None
        return key if schedules.trigger(connection, row, key) else None

    def _decide_due(self, connection: Connection, row: StoredSchedule, version: StoredVersion | None = None) -> None:
        """Every slot in (watermark, moment] under the stored spec. Raises DatabaseBusy when its runs are held by
        somebody.
        """
        if not row.active:
            return
        version = version or self._version(connection, row)
        try:
            timing = timing_of_version(version)
        except InvalidField as error:
            # Our tz database lacks its zone, or a newer version stored it. Its slots cannot be known; that must not
            # stop the edit that mends it, nor its deletion.
            _log.error(
                "slots_undecided",
                schedule=f"{row.namespace}/{row.name}",
                after=row.watermark.isoformat(),
                until=row.moment.isoformat(),
                error=str(error),
            )
            return
        due = DueSchedule(row.id, row.owner, row.version, row.watermark, row.moment)
        if materialise(connection, [decide_before_edit(due, timing)]):
            raise DatabaseBusy("its runs are held by somebody")

    @staticmethod
    def _version(connection: Connection, row: StoredSchedule) -> StoredVersion:
        return schedules.versions(connection, [row.owner_version])[row.owner_version]


def _is_being_deleted(obj: Mapping[str, object]) -> bool:
    metadata = obj["metadata"]
    return isinstance(metadata, Mapping) and bool(metadata.get("deletionTimestamp"))


def _identity(verdict: Accepted | Refusal) -> Identity:
    return verdict.schedule if isinstance(verdict, Accepted) else verdict.identity


def _key(verdict: Accepted | Refusal) -> Key:
    identity = _identity(verdict)
    return identity.namespace, identity.name


def _with_identity(verdict: Accepted | Refusal, identity: Identity) -> Accepted | Refusal:
    if isinstance(verdict, Refusal):
        return replace(verdict, identity=identity)
    schedule = replace(verdict.schedule, trigger_key=identity.trigger_key, resource_version=identity.resource_version)
    return replace(verdict, schedule=schedule)


def _is_older(identity: Identity, row: StoredSchedule) -> bool:
    """Generations are compared only within one UID; objects from files have neither."""
    return bool(identity.uid) and identity.uid == row.uid and identity.generation < row.generation


def _needs_confirmation(identity: Identity, row: StoredSchedule) -> bool:
    """What was read before a deletion must not bring a schedule back, nor replace its successor."""
    return row.retired or row.uid != identity.uid


def _moves_anything(row: StoredSchedule, verdict: Accepted) -> bool:
    return row.spec_hash != verdict.spec_hash or row.unwatched or row.suspended != verdict.schedule.suspend


def _is_equal(row: StoredSchedule, verdict: Accepted) -> bool:
    schedule = verdict.schedule
    key = schedule.trigger_key
    return (
        not row.retired
        and row.uid == schedule.uid
        and row.generation == schedule.generation
        and not _moves_anything(row, verdict)
        and (key is None or key == row.trigger_key or trigger_key_problem(key) is not None)
    )


def _same_timing(old: StoredVersion, verdict: Accepted) -> bool:
    return timing_of(parse_spec(old.spec)) == timing_of(verdict.schedule.spec)

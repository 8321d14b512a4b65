"""Level-triggered: applies what is dirty, and everything at start, on promotion and every few minutes.

Only the leader's syncer writes. Before its first write it makes sure that this is the cluster which the database
knows by this name.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from slotkeeper.actor import Actor
from slotkeeper.errors import DatabaseBusy
from slotkeeper.operator.applied import Applied, Outcome
from slotkeeper.operator.apply import Applier
from slotkeeper.operator.dirty import Change, DirtyKeys
from slotkeeper.operator.errors import AnotherCluster, KubernetesForbidden, LeadershipLost
from slotkeeper.operator.leadership import Leadership
from slotkeeper.operator.permissions import needed
from slotkeeper.operator.resync import FullResync, ResyncReport, scopes_of, shown
from slotkeeper.operator.status import StatusWriter
from slotkeeper.store.connection import Session
from slotkeeper.store.schedules import Key, bind_cluster

if TYPE_CHECKING:
    from slotkeeper.operator.kubernetes_gateway import KubernetesGateway, Object

_log = structlog.stdlib.get_logger()

#: Seconds between looks at the dirty keys; a change wakes it at once.
STEP_SECONDS = 0.2
#: Seconds between looks at whether somebody else still leads.
FOLLOWER_SECONDS = 1.0
#: Changes applied before leadership is confirmed again.
BATCH = 500
#: Seconds until a list that failed is tried again: doubled from the first to the last.
RETRY_SECONDS, LAST_RETRY_SECONDS = 15.0, 60.0
#: Seconds between a full resync that found too much missing and the one that may believe it.
BRAKED_SECONDS = 30.0
#: Seconds between a full resync and one that follows it because a watch began anew.
REWATCH_SECONDS = 10.0
#: A watch that has told of no object of its first list for so long (seconds) has told of all.
LIST_TOLD_SECONDS = 2.0
#: Seconds between questions whether a right that is missing is there now.
REVIEW_SECONDS = 15.0


class Syncer:
    """Keeps the stored schedules of one cluster equal to its objects, while this process leads."""

    def __init__(
        self,
        dsn: str,
        cluster: str,
        gateway: KubernetesGateway,
        leadership: Leadership,
        statuses: StatusWriter,
        *,
        namespaces: Sequence[str] | None = None,
        adopt: bool = False,
        resync_seconds: float = 300,
    ) -> None:
        self._session = Session(dsn, "syncer")
        self._cluster = cluster
        self._gateway = gateway
        self._leadership = leadership
        self._statuses = statuses
        self._adopt = adopt
        self._resync_seconds = resync_seconds
        self._needed = needed(scopes_of(namespaces))
        self._bound_term = 0
        self._identified = False
        self._stranger: AnotherCluster | None = None
        self._resync_at = self._retry_at = self._review_at = 0.0
        self._resynced_at = float("-inf")
        self._rewatched_at: float | None = None
        self._retries = 0
        self._listed_at = dict.fromkeys(map(shown, scopes_of(namespaces)), time.monotonic())
        self.actor = Actor("syncer", self.step, close=self.close)
        self.dirty = DirtyKeys(self.actor.wake)
        self._applier = Applier(self._session, cluster, self._is_there)
        self._resync = FullResync(
            self._session,
            cluster,
            gateway,
            self._applier,
            namespaces,
            applied=self._applied,
            gone=statuses.forget,
            may_write=leadership.require,
        )
        #: The report of the last full resync that ran to its end, with what was tried again since; None before the
        #: first.
        self.last_resync: ResyncReport | None = None

    def mark(self, namespace: str, name: str, uid: str, body: Mapping[str, Any] | None) -> None:
        """For the pump: the object changed, or is gone (None)."""
        self.dirty.mark((namespace, name), uid, body)

    def watch_began(self) -> None:
        """For the pump: a watch began with a list, so deletions before it were missed; a resync finds them soon."""
        self._rewatched_at = time.monotonic()

    def step(self) -> float:
        """One round; returns the seconds to wait before the next."""
        try:
            if not self._leadership.confirm():
                self._follow()
                self._review()
                return FOLLOWER_SECONDS
            if self._bound_term != self._leadership.term:
                self._bind()
            self._review()
            if self._is_resync_due(time.monotonic()):
                self.resync()
            elif self.last_resync is not None and self.last_resync.failed and time.monotonic() >= self._retry_at:
                self._retry(self.last_resync)
            self._apply_dirty()
        except LeadershipLost:
            self._follow()
            return FOLLOWER_SECONDS
        return STEP_SECONDS

    def close(self) -> None:
        """Closes the connection; by the actor at its end, or by whoever never started it."""
        self._session.close()

    def resync(self) -> ResyncReport:
        """A full resync now; the next one follows after the usual time, a list that failed is tried again sooner."""
        self._resynced_at = time.monotonic()
        self._resync_at = self._resynced_at + RETRY_SECONDS
        self._rewatched_at = None  # before the lists: a watch that begins beside them is younger than they
        report = self._resync.run()
        self.last_resync = report
        # A second look soon, where the first was not believed: until then a schedule that is gone goes on.
        self._resync_at = self._resynced_at + (BRAKED_SECONDS if report.braked else self._resync_seconds)
        self._retries = 0
        self._note(report)
        return report

    def _is_resync_due(self, now: float) -> bool:
        if now >= self._resync_at:
            return True
        # A watch tells of every object of its list that it began; one resync, after the last of them, is enough.
        watch = self._rewatched_at
        return watch is not None and now >= max(watch + LIST_TOLD_SECONDS, self._resynced_at + REWATCH_SECONDS)

    def _retry(self, before: ResyncReport) -> None:
        """The lists that failed, again; the others are not touched."""
        report = self._resync.run(before.failed.keys())
        for scope, count in before.braked.items():
            if scope not in before.failed:
                report.braked.setdefault(scope, count)
        self.last_resync = report
        if report.braked:
            self._resync_at = min(self._resync_at, time.monotonic() + BRAKED_SECONDS)
        self._retries += 1
        self._note(report)

    def _note(self, report: ResyncReport) -> None:
        now = time.monotonic()
        self._retry_at = now + min(LAST_RETRY_SECONDS, RETRY_SECONDS * 2.0 ** min(self._retries, 10))
        for scope in report.believed:
            self._listed_at[scope] = now
        _log.info(
            "resync",
            listed=report.listed,
            retired=len(report.retired),
            unwatched=len(report.unwatched),
            failed=sorted(report.failed),
            braked=sorted(report.braked),
        )

    @property
    def resync_ages(self) -> dict[str, float]:
        """Seconds since each scope was last listed and what is missing from it retired, or since the process began."""
        now = time.monotonic()
        return {scope: now - listed_at for scope, listed_at in self._listed_at.items()}

    def _review(self) -> None:
        """Asks again for what is missing, so that it is used soon after it was granted, and not tried before."""
        missing = self._gateway.permissions.missing
        if not missing or time.monotonic() < self._review_at:
            return
        self._review_at = time.monotonic() + REVIEW_SECONDS
        self._gateway.review(missing)
        if self._leadership.leads and not self._identified:
            self._identify()
        if set(missing) - set(self._gateway.permissions.missing):
            self._resync_at = 0.0  # what could not be done is done now

    def _follow(self) -> None:
        self.dirty.clear()
        self._statuses.clear()

    def _bind(self) -> None:
        self._identified = False
        self._identify()
        self._gateway.review(self._needed)
        self._bound_term = self._leadership.term
        self._resync_at = 0.0

    def _identify(self) -> None:
        if self._stranger is not None and time.monotonic() < self._review_at:
            raise self._stranger
        self._stranger = None
        try:
            identity = self._gateway.cluster_identity()
        except KubernetesForbidden as error:
            # Not a right that is worth standing still for, if the objects themselves say which cluster this is.
            # Within a term that is bound this says nothing new: objects that were made anew are not known yet.
            if self._bound_term == self._leadership.term or self._adopt or self._resync.recognises():
                return
            self._review_at = time.monotonic() + REVIEW_SECONDS
            self._stranger = AnotherCluster(
                f"cannot tell whether this is the cluster {self._cluster!r} of the database, because no object here is "
                "known there: grant get on the namespace kube-system, or take the schedules over with --adopt"
            )
            raise self._stranger from error
        bound = bind_cluster(self._session, self._cluster, identity, adopt=self._adopt)
        if bound != identity:
            raise AnotherCluster(
                f"the cluster name {self._cluster!r} is bound to the cluster {bound}, and this one is {identity}: "
                "give it a name of its own with --cluster-name, or take the schedules over with --adopt"
            )
        self._identified = True

    def _apply_dirty(self) -> None:
        while changes := self.dirty.take(BATCH):
            try:
                self._leadership.require()
                self._apply(changes)
            except BaseException:
                # Nothing of a batch is lost: what was applied already is found to be equal the next time.
                for key, change in changes.items():
                    self.dirty.put_back(key, change)
                raise

    def _apply(self, changes: Mapping[Key, Change]) -> None:
        for key, change in changes.items():
            if change.body is None:
                self._retire(key, change)
        present = [(key, change, change.body) for key, change in changes.items() if change.body is not None]
        results = self._applier.apply([body for _, _, body in present])
        for result, (key, change, body) in zip(results, present, strict=True):
            if result.outcome is Outcome.BUSY:
                _log.info("apply_later", namespace=key[0], name=key[1], problem=result.problem)
                self.dirty.put_back(key, change)
            else:
                self._tell(result, body)

    def _retire(self, key: Key, change: Change) -> None:
        try:
            if self._applier.retire(*key, change.uid):
                _log.info("retired", namespace=key[0], name=key[1], uid=change.uid)
            self._statuses.forget(key, change.uid)
        except DatabaseBusy as error:
            _log.info("retire_later", namespace=key[0], name=key[1], problem=str(error))
            self.dirty.put_back(key, change)

    def _applied(self, result: Applied, obj: Object) -> None:
        """For the resync: a result that has to be tried again becomes dirty."""
        if result.outcome is Outcome.BUSY:
            self.dirty.mark((result.namespace, result.name), result.uid, obj)
        else:
            self._tell(result, obj)

    def _tell(self, result: Applied, obj: Object) -> None:
        if result.outcome is Outcome.STALE:
            return
        news = self._statuses.update(result, obj)
        if result.outcome is Outcome.STORED or (news and result.refusal is not None):
            _log.info(
                result.outcome.value,
                namespace=result.namespace,
                name=result.name,
                generation=result.generation,
                refusal=None if result.refusal is None else result.refusal.message,
                triggered=result.triggered,
            )

    def _is_there(self, namespace: str, name: str, uid: str) -> bool:
        found = self._gateway.get(namespace, name)
        if found is None or found["metadata"].get("deletionTimestamp"):
            return False
        return bool(found["metadata"]["uid"] == uid)

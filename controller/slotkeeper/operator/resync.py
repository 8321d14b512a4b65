"""The full resync: lists what exists, applies what differs, and retires what the watch did not see vanish.

Because it may retire, it believes nobody: only rows of its own cluster, in namespaces that it watches and whose list
succeeded, each confirmed by a GET that answers 404; and when suspiciously many are missing, it does nothing until a
second pass has given the same answer. A wrong role binding or namespace shows as an empty list, not as an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from slotkeeper.errors import DatabaseBusy
from slotkeeper.operator.applied import Applied
from slotkeeper.operator.apply import Applier
from slotkeeper.operator.errors import KubernetesError, KubernetesForbidden, KubernetesUnavailable
from slotkeeper.store import schedules
from slotkeeper.store.connection import Session
from slotkeeper.store.schedules import Key, StoredSchedule

if TYPE_CHECKING:
    from slotkeeper.operator.kubernetes_gateway import KubernetesGateway, Object

_log = structlog.stdlib.get_logger()

#: So many missing schedules of one list are believed at once; so is this share of them.
BRAKE_COUNT, BRAKE_SHARE = 3, 0.2


@dataclass(slots=True)
class ResyncReport:
    """What one pass did. ``failed``, ``braked`` and ``believed`` name scopes: a namespace, or ``*`` for all of them."""

    listed: int = 0
    retired: list[Key] = field(default_factory=list)
    unwatched: list[Key] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    braked: dict[str, int] = field(default_factory=dict)
    believed: list[str] = field(default_factory=list)


class FullResync:
    """One cluster's. ``namespaces`` None: all of them.

    ``applied`` is told every result with its object, ``gone`` every key that was retired or is no longer watched;
    ``may_write`` raises when this process is no longer the one to write.
    """

    def __init__(
        self,
        session: Session,
        cluster: str,
        gateway: KubernetesGateway,
        applier: Applier,
        namespaces: Sequence[str] | None,
        *,
        applied: Callable[[Applied, Object], None],
        gone: Callable[[Key], None],
        may_write: Callable[[], None],
    ) -> None:
        self._session = session
        self._cluster = cluster
        self._gateway = gateway
        self._applier = applier
        self._scopes = scopes_of(namespaces)
        self._applied = applied
        self._gone = gone
        self._may_write = may_write
        self._suspects: dict[str | None, frozenset[tuple[Key, str]]] = {}

    def run(self, only: Collection[str] | None = None) -> ResyncReport:
        """One pass over every scope, or over those whose shown names are in ``only``.

        Raises what concerns all scopes: a database that is away, or leadership that has ended.
        """
        report = ResyncReport()
        # Read before the lists: what is stored later is not missing from them.
        stored = schedules.stored_schedules(self._session, self._cluster)
        silent: KubernetesUnavailable | None = None
        for scope in self._scopes:
            if only is not None and shown(scope) not in only:
                continue
            try:
                if silent is not None:
                    # Each would take minutes to find out what the last one did.
                    raise silent
                self._sync_scope(scope, [row for row in stored if scope in (None, row.namespace)], report)
            except KubernetesError as error:
                if isinstance(error, KubernetesUnavailable) and error.status == 0:
                    silent = error
                self._suspects.pop(scope, None)
                report.failed[shown(scope)] = str(error)
                # Of a missing right `permissions` has told.
                tell = _log.info if isinstance(error, KubernetesForbidden) else _log.warning
                tell("list_failed", namespace=shown(scope), error=str(error))
        if only is None and None not in self._scopes:
            self._unwatch((row for row in stored if row.namespace not in self._scopes), report)
        return report

    def recognises(self) -> bool:
        """Whether an object that exists now is stored with its UID, or nothing is stored at all: what another cluster
        made cannot be overwritten then.
        """
        known = {row.uid for row in schedules.stored_schedules(self._session, self._cluster)}
        if not known:
            return True
        for scope in self._scopes:
            try:
                for page in self._gateway.list_objects(scope):
                    if any(obj["metadata"]["uid"] in known for obj in page):
                        return True
            except KubernetesForbidden:
                continue
        return False

    def _sync_scope(self, scope: str | None, stored: Sequence[StoredSchedule], report: ResyncReport) -> None:
        listed: set[Key] = set()
        try:
            self._apply_pages(scope, listed)
        except KubernetesError as error:
            # The rest of the pages has gone, and a list that breaks off says nothing of what is missing.
            if error.status != 410:
                raise
            listed.clear()
            self._apply_pages(scope, listed)
        report.listed += len(listed)
        missing = [row for row in stored if row.key not in listed]
        if self._believes(scope, missing, stored=len(stored), listed=len(listed), report=report):
            self._retire(missing, report)
            report.believed.append(shown(scope))

    def _apply_pages(self, scope: str | None, listed: set[Key]) -> None:
        # Page by page, so that not every object is in memory at once.
        for page in self._gateway.list_objects(scope):
            self._may_write()
            for result, obj in zip(self._applier.apply(page), page, strict=True):
                listed.add((result.namespace, result.name))
                self._applied(result, obj)

    def _believes(
        self,
        scope: str | None,
        missing: Sequence[StoredSchedule],
        *,
        stored: int,
        listed: int,
        report: ResyncReport,
    ) -> bool:
        suspects = frozenset((row.key, row.uid) for row in missing)
        before = self._suspects.pop(scope, None)
        suspicious = len(missing) > max(BRAKE_COUNT, BRAKE_SHARE * stored) or (missing and not listed)
        if not suspicious or suspects == before:
            return True
        self._suspects[scope] = suspects
        report.braked[shown(scope)] = len(missing)
        _log.warning(
            "resync_braked",
            namespace=shown(scope),
            missing=len(missing),
            stored=stored,
            listed=listed,
            hint="retires nothing until a second pass gives the same answer; check role binding and --namespaces",
        )
        return False

    def _retire(self, missing: Iterable[StoredSchedule], report: ResyncReport) -> None:
        for row in missing:
            found = self._gateway.get(row.namespace, row.name)
            if found is not None:
                # Made after the list, or a list that cannot be trusted; either way it is there.
                self._may_write()
                self._applied(self._applier.apply([found])[0], found)
                continue
            self._may_write()
            try:
                if self._applier.retire(row.namespace, row.name, row.uid):
                    report.retired.append(row.key)
                    _log.info("retired", namespace=row.namespace, name=row.name, uid=row.uid)
                self._gone(row.key)
            except DatabaseBusy as error:
                _log.info("retire_later", namespace=row.namespace, name=row.name, error=str(error))

    def _unwatch(self, rows: Iterable[StoredSchedule], report: ResyncReport) -> None:
        for row in rows:
            if row.unwatched:
                continue
            self._may_write()
            try:
                if self._applier.unwatch(row.namespace, row.name):
                    report.unwatched.append(row.key)
                    _log.warning("unwatched", namespace=row.namespace, name=row.name)
                self._gone(row.key)
            except DatabaseBusy as error:
                _log.info("unwatch_later", namespace=row.namespace, name=row.name, error=str(error))


def scopes_of(namespaces: Sequence[str] | None) -> list[str | None]:
    """What is listed and watched apart: each namespace, or None for the whole cluster."""
    return [None] if namespaces is None else [*sorted(set(namespaces))]


def shown(scope: str | None) -> str:
    """A scope as logs and metrics name it."""
    return scope or "*"

"""Kubernetes Events about a JobSchedule: an invalid spec, dead runs, slots that did not run.

For ``kubectl describe`` and whoever collects Events; never the record of anything, which is the database. Each is
told once: its name is made from what it tells, so that another process, or this one after a restart, finds it there
already. What happens again and again to one object (dead runs, skipped slots) is one Event that counts.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import structlog

from slotkeeper.operator.applied import Applied
from slotkeeper.operator.conditions import rfc3339
from slotkeeper.operator.errors import KubernetesError, KubernetesForbidden, KubernetesUnavailable
from slotkeeper.operator.permissions import EVENTS, Permission
from slotkeeper.operator.rate import TokenBucket
from slotkeeper.reasons import why_no_run
from slotkeeper.spec import API_VERSION, KIND
from slotkeeper.store.schedules import Health
from slotkeeper.timetable import TZDATA_VERSION

if TYPE_CHECKING:
    from slotkeeper.operator.kubernetes_gateway import KubernetesGateway

_log = structlog.stdlib.get_logger()

#: Events a second over all objects; what is beyond them is not told.
RATE, BURST = 5.0, 50.0
#: Seconds between Events of one object with one reason, other than a new invalid spec.
QUIET_SECONDS = 600.0
#: Seconds without another try after the API server did not answer, which takes minutes to find out.
AWAY_SECONDS = 60.0
_REMEMBERED = 10_000
_LONGEST_NOTE, _LONGEST_NAME = 1000, 220
#: The annotation of an Event that says which failure, slot or generation it tells last.
_ABOUT = "slotkeeper.dev/about"


class EventRecorder:
    """For one thread."""

    def __init__(self, gateway: KubernetesGateway, clock: Callable[[], float]) -> None:
        self._gateway = gateway
        self._clock = clock
        self._bucket = TokenBucket(RATE, BURST, clock)
        self._away_until = float("-inf")
        self._told: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._moved: deque[tuple[Applied, str]] = deque()
        self._told_at: OrderedDict[tuple[str, str], float] = OrderedDict()

    def tell_refusal(self, applied: Applied) -> None:
        """The newest spec is refused: once per generation."""
        if applied.refusal is not None:
            self._tell(applied, applied.refusal.reason, str(applied.generation), applied.refusal.message)

    def tell_outcomes(self, applied: Applied, before: Health, after: Health) -> None:
        """What has happened between two reads: runs that died, slots that did not run."""
        if after.dead_runs > before.dead_runs and self._was_quiet(applied, "RunDead"):
            many = f"{after.dead_runs} on the dead-letter list"
            self._tell(applied, "RunDead", _about(after.last_failure_at), f"a run is dead ({many})", counts=True)
        if (
            after.last_skip_slot is not None
            and after.last_skip_at != before.last_skip_at
            and self._was_quiet(applied, "SlotSkipped")
        ):
            slot = rfc3339(after.last_skip_slot)
            note = f"the slot {slot} did not run: {why_no_run(after.last_skip_reason)}"
            self._tell(applied, "SlotSkipped", slot, note, counts=True)

    def tell_zone_change(self, applied: Applied, sentence: str) -> None:
        """Slots lie elsewhere by the tz database in use: once per release. A fleet of them is told bit by bit."""
        self._moved.append((applied, sentence))
        self.tell_waiting()

    def tell_waiting(self) -> None:
        """What could not be told yet for the rate."""
        while self._moved and self._tell(self._moved[0][0], "SlotsMoved", TZDATA_VERSION, self._moved[0][1]):
            self._moved.popleft()

    def _was_quiet(self, applied: Applied, reason: str) -> bool:
        key, now = (applied.uid, reason), self._clock()
        if now - self._told_at.get(key, float("-inf")) < QUIET_SECONDS:
            return False
        self._told_at[key] = now
        self._told_at.move_to_end(key)
        while len(self._told_at) > _REMEMBERED:
            self._told_at.popitem(last=False)
        return True

    def _tell(self, applied: Applied, reason: str, about: str, note: str, *, counts: bool = False) -> bool:
        """False: not told yet, because too many were, or the API server is away.

        ``counts``: if there is one of this reason, it counts one more.
        """
        key = (applied.uid, reason, about)
        if key in self._told or self._gateway.permissions.is_missing(Permission("create", EVENTS, applied.namespace)):
            return True
        if self._clock() < self._away_until or not self._bucket.take():
            return False
        self._told[key] = None
        while len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        event = _event(applied, reason, about, key[:2] if counts else key, note)
        try:
            if not self._gateway.create_event(applied.namespace, event) and counts:
                self._count(applied.namespace, event)
        except KubernetesError as error:
            if isinstance(error, KubernetesForbidden | KubernetesUnavailable):
                self._told.pop(key, None)
            _log.info("event_not_told", namespace=applied.namespace, name=applied.name, error=str(error))
            if isinstance(error, KubernetesUnavailable):
                self._away_until = self._clock() + AWAY_SECONDS
                return False
        return True

    def _count(self, namespace: str, event: Mapping[str, Any]) -> None:
        """One more of what an Event tells already, unless it tells just this one."""
        metadata = event["metadata"]
        there = self._gateway.patch_event(namespace, metadata["name"], {})
        if there is None or there["metadata"].get("annotations") == metadata["annotations"]:
            return
        change = {
            "metadata": {
                "resourceVersion": there["metadata"]["resourceVersion"], "annotations": metadata["annotations"],
            },
            "message": event["message"],
            "lastTimestamp": event["lastTimestamp"],
            "count": (there.get("count") or 1) + 1,
        }  # fmt: skip
        self._gateway.patch_event(namespace, metadata["name"], change)


def _event(
    applied: Applied, reason: str, about: str, key: Sequence[str], note: str,
    kind: Literal["Normal", "Warning"] = "Warning",
) -> dict[str, object]:  # fmt: skip
    """``key`` makes the name, and so which Events are one."""
    # The API server's Events carry the teller's time, not the database's.
    now = rfc3339(datetime.now(UTC))
    digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{applied.name[:_LONGEST_NAME].rstrip('-.')}.{digest}",
            "namespace": applied.namespace,
            "annotations": {_ABOUT: about},
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": applied.namespace,
            "name": applied.name,
            "uid": applied.uid,
        },
        "reason": reason,
        "message": note if len(note) <= _LONGEST_NOTE else note[: _LONGEST_NOTE - 1] + "…",
        "type": kind,
        "source": {"component": "slotkeeper"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _about(instant: datetime | None) -> str:
    return "" if instant is None else rfc3339(instant)

"""Kubernetes Events about a JobSchedule: an invalid spec, dead runs, slots that did not run.

For ``kubectl describe`` and whoever collects Events; never the record of anything, which is the database. Each is
told once: its name is made from what it tells, so that another process, or this one after a restart, finds it there
already.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import structlog

from slotkeeper.operator.applied import Applied
from slotkeeper.operator.conditions import rfc3339
from slotkeeper.operator.errors import KubernetesError
from slotkeeper.operator.rate import TokenBucket
from slotkeeper.spec import API_VERSION, KIND
from slotkeeper.store.schedules import Health

if TYPE_CHECKING:
    from slotkeeper.operator.kubernetes_gateway import KubernetesGateway

_log = structlog.stdlib.get_logger()

#: Events a second over all objects; what is beyond them is not told.
RATE, BURST = 5.0, 50.0
#: Seconds between Events of one object with one reason, other than a new invalid spec.
QUIET_SECONDS = 600.0
_REMEMBERED = 10_000
_LONGEST_NOTE, _LONGEST_NAME = 1000, 220


class EventRecorder:
    """For one thread."""

    def __init__(self, gateway: KubernetesGateway, clock: Callable[[], float]) -> None:
        self._gateway = gateway
        self._clock = clock
        self._bucket = TokenBucket(RATE, BURST, clock)
        self._told: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._told_at: OrderedDict[tuple[str, str], float] = OrderedDict()

    def tell_refusal(self, applied: Applied) -> None:
        """The newest spec is refused: once per generation."""
        if applied.refusal is not None:
            self._tell(applied, applied.refusal.reason, str(applied.generation), applied.refusal.message)

    def tell_outcomes(self, applied: Applied, before: Health, after: Health) -> None:
        """What has happened between two reads: runs that died, slots that did not run."""
        if after.dead_runs > before.dead_runs and self._was_quiet(applied, "RunDead"):
            many = f"{after.dead_runs} on the dead-letter list"
            self._tell(applied, "RunDead", _about(after.last_failure_at), f"a run is dead ({many})")
        if (
            after.last_skip_slot is not None
            and after.last_skip_at != before.last_skip_at
            and self._was_quiet(applied, "SlotSkipped")
        ):
            slot = rfc3339(after.last_skip_slot)
            self._tell(applied, "SlotSkipped", slot, f"the slot {slot} did not run: {after.last_skip_reason}")

    def _was_quiet(self, applied: Applied, reason: str) -> bool:
        key, now = (applied.uid, reason), self._clock()
        if now - self._told_at.get(key, float("-inf")) < QUIET_SECONDS:
            return False
        self._told_at[key] = now
        self._told_at.move_to_end(key)
        while len(self._told_at) > _REMEMBERED:
            self._told_at.popitem(last=False)
        return True

    def _tell(self, applied: Applied, reason: str, about: str, note: str) -> None:
        key = (applied.uid, reason, about)
        if key in self._told or not self._bucket.take():
            return
        self._told[key] = None
        while len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        try:
            self._gateway.create_event(applied.namespace, _event(applied, reason, key, note))
        except KubernetesError as error:
            _log.info("event_not_told", namespace=applied.namespace, name=applied.name, error=str(error))


def _event(
    applied: Applied, reason: str, key: tuple[str, str, str], note: str, kind: Literal["Normal", "Warning"] = "Warning"
) -> dict[str, object]:
    # The API server's Events carry the teller's time, not the database's.
    now = rfc3339(datetime.now(UTC))
    digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{applied.name[:_LONGEST_NAME].rstrip('-.')}.{digest}", "namespace": applied.namespace},
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

"""From an object, as the API server stores it, to a value that can be stored, or to a refusal that a person
understands.

Pure: no Kubernetes, no database, no clock. Shape is judged by `spec`, grammar and zone by `timetable`; here their
findings become the words of a condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from slotkeeper.errors import InvalidField, NotYetSupported, UnknownTimeZone
from slotkeeper.spec import (
    Identity,
    JobSchedule,
    parse_identity,
    parse_object,
    spec_hash,
    unsupported_fields,
)
from slotkeeper.timing import Timing, timing

#: Of an annotation's value: it becomes part of an idempotency key and of a label in the database.
LONGEST_TRIGGER_KEY = 200

RefusalReason = Literal["InvalidSpec", "UnknownTimeZone", "NotYetSupported"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """An object that can be stored: what it says, when its slots are, and the hash of its spec."""

    schedule: JobSchedule
    timing: Timing
    spec_hash: str

    @property
    def resolved_schedule(self) -> str:
        """What decides the slots in one line, for the column SCHEDULE."""
        return self.timing.timetable.resolved

    @property
    def differs_from_vixie_cron(self) -> str | None:
        """A sentence that says where Vixie cron would choose other days, or None."""
        return self.timing.timetable.differs_from_vixie_cron

    def next_slot(self, after: datetime) -> datetime | None:
        """The first slot after an instant; None while suspended or when there is none."""
        return self.timing.next_slot(after)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An object whose newest spec cannot be served. ``field`` is the path of the first field that is wrong.

    ``identity`` is readable all the same: its ``suspend`` is honoured.
    """

    identity: Identity
    reason: RefusalReason
    field: str
    message: str


def accept(obj: Mapping[str, object]) -> Accepted | Refusal:
    """The accepted value of ``obj``, or why it is refused.

    Raises InvalidField only when its metadata has no usable name or namespace, so that it is no object at all.
    """
    identity = parse_identity(obj)
    try:
        schedule = parse_object(obj)
        compiled = timing(schedule.namespace, schedule.name, schedule.spec)
    except UnknownTimeZone as error:
        return Refusal(identity, "UnknownTimeZone", error.field, str(error))
    except NotYetSupported as error:
        return Refusal(identity, "NotYetSupported", error.field, str(error))
    except InvalidField as error:
        return Refusal(identity, "InvalidSpec", error.field, str(error))
    except (ValueError, OverflowError) as error:
        # Only an object that the CRD of this version did not check comes here; it must not stop all the others.
        return Refusal(identity, "InvalidSpec", "spec", f"spec: cannot be read: {error}")
    unsupported = unsupported_fields(schedule.spec)
    if unsupported:
        these = " and ".join(unsupported)
        return Refusal(
            identity,
            "NotYetSupported",
            unsupported[0],
            f"{these}: this version of slotkeeper cannot run it yet; write spec.task or spec.command",
        )
    return Accepted(schedule, compiled, spec_hash(schedule.spec))


def trigger_key_problem(key: str) -> str | None:
    """Why the annotation ``slotkeeper.dev/trigger`` cannot be served, or None."""
    if len(key) > LONGEST_TRIGGER_KEY:
        return f"the key has {len(key)} characters; write at most {LONGEST_TRIGGER_KEY}"
    if not key.isprintable():
        return "the key holds characters that cannot be printed; write letters, digits and signs"
    return None

"""Keeps `health.success_due` true: computes it again for schedules that succeeded, resumed or were edited."""

from __future__ import annotations

from slotkeeper.decisions import timing_of_version
from slotkeeper.errors import InvalidField
from slotkeeper.spec import parse_spec
from slotkeeper.store.connection import Session
from slotkeeper.store.keeper import stale_success_due, store_success_due
from slotkeeper.store.ticker import versions
from slotkeeper.success_due import success_due

#: Schedules computed in one step: about 0.1 s of work.
CHUNK = 500


def refresh_success_due(session: Session, after: int | None = None) -> int | None:
    """One step of a round through all schedules by id; returns after which id the next one begins, None at the end.

    Schedules that this version cannot read are left out, and looked at again in every round.
    """
    stale = stale_success_due(session, after, CHUNK)
    if not stale:
        return None
    stored = versions(session, {(schedule.owner, schedule.version) for schedule in stale})
    computed = []
    for schedule in stale:
        version = stored[schedule.owner, schedule.version]
        try:
            spec, timing = parse_spec(version.spec), timing_of_version(version)
        except InvalidField:
            # The ticker tells which and why. What is stored stays: it is overdue when that passes.
            continue
        due = success_due(
            spec,
            timing,
            last_success=schedule.last_success_at,
            created_at=schedule.created_at,
            timing_since=schedule.timing_since,
        )
        computed.append((schedule, due))
    store_success_due(session, computed)
    return stale[-1].id if len(stale) == CHUNK else None

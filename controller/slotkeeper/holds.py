"""Makes the schedules as the holds want them: without slots while a hold covers them, and with slots again after it.

For the command that sets or removes a hold, which counts when it returns, and for the ticker, which sees to holds that
end by themselves and to what a killed command left undone. The same rule as for every edit: lock, decide what was due
under the old state, then change it. Rows that were made before stay claimable, as under `suspend`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import structlog

from slotkeeper.decisions import decide_before_edit, timing_of_version
from slotkeeper.errors import SlotkeeperError
from slotkeeper.store import holds, schedules
from slotkeeper.store.schedules import StoredSchedule
from slotkeeper.store.ticker import DecidedSchedule, DueSchedule, materialise
from slotkeeper.store.versions import StoredVersion

_log = structlog.stdlib.get_logger()

#: Schedules held in one transaction: each is locked until it ends.
CHUNK = 500


def hold_covered(connection: Any) -> int:
    """Up to CHUNK schedules that a hold covers have no slots from here, in the caller's transaction; how many.

    Left out, for another try: what somebody else has locked, what has runs that are held by somebody, and a schedule
    that this version cannot read (whoever makes slots of it can).
    """
    rows = holds.lock_unheld(connection, CHUNK)
    if not rows:
        return 0
    active = [row for row in rows if row.active]
    versions = schedules.versions(connection, [row.owner_version for row in active]) if active else {}
    decided = [found for row in active if (found := _decided(row, versions[row.owner_version])) is not None]
    left = {row.id for row in active} - {found.id for found in decided}
    if decided:
        left |= materialise(connection, decided)
    return holds.mark_held(connection, [row.id for row in rows if row.id not in left])


def _decided(row: StoredSchedule, version: StoredVersion) -> DecidedSchedule | None:
    try:
        timing = timing_of_version(version)
    except SlotkeeperError as error:
        _log.error("schedule_unreadable", schedule=f"{row.namespace}/{row.name}", error=str(error))
        return None
    due = DueSchedule(row.id, row.owner, row.version, row.watermark, row.moment)
    decided = decide_before_edit(due, timing)
    # Kept for the release; while it is held nobody is shown a next slot.
    return replace(decided, next_slot=timing.next_slot(decided.until))

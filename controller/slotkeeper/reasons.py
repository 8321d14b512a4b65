"""Why a slot did not run, in words for people who do not know ours. Pure; nothing decides by them.

The words that programs read are the reasons themselves, in the tables, in status and in metrics; docs/catch-up.md says
what to do about each.
"""

from __future__ import annotations

from collections.abc import Mapping

#: By the reason of a skipped or superseded slot: the rest of a sentence that begins with "the slot did not run:".
WHY_NO_RUN: Mapping[str, str] = {
    "Superseded": "a newer slot fell due before it had started, and only the newest runs",
    "CatchUpLimit": "more slots waited than catchUp.maxRuns",
    "Late": "it could not start within catchUp.graceSeconds of its due time",
    "StartDeadlineExceeded": "it could not start within startingDeadlineSeconds of its due time",
    "Overlap": "a run of an earlier slot had started and not ended",
}


def why_no_run(reason: str | None) -> str:
    """``Overlap (a run of an earlier slot …)``; a reason of another version stays as it is."""
    words = WHY_NO_RUN.get(reason or "")
    return str(reason) if words is None else f"{reason} ({words})"

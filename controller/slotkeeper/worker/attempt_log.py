"""One structured line per attempt: schedule, slot, attempt, worker, outcome, seconds."""

from __future__ import annotations

import structlog

from slotkeeper.worker.action import rfc3339
from slotkeeper.worker.attempt import Attempt

_log = structlog.stdlib.get_logger()


def outcome_name(attempt: Attempt, became: str) -> str:
    """One word for what came of an attempt; ``became`` as the database says it, or ``already``."""
    outcome = attempt.outcome
    return outcome.kind if outcome is not None and became in ("ready", "already") else became


def log_attempt(worker: str, attempt: Attempt, became: str) -> None:
    """``became``: done, dead, cancelled, ready (it comes back), or fenced."""
    run, outcome = attempt.run, attempt.outcome
    line: dict[str, object] = {
        "schedule": run.schedule,
        "slot": run.slot and rfc3339(run.slot),
        "run": run.id,
        "task": run.task,
        "attempt": run.attempt,
        "worker": worker,
        "outcome": outcome_name(attempt, became),
        "seconds": round(max(attempt.ended - attempt.began, 0.0), 3) if attempt.began else 0.0,
    }
    if outcome is not None and outcome.reason:
        line["error"] = f"{outcome.reason}: {outcome.message}"
    level = (
        _log.info if became == "done" or outcome is None or outcome.kind in ("snoozed", "unstarted") else _log.warning
    )
    level("attempt", **{name: value for name, value in line.items() if value is not None})


def log_refused(worker: str, attempt: Attempt) -> None:
    """The database refused an outcome: another attempt owns the run."""
    _log.warning(
        "outcome_refused", worker=worker, run=attempt.run.id, schedule=attempt.run.schedule,
        attempt=attempt.run.attempt, why="the lease was lost and another worker has claimed the run",
    )  # fmt: skip

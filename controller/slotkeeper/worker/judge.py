"""From what a handler did to an outcome: the one place that knows which exception means what."""

from __future__ import annotations

from slotkeeper.sdk import InfrastructureError, NonRetryable, RunLost, Snooze
from slotkeeper.worker.attempt import Attempt, Outcome
from slotkeeper.worker.error_text import error_text


def judge_error(attempt: Attempt, error: BaseException) -> Outcome:
    """What an exception that left the handler means for the run."""
    return judge_stopped(attempt, outcome_of_error(error))


def judge_stopped(attempt: Attempt, outcome: Outcome) -> Outcome:
    """A handler that was asked to stop leaves by whatever way it knows: then its failure is not its own."""
    return attempt.stopped_outcome() if attempt.stop_reason and outcome.kind == "failed" else outcome


def outcome_of_error(error: BaseException) -> Outcome:
    """What an exception says by itself; in a handler's own process nobody knows more."""
    kind = type(error).__name__
    if isinstance(error, Snooze):
        return Outcome("snoozed", kind, error_text(error), error.seconds)
    if isinstance(error, NonRetryable):
        return Outcome("fatal", kind, error_text(error))
    if isinstance(error, InfrastructureError):
        return Outcome("infrastructure", kind, error_text(error))
    if isinstance(error, RunLost):
        return Outcome("interrupted", kind, error_text(error))
    return Outcome("failed", kind, error_text(error))

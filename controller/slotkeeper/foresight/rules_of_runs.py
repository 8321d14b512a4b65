"""What is worth a warning about what becomes of a slot: retries, deadlines, catch-up, overlap, what is run."""

from __future__ import annotations

from collections.abc import Iterator

from slotkeeper.foresight.finding import Finding, Interval, Level, Look
from slotkeeper.foresight.wording import duration, rfc3339
from slotkeeper.spec import CatchUp, CatchUpPolicy, CommandAction, JobScheduleSpec, OverlapPolicy

#: An idle worker looks every 5 s for what it was not told of, and a slot becomes a run within 1 s (seconds).
_SAFE_START = 10
#: What counts as a flood: this many runs at most, of a schedule as frequent as this (seconds).
_MANY_RUNS, _OFTEN = 1000, 600
#: What only a shell understands.
_SHELL_WORDS = frozenset({"|", "||", "&&", ";", ">", ">>", "<", "2>&1", "&"})

_MEANWHILE = {
    OverlapPolicy.SKIP: "slots that fall due meanwhile are skipped (Overlap)",
    OverlapPolicy.QUEUE: "slots that fall due meanwhile wait behind it",
    OverlapPolicy.REPLACE: "the next slot cancels it first",
    OverlapPolicy.ALLOW: "runs of several slots are under way at once",
}


def retries_beyond_interval(look: Look) -> Iterator[Finding]:
    """A run that fails and tries again until after the next slot."""
    spec = look.schedule.spec
    longest = _longest_trying(spec)
    if look.shortest is None or spec.retry.max_attempts < 2 or longest <= look.shortest.seconds:
        return
    attempts = f"{spec.retry.max_attempts} attempts"
    attempt, room = spec.attempt_deadline_seconds, look.shortest.seconds
    # The CRD takes no activeDeadlineSeconds below one attempt's deadline, and none could follow in one that equals it.
    bound = (
        f"activeDeadlineSeconds: {room}" if attempt is None or attempt < room else "a shorter attemptDeadlineSeconds"
    )
    of = "" if spec.attempt_deadline_seconds is None else f" of {duration(spec.attempt_deadline_seconds)} at most"
    yield Finding(
        Level.WARNING, "RetriesBeyondInterval", "spec.retry",
        f"a run that fails may go on for {duration(longest)} ({attempts}{of} and the waits between them), longer than "
        f"{_shown(look.shortest)}: {_MEANWHILE[spec.overlap_policy]}; write fewer retry.maxAttempts, shorter "
        f"back-offs, or {bound}",
    )  # fmt: skip


def attempt_beyond_interval(look: Look) -> Iterator[Finding]:
    """One attempt that may last until after the next slot: what bounds it says so itself."""
    spec = look.schedule.spec
    deadline, field = spec.attempt_deadline_seconds, "spec.attemptDeadlineSeconds"
    if deadline is None:
        deadline, field = spec.active_deadline_seconds, "spec.activeDeadlineSeconds"
    if look.shortest is None or deadline is None or deadline <= look.shortest.seconds:
        return
    if spec.overlap_policy is OverlapPolicy.ALLOW:
        return
    yield Finding(
        Level.WARNING, "AttemptBeyondInterval", field,
        f"{deadline} s are longer than {_shown(look.shortest)}, so that one attempt may last until after the next "
        f"slot: {_MEANWHILE[spec.overlap_policy]}",
    )  # fmt: skip


def no_slot_can_start(look: Look) -> Iterator[Finding]:
    """A deadline that no slot can meet, or that only luck meets."""
    within = look.schedule.timing.catch_up.start_within
    if within is None or within.total_seconds() >= _SAFE_START:
        return
    seconds = int(within.total_seconds())
    by_grace = look.schedule.timing.catch_up.reason_too_late == "Late"
    field = "spec.catchUp.graceSeconds" if by_grace else "spec.startingDeadlineSeconds"
    if seconds == 0:
        yield Finding(
            Level.WARNING, "NoSlotCanStart", field,
            "0 with catchUp.policy Skip: a run must start at the instant that it falls due, which none can, so every "
            f"slot is skipped (Late); write {_SAFE_START} or more",
        )  # fmt: skip
        return
    yield Finding(
        Level.WARNING, "StartDeadlineBelowPoll", field,
        f"{seconds} s are shorter than a worker may take to see a run (5 s between two looks, and the ticker's 1 s): "
        f"slots are skipped at random; write {_SAFE_START} or more",
    )  # fmt: skip


def no_attempt_can_follow(look: Look) -> Iterator[Finding]:
    """All attempts together may take no longer than one."""
    spec = look.schedule.spec
    active, attempt = spec.active_deadline_seconds, spec.attempt_deadline_seconds
    if active is not None and active == attempt and spec.retry.max_attempts > 1:
        yield Finding(
            Level.WARNING, "NoTimeForRetries", "spec.activeDeadlineSeconds",
            f"{active} s for all attempts together, as much as attemptDeadlineSeconds gives one: after an attempt that "
            f"timed out none of the other {spec.retry.max_attempts - 1} can begin; write {_all_attempts(spec)} or more",
        )  # fmt: skip


def success_age(look: Look) -> Iterator[Finding]:
    """An age of the last success that the schedule's own pauses exceed."""
    age = look.schedule.spec.max_success_age_seconds
    longest = None if age is None else look.longest()
    if age is not None and longest is not None and age < longest.seconds:
        yield Finding(
            Level.WARNING, "SuccessAgeBelowInterval", "spec.maxSuccessAgeSeconds",
            f"{age} s are shorter than {_shown(longest, 'longest')}: it is overdue in between although every slot "
            f"succeeds; write more than {longest.seconds}, or leave it out",
        )  # fmt: skip


def spread_beyond_interval(look: Look) -> Iterator[Finding]:
    """Due times that lie after the next slot."""
    spread = look.schedule.spec.spread_seconds
    if look.shortest is not None and spread > look.shortest.seconds:
        yield Finding(
            Level.WARNING, "SpreadBeyondInterval", "spec.spreadSeconds",
            f"{spread} s are longer than {_shown(look.shortest)}: a slot may fall due only after the next slot's "
            f"instant; write at most {look.shortest.seconds}",
        )  # fmt: skip


def flood(look: Look) -> Iterator[Finding]:
    """A long outage that ends in a flood."""
    spec = look.schedule.spec
    runs = spec.catch_up.max_runs
    if look.shortest is None or spec.catch_up.policy is not CatchUpPolicy.RUN_ALL:
        return
    if runs >= _MANY_RUNS and look.shortest.seconds <= _OFTEN:
        yield Finding(
            Level.WARNING, "CatchUpFlood", "spec.catchUp.maxRuns",
            f"after an outage of {duration(runs * look.shortest.seconds)} {runs} runs start, "
            f"{'at once' if spec.overlap_policy is OverlapPolicy.ALLOW else 'one after another, before any new slot'}; "
            "write fewer maxRuns, or policy RunOnce",
        )  # fmt: skip


def max_runs_unused(look: Look) -> Iterator[Finding]:
    """A number that only RunAll reads."""
    catch_up = look.schedule.spec.catch_up
    if catch_up.policy is not CatchUpPolicy.RUN_ALL and catch_up.max_runs != CatchUp().max_runs:
        yield Finding(
            Level.NOTE, "MaxRunsUnused", "spec.catchUp.maxRuns", f"{catch_up.max_runs} is read only with policy RunAll"
        )


def no_back_off(look: Look) -> Iterator[Finding]:
    """Retries without a pause."""
    retry = look.schedule.spec.retry
    if retry.max_attempts > 1 and retry.max_backoff_seconds == 0:
        yield Finding(
            Level.WARNING, "NoBackoff", "spec.retry.maxBackoffSeconds",
            f"0: {retry.max_attempts} attempts follow each other at once, most likely while the cause of the failure "
            "lasts; write some seconds",
        )  # fmt: skip


def shell_words(look: Look) -> Iterator[Finding]:
    """A command line where a list of words is wanted: no shell reads it."""
    action = look.schedule.spec.action
    if not isinstance(action, CommandAction):
        return
    program, *more = action.arguments
    found = sorted(_SHELL_WORDS.intersection(more))
    if " " in program.strip() and not more:
        words = ", ".join(program.split())
        yield Finding(
            Level.WARNING, "CommandIsOneWord", "spec.command",
            f"{program!r} is taken for the name of a program, blanks included: no shell reads it; write [{words}]",
        )  # fmt: skip
    elif found:
        yield Finding(
            Level.WARNING, "ShellWordInCommand", "spec.command",
            f"{found[0]!r} is an argument like any other: no shell reads it; write [sh, -c, \"…\"] where one is meant",
        )  # fmt: skip


RULES = (
    retries_beyond_interval,
    attempt_beyond_interval,
    no_slot_can_start,
    no_attempt_can_follow,
    success_age,
    spread_beyond_interval,
    flood,
    max_runs_unused,
    no_back_off,
    shell_words,
)


def _longest_trying(spec: JobScheduleSpec) -> int:
    """From the first start to the last end (seconds), as far as the spec bounds it."""
    longest = _all_attempts(spec)
    return longest if spec.active_deadline_seconds is None else min(longest, spec.active_deadline_seconds)


def _all_attempts(spec: JobScheduleSpec) -> int:
    """Every attempt up to its deadline, and every wait (seconds): full jitter waits up to a bound, which doubles."""
    retry = spec.retry
    waits = sum(
        min(retry.max_backoff_seconds, retry.initial_backoff_seconds << min(number, 20))
        for number in range(retry.max_attempts - 1)
    )
    return waits + retry.max_attempts * (spec.attempt_deadline_seconds or 0)


def _shown(interval: Interval, which: str = "shortest") -> str:
    return f"its {which} interval of {duration(interval.length)} (from {rfc3339(interval.first)})"

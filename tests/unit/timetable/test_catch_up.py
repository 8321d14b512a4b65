"""The catch-up plan: every slot of an outage ends in a run or in a range with a reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotkeeper.timetable import (
    CatchUp,
    CatchUpPolicy,
    Plan,
    cron_timetable,
    every_timetable,
    plan,
    spread_offset,
)
from unit.timetable.oracle import utc

MINUTELY = cron_timetable(["* * * * *"])
MINUTE = timedelta(minutes=1)


def _told(decided: Plan) -> tuple[list[str], list[tuple[str, str, int, str]]]:
    return (
        [f"{run.slot:%H:%M} {run.trigger}" for run in decided.runs],
        [(f"{s.first:%H:%M}", f"{s.last:%H:%M}", s.count, s.reason) for s in decided.skipped],
    )


# A controller away from 08:29:30 to 10:21:30 misses 112 slots, 08:30 to 10:21.
AWAY = {
    "after": utc("2026-06-01T08:29Z"),
    "until": utc("2026-06-01T10:21:30Z"),
    "now": utc("2026-06-01T10:21:30Z"),
}


def test_c040_run_once_keeps_the_newest() -> None:
    runs, skipped = _told(plan(MINUTELY, CatchUp(), **AWAY))
    assert runs == ["10:21 Schedule"]
    assert skipped == [("08:30", "10:20", 111, "Superseded")]


def test_c040_run_all_keeps_the_newest_of_a_limit_oldest_first() -> None:
    runs, skipped = _told(plan(MINUTELY, CatchUp(CatchUpPolicy.RUN_ALL, max_runs=100), **AWAY))
    assert len(runs) == 100
    assert runs[:1] == ["08:42 CatchUp"]
    assert runs[-2:] == ["10:20 CatchUp", "10:21 Schedule"]
    assert skipped == [("08:30", "08:41", 12, "CatchUpLimit")]


def test_run_all_within_its_limit_skips_nothing() -> None:
    decided = plan(MINUTELY, CatchUp(CatchUpPolicy.RUN_ALL, max_runs=112), **AWAY)
    assert len(decided.runs) == 112
    assert decided.skipped == ()


def test_c040_skip_keeps_what_is_within_its_grace() -> None:
    runs, skipped = _told(plan(MINUTELY, CatchUp(CatchUpPolicy.SKIP, grace=3 * MINUTE), **AWAY))
    assert runs == ["10:19 Schedule", "10:20 Schedule", "10:21 Schedule"]
    assert skipped == [("08:30", "10:18", 109, "Late")]


@pytest.mark.parametrize(("policy", "runs"), [("RunOnce", 1), ("RunAll", 5), ("Skip", 1)])
def test_the_starting_deadline_comes_before_the_policy(policy: str, runs: int) -> None:
    catch_up = CatchUp(CatchUpPolicy(policy), starting_deadline=5 * MINUTE)
    decided = plan(MINUTELY, catch_up, **AWAY)
    assert len(decided.runs) == runs
    reason = "Late" if policy == "Skip" else "StartDeadlineExceeded"
    assert decided.skipped[0].reason == reason
    assert sum(s.count for s in decided.skipped) + runs == 112


def test_ranges_are_in_order_each_with_its_reason() -> None:
    catch_up = CatchUp(CatchUpPolicy.RUN_ALL, max_runs=3, starting_deadline=10 * MINUTE)
    _, skipped = _told(plan(MINUTELY, catch_up, **AWAY))
    assert skipped == [
        ("08:30", "10:11", 102, "StartDeadlineExceeded"),
        ("10:12", "10:18", 7, "CatchUpLimit"),
    ]


@pytest.mark.parametrize(
    ("grace", "deadline", "reason"), [(120, 60, "StartDeadlineExceeded"), (60, 120, "Late"), (60, 60, "Late")]
)
def test_under_skip_the_nearer_limit_gives_the_reason(grace: int, deadline: int, reason: str) -> None:
    catch_up = CatchUp(
        CatchUpPolicy.SKIP, grace=timedelta(seconds=grace), starting_deadline=timedelta(seconds=deadline)
    )
    decided = plan(MINUTELY, catch_up, **AWAY)
    assert {s.reason for s in decided.skipped} == {reason}
    assert {run.start_by - run.run_at for run in decided.runs if run.start_by} == {timedelta(seconds=60)}


def test_the_very_last_instant_counts_as_in_time() -> None:
    slot = utc("2026-06-01T08:00Z")
    catch_up = CatchUp(CatchUpPolicy.SKIP)
    window = {"after": slot - MINUTE, "until": slot}
    on_time = plan(MINUTELY, catch_up, **window, now=slot + MINUTE)
    assert _told(on_time) == (["08:00 Schedule"], [])
    late = plan(MINUTELY, catch_up, **window, now=slot + MINUTE + timedelta(microseconds=1))
    assert _told(late) == ([], [("08:00", "08:00", 1, "Late")])


def test_c051_late_by_seconds_is_no_miss_and_no_catch_up() -> None:
    slot = utc("2026-06-01T08:00Z")
    for policy in CatchUpPolicy:
        decided = plan(MINUTELY, CatchUp(policy), after=slot - MINUTE, until=slot, now=slot + timedelta(seconds=4))
        assert _told(decided) == (["08:00 Schedule"], [])


def test_c045_a_restart_adds_nothing() -> None:
    # Down from 09:39:30 to 09:40:10; the second restart finds nothing left to decide.
    ten_minutely = cron_timetable(["*/10 * * * *"])
    back, again = utc("2026-06-01T09:40:10Z"), utc("2026-06-01T09:40:30Z")
    first = plan(ten_minutely, CatchUp(), after=utc("2026-06-01T09:39:30Z"), until=back, now=back)
    assert _told(first) == (["09:40 Schedule"], [])
    assert plan(ten_minutely, CatchUp(), after=back, until=again, now=again) == Plan((), ())


def test_the_spread_moves_the_due_time_and_not_the_slot() -> None:
    slot, offset = utc("2026-06-01T08:00Z"), timedelta(seconds=50)
    catch_up = CatchUp(CatchUpPolicy.SKIP, offset=offset)
    (run,) = plan(MINUTELY, catch_up, after=slot - MINUTE, until=slot, now=slot + 1.5 * MINUTE).runs
    assert (run.slot, run.run_at, run.trigger) == (slot, slot + offset, "Schedule")
    assert run.start_by == slot + offset + MINUTE


@pytest.mark.parametrize("policy", CatchUpPolicy)
def test_a_slot_that_is_not_due_yet_supersedes_nothing(policy: CatchUpPolicy) -> None:
    # An edit at 08:30:00 decides slots up to now; with a spread of five minutes, five of them are not due.
    catch_up = CatchUp(policy, max_runs=1, offset=timedelta(minutes=5), grace=timedelta(0))
    now = utc("2026-06-01T08:30Z")
    decided = plan(MINUTELY, catch_up, after=utc("2026-06-01T08:20Z"), until=now, now=now)
    assert [f"{run.slot:%M}" for run in decided.runs] == ["25", "26", "27", "28", "29", "30"]
    assert [(f"{s.first:%M}", f"{s.last:%M}", s.count) for s in decided.skipped] == [("21", "24", 4)]


@pytest.mark.parametrize("policy", CatchUpPolicy)
def test_a_minutely_schedule_away_for_a_century_is_a_handful_of_ranges(policy: CatchUpPolicy) -> None:
    now = utc("2070-01-01T00:00Z")
    catch_up = CatchUp(policy, max_runs=10, starting_deadline=timedelta(days=400))
    decided = plan(MINUTELY, catch_up, after=utc("1970-01-01T00:00Z"), until=now, now=now)
    assert len(decided.runs) <= 10
    assert len(decided.skipped) <= 2
    total = MINUTELY.count(utc("1970-01-01T00:00Z"), now)
    assert len(decided.runs) + sum(s.count for s in decided.skipped) == total


def test_limits_beyond_the_calendar_are_no_limits() -> None:
    decided = plan(MINUTELY, CatchUp(starting_deadline=timedelta.max), **AWAY)
    assert decided.runs[0].start_by is None
    assert _told(decided)[1] == [("08:30", "10:20", 111, "Superseded")]


@pytest.mark.parametrize("name", ["grace", "starting_deadline", "offset"])
def test_nonsense_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        CatchUp(**{name: timedelta(seconds=-1)})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_runs"):
        CatchUp(max_runs=0)
    with pytest.raises(TypeError, match="with a time zone"):
        plan(MINUTELY, CatchUp(), after=AWAY["after"], until=AWAY["until"], now=datetime(2026, 1, 1))  # noqa: DTZ001


_seconds = st.integers(0, 7200).map(lambda seconds: timedelta(seconds=seconds))


@given(
    catch_up=st.builds(
        CatchUp,
        policy=st.sampled_from(CatchUpPolicy),
        max_runs=st.integers(1, 5),
        grace=_seconds,
        starting_deadline=st.none() | _seconds,
        offset=_seconds,
    ),
    period=st.integers(60, 3000),
    span=st.tuples(_seconds, _seconds),
)
@settings(max_examples=200, deadline=None)
def test_every_slot_is_decided_once_as_if_one_by_one(
    catch_up: CatchUp, period: int, span: tuple[timedelta, timedelta]
) -> None:
    after = datetime(2026, 6, 1, tzinfo=UTC)
    until, now = after + span[0], after + span[0] + span[1]
    timetable = every_timetable(timedelta(seconds=period), datetime(2000, 1, 1, tzinfo=UTC))
    decided = plan(timetable, catch_up, after=after, until=until, now=now)

    # The rule, read slowly, one slot at a time.
    expected: dict[datetime, str] = {}
    slots = timetable.window(after, until)
    limits = [catch_up.grace] if catch_up.policy is CatchUpPolicy.SKIP else []
    limits += [catch_up.starting_deadline] if catch_up.starting_deadline is not None else []
    due = []
    for slot in slots:
        if limits and slot + catch_up.offset + min(limits) < now:
            late = catch_up.policy is CatchUpPolicy.SKIP and min(limits) == catch_up.grace
            expected[slot] = "Late" if late else "StartDeadlineExceeded"
        elif slot + catch_up.offset <= now:
            due.append(slot)
    if catch_up.policy is CatchUpPolicy.RUN_ONCE:
        expected |= dict.fromkeys(due[:-1], "Superseded")
    if catch_up.policy is CatchUpPolicy.RUN_ALL:
        expected |= dict.fromkeys(due[: -catch_up.max_runs], "CatchUpLimit")

    assert [run.slot for run in decided.runs] == [slot for slot in slots if slot not in expected]
    told = {
        slot: skipped.reason
        for skipped in decided.skipped
        for slot in timetable.window(skipped.first - timedelta(seconds=1), skipped.last)
    }
    assert told == expected
    assert all(
        skipped.count == timetable.count(skipped.first - timedelta(seconds=1), skipped.last)
        for skipped in decided.skipped
    )
    for run in decided.runs:
        assert run.run_at == run.slot + catch_up.offset
        assert run.start_by == (run.run_at + min(limits) if limits else None)
        assert (run.trigger == "CatchUp") is (now > run.run_at + catch_up.grace)


def test_spread_is_stable_and_spread() -> None:
    # Literal values: a new release must not move anyone's due time.
    assert [spread_offset(key, 3600).seconds for key in ("billing/nightly", "team-a/minutely")] == [608, 3381]
    assert spread_offset("billing/nightly", 0) == timedelta(0)
    assert spread_offset("billing/nightly", 1) == timedelta(0)
    offsets = [spread_offset(f"team/{k}", 60).seconds for k in range(6000)]
    assert set(offsets) == set(range(60))
    assert max(offsets.count(second) for second in range(60)) < 160

"""Stories that went wrong for users of other schedulers, told with their own instants (docs/cases.md)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from applied_schedules import jobschedule
from scenario import Worker, add_worker, connect, enqueue, one, rows
from slotkeeper.operator.applied import Outcome
from timeline import Timeline, next_generation

Connection = psycopg.Connection[Any]
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
_numbers = itertools.count(1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.fixture(scope="module")
def connection(shared_dsn: str) -> Iterator[Connection]:
    with connect(shared_dsn) as opened:
        yield opened


class Told:
    """One schedule of a timeline, in a namespace of its own, so that a worker sees nothing else."""

    def __init__(self, timeline: Timeline, since: datetime, **spec: Any) -> None:
        self.timeline = timeline
        self.name = f"case-{next(_numbers)}"
        self.obj = jobschedule(self.name, self.name, **{"task": "t", **spec})
        assert timeline.apply(self.obj, since).outcome is Outcome.STORED

    def edit(self, moment: datetime, **spec: Any) -> None:
        self.obj = next_generation(self.obj, **spec)
        self.timeline.apply(self.obj, moment)

    def worker(self) -> Worker:
        return add_worker(self.timeline.connection, namespaces=[self.name])

    def told(self) -> list[tuple[str, str, int]]:
        """(first slot as HH:MM, status or reason, slots)."""
        return [
            (f"{slot:%H:%M}", reason or status, slots) for slot, status, reason, slots in self.timeline.slots(self.name)
        ]

    def next_slot(self) -> datetime | None:
        slot: datetime | None = self.timeline.health(self.name).next_slot
        return slot


@pytest.mark.parametrize(
    ("catch_up", "told", "runs"),
    [
        ({"policy": "Skip", "graceSeconds": 10}, [("08:30", "Late", 112)], 0),
        # With the default grace of a minute the slot of half a minute ago is on time.
        ({"policy": "Skip"}, [("08:30", "Late", 111), ("10:21", "ready", 1)], 1),
        ({"policy": "RunOnce"}, [("08:30", "Superseded", 111), ("10:21", "ready", 1)], 1),
        ({"policy": "RunAll", "maxRuns": 100}, [("08:30", "CatchUpLimit", 12), ("08:42", "ready", 1)], 100),
    ],
    ids=["none", "skip", "latest", "all"],
)
def test_c040_more_than_a_hundred_missed_slots(
    timeline: Timeline, catch_up: dict[str, Any], told: list[tuple[str, str, int]], runs: int
) -> None:
    case = Told(timeline, utc("2026-06-01T08:28:30"), cron=["* * * * *"], catchUp=catch_up)
    timeline.tick(utc("2026-06-01T08:29:00"))
    worker = case.worker()
    if catch_up["policy"] != "Skip":  # in June its start_by has long passed
        worker.finish(worker.claim()[0])
    timeline.restart()
    timeline.tick(utc("2026-06-01T10:21:30"))
    assert case.told()[1 : 1 + len(told)] == told
    live = rows(
        timeline.connection, "select slot from slotkeeper.job where schedule = %s and status = 'ready'", case.name
    )
    assert len([row for row in live if row.slot > utc("2026-06-01T08:29:00")]) == runs
    missed = sum(slots for _, what, slots in told if what != "ready")
    assert timeline.health(case.name).missed == missed
    assert case.next_slot() == utc("2026-06-01T10:22:00")
    if catch_up["policy"] == "RunAll":
        ran = []
        while claimed := worker.claim():
            ran += [run.slot for run in claimed]
            worker.finish_batch(claimed)
        assert ran == [utc("2026-06-01T08:42:00") + number * MINUTE for number in range(100)], "oldest first"
    timeline.tick(utc("2026-06-01T10:22:00"))
    assert case.told()[-1][0] == "10:22", "never a permanent stop"


@pytest.mark.parametrize("policy", ["RunOnce", "RunAll", "Skip"])
def test_c041_suspended_for_a_weekend(timeline: Timeline, policy: str) -> None:
    case = Told(timeline, utc("2026-06-05T17:59:30"), cron=["* * * * *"], catchUp={"policy": policy})
    timeline.tick(utc("2026-06-05T18:00:00"))
    case.edit(utc("2026-06-05T18:00:10"), suspend=True)
    assert timeline.tick(utc("2026-06-06T12:00:00")) == 0
    timeline.restart()
    case.edit(utc("2026-06-08T08:00:20"), suspend=False)
    assert case.next_slot() == utc("2026-06-08T08:01:00")
    timeline.tick(utc("2026-06-08T08:00:59"))
    assert [told[0] for told in case.told()] == ["18:00"], "nothing of the weekend, not even a record"
    timeline.tick(utc("2026-06-08T08:01:00"))
    assert [slot for slot, *_ in timeline.slots(case.name)] == [utc("2026-06-05T18:00:00"), utc("2026-06-08T08:01:00")]


@pytest.mark.parametrize("policy", ["RunOnce", "RunAll", "Skip"])
@pytest.mark.parametrize(
    ("before", "after", "last", "edited", "slots"),
    [
        ("30 11 * * 5", "0 11 * * 5", "2017-12-29T11:30", "2018-01-04T23:49", ["2018-01-05T11:00"]),
        (
            "0 21 * * tue,fri", "0 23 * * wed,sun", "2024-01-30T21:00", "2024-02-02T08:05",
            ["2024-02-04T23:00", "2024-02-07T23:00"],
        ),
    ],
)  # fmt: skip
def test_c043_an_edit_of_the_calendar_fires_nothing_at_once(
    timeline: Timeline, before: str, after: str, last: str, edited: str, slots: list[str], policy: str
) -> None:
    case = Told(timeline, utc(last) - SECOND, cron=[before], catchUp={"policy": policy})
    timeline.tick(utc(last))
    moment = utc(edited)
    case.edit(moment, cron=[after])
    while moment < utc(slots[-1]):  # a ticker looks again and again
        moment += timedelta(hours=1)
        timeline.tick(moment)
    assert [slot for slot, *_ in timeline.slots(case.name)] == [utc(slot) for slot in (last, *slots)]


def test_c045_a_restart_right_after_a_run(timeline: Timeline) -> None:
    case = Told(timeline, utc("2026-06-01T09:29:00"), cron=["*/10 * * * *"])
    worker = case.worker()
    timeline.tick(utc("2026-06-01T09:30:00"))
    worker.finish(worker.claim()[0])
    timeline.restart()  # away from 09:39:30
    timeline.tick(utc("2026-06-01T09:40:10"))
    timeline.restart()
    timeline.tick(utc("2026-06-01T09:40:30"))
    worker.finish(worker.claim()[0])
    assert timeline.tick(utc("2026-06-01T09:49:00")) == 0
    timeline.tick(utc("2026-06-01T09:50:00"))
    assert case.told() == [("09:30", "done", 1), ("09:40", "done", 1), ("09:50", "ready", 1)]


def test_c050_the_starting_deadline_leaves_a_record_and_the_next_day_runs(timeline: Timeline) -> None:
    """Told so that the next day's slot is now: a worker really claims it."""
    now: datetime = one(timeline.connection, "select date_trunc('second', clock_timestamp())")
    missed = now - timedelta(days=1)
    daily = {"periodSeconds": 86_400, "anchorTime": (missed - timedelta(days=9)).isoformat()}
    case = Told(timeline, missed - MINUTE, every=daily, startingDeadlineSeconds=10)
    timeline.restart()
    timeline.tick(missed + 12 * MINUTE)
    assert timeline.slots(case.name) == [(missed, "skipped", "StartDeadlineExceeded", 1)]
    health = timeline.health(case.name)
    assert (health.missed, health.last_skip_reason, health.last_skip_slot) == (1, "StartDeadlineExceeded", missed)
    worker = case.worker()
    assert worker.claim() == []
    timeline.tick(now)
    (run,) = worker.claim()
    worker.finish(run)
    assert timeline.slots(case.name)[1:] == [(now, "done", None, 1)]
    assert timeline.health(case.name).missed == 0, "it has succeeded since"


@pytest.mark.parametrize("policy", ["RunOnce", "RunAll", "Skip"])
def test_c051_late_by_seconds_is_not_a_miss(timeline: Timeline, policy: str) -> None:
    """The row is made 1.8 s late and claimed 4 s late; nothing says that it must not be."""
    now: datetime = one(timeline.connection, "select date_trunc('second', clock_timestamp())")
    slot = now - 4 * SECOND
    days = {"periodSeconds": 259_200, "anchorTime": (slot - timedelta(days=9)).isoformat()}
    case = Told(timeline, slot - MINUTE, every=days, catchUp={"policy": policy})
    timeline.tick(slot + 1.8 * SECOND)
    worker = case.worker()
    (run,) = worker.claim()
    assert (run.slot, run.trigger) == (slot, 0), "on time, so not a catch-up"
    worker.finish(run)
    assert timeline.slots(case.name) == [(slot, "done", None, 1)]


def test_c059_no_surprise_run_when_the_long_one_ends(timeline: Timeline) -> None:
    """Hourly, ninety minutes long, twelve hours: every second slot meets the run before."""
    midnight = utc("2026-06-01T00:00:00")
    case = Told(timeline, midnight - MINUTE, cron=["0 * * * *"])
    worker = case.worker()
    for hour in range(0, 12, 2):
        slot = midnight + timedelta(hours=hour)
        timeline.tick(slot)
        (run,) = worker.claim()
        assert run.slot == slot
        timeline.tick(slot + timedelta(hours=1))
        worker.finish(run)  # at half past
        assert worker.claim() == [], "nothing starts in its place"
        assert timeline.tick(slot + timedelta(minutes=90)) == 0
    assert Counter(what for _, what, _ in case.told()) == {"done": 6, "Overlap": 6}
    assert case.told()[:4] == [
        ("00:00", "done", 1), ("01:00", "Overlap", 1), ("02:00", "done", 1), ("03:00", "Overlap", 1),
    ]  # fmt: skip


def test_c061_replace_a_job_that_is_slower_than_its_period(timeline: Timeline) -> None:
    start = utc("2026-06-01T00:00:00")
    case = Told(timeline, start - MINUTE, cron=["* * * * *"], overlapPolicy="Replace")
    schedule = one(timeline.connection, "select id from slotkeeper.schedule where name = %s", case.name)
    worker = case.worker()
    assert one(timeline.connection, "select slotkeeper.trigger_v1(%s, 'by-hand')", schedule)
    (manual,) = worker.claim()
    older = None
    for minute in range(10):
        timeline.tick(start + minute * MINUTE)
        if older is not None:
            assert worker.claim() == [], "the new one waits until the older has stopped"
            assert worker.finish(older, "failed", reason="Cancelled").became == "cancelled"
            assert worker.finish(older).answer != "recorded", "its token is worth nothing any more"
        (older,) = worker.claim()
        assert older.slot == start + minute * MINUTE
    assert Counter(what for _, what, _ in case.told()) == {"Replaced": 9, "running": 2}
    state = one(timeline.connection, "select state from slotkeeper.run where id = %s", manual.id)
    assert state == 1, "the manual run is left alone"
    health = timeline.health(case.name)
    assert (health.last_success_slot, health.last_success_at) == (None, None)


def test_c105_what_is_not_due_is_never_leased(connection: Connection) -> None:
    """Six hours ahead, ten workers that come and go; then its time comes."""
    namespace = f"case-{next(_numbers)}"
    later = one(connection, "select clock_timestamp() + interval '6 hours'")
    run = enqueue(connection, namespace=namespace, run_at=later)
    for _ in range(10):
        worker = add_worker(connection, namespaces=[namespace])
        assert worker.claim(prefetch=500) == []
        worker.expire()
        connection.execute("select slotkeeper.reap_v1(null, false)")
    (row,) = rows(connection, "select attempt, state, run_at, token from slotkeeper.run where id = %s", run.id)
    assert tuple(row) == (0, 0, later, None)
    connection.execute("update slotkeeper.run set run_at = clock_timestamp() where id = %s", (run.id,))
    worker = add_worker(connection, namespaces=[namespace])
    (claimed,) = worker.claim()
    worker.finish(claimed)
    assert worker.claim() == []
    (job,) = rows(
        connection, "select status, attempts, started_at >= run_at from slotkeeper.job where id = %s", str(run.id)
    )
    assert tuple(job) == ("done", 1, True)

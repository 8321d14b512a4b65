"""Laws of the watermark, by random histories of edits, ticks and clocks that step: each slot is decided once, under the
spec that held at it, and never at or below an instant that was decided before.

The expectation is a model that knows no watermark of ours: it remembers, per stretch of time, which spec held.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import scenario
from applied_schedules import jobschedule
from scenario import add_schedule, add_worker, one, rows
from slotkeeper.store.connection import Session
from slotkeeper.ticker import DecisionMaker, Ticker
from slotkeeper.timetable import spread_offset
from timeline import Timeline, next_generation

NOON = datetime(2026, 6, 5, 12, tzinfo=UTC)
SECOND, INSTANT = timedelta(seconds=1), timedelta(microseconds=1)
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def connection(shared_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with scenario.connect(shared_dsn) as opened:
        yield opened


@dataclass
class Model:
    """What is right: slots decided so far with the payload that they were decided under.

    ``decided_until`` is the latest instant at which somebody decided; slots after it fall to whoever looks next.
    """

    period: int
    offset: timedelta
    since: datetime
    payload: int = 0
    active: bool = True
    decided_until: datetime = field(init=False)
    slots: list[tuple[datetime, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.decided_until = self.since

    def decide(self, until: datetime) -> None:
        if self.active:
            second = int((self.decided_until - NOON).total_seconds()) // self.period * self.period
            while (slot := NOON + second * SECOND) <= until:
                if slot > self.decided_until:
                    self.slots.append((slot, self.payload))
                second += self.period
        self.decided_until = max(self.decided_until, until)

    def tick(self, moment: datetime) -> None:
        if self.active:  # of one without slots nothing is decided, and nothing has to be
            self.decide(moment - self.offset)

    def edit(self, moment: datetime) -> None:
        self.decide(moment)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["tick", "tick", "tick", "late tick", "race", "payload", "period", "suspend", "resume", "restart", "delete",
             "replace", "wrong", "equal"]
        ),
        # Whole slots and halves, and a microsecond beside them; now and then the clock steps back.
        st.tuples(st.sampled_from([-25, 0, 5, 10, 10, 20, 45]), st.sampled_from([-1, 0, 0, 1])),
    ),
    min_size=4, max_size=14,
)  # fmt: skip


@given(steps=STEPS, spread=st.sampled_from([0, 0, 9]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_slot_is_decided_once_under_the_spec_that_held(
    timeline: Timeline, steps: list[tuple[str, tuple[int, int]]], spread: int
) -> None:
    name = f"forward-{next(_numbers)}"
    obj = jobschedule(
        name, every={"periodSeconds": 10, "anchorTime": "2026-06-05T12:00:00Z"}, task="t", overlapPolicy="Allow",
        catchUp={"policy": "RunAll", "maxRuns": 10_000}, payload={"number": 0}, spreadSeconds=spread,
    )  # fmt: skip
    moment, watermark = NOON + 5 * SECOND, NOON
    timeline.names = set()
    timeline.apply(obj, moment)
    model = Model(10, spread_offset(f"default/{name}", spread), moment)
    deleted, late = False, None
    for number, (what, (seconds, instants)) in enumerate(steps, start=1):
        moment += seconds * SECOND + instants * INSTANT
        match what:
            case "tick":
                timeline.tick(moment)
                timeline.tick(moment)
                model.tick(moment)
            case "late tick":  # it has read what is due, and is slow to store it
                late = timeline.due(moment)
                continue
            case "race":
                due, again = timeline.due(moment), timeline.due(moment)
                timeline.store(due)
                assert timeline.store(again) == {schedule.id for schedule in again}
                model.tick(moment)
            case "restart":
                timeline.restart()
            case "equal":
                if not deleted:
                    timeline.apply(obj, moment)
            case "wrong":
                if not deleted:
                    timeline.apply(next_generation(obj, every=None, cron=["61 * * * *"], suspend=None), moment)
            case "delete":
                if timeline.retire(obj, moment):
                    model.edit(moment)
                    model.active, deleted = False, True
            case _:
                changed = {
                    "payload": {"payload": {"number": number}},
                    "period": {"every": {"periodSeconds": 25 - model.period, "anchorTime": "2026-06-05T12:00:00Z"}},
                    "suspend": {"suspend": True}, "resume": {"suspend": False},
                    "replace": {"uid": f"uid-{number}"},
                }[what]  # fmt: skip
                obj = next_generation(obj, **changed)  # type: ignore[arg-type]
                timeline.apply(obj, moment)
                equal = not deleted and {"resume": model.active, "suspend": not model.active}.get(what, False)
                if not equal:
                    model.edit(moment)
                model.payload = obj["spec"]["payload"]["number"]
                model.period = obj["spec"]["every"]["periodSeconds"]
                model.active, deleted = not obj["spec"].get("suspend", False), False
        if late is not None:
            left = timeline.store(late)
            if late and not left:
                model.tick(late[0].moment)
            late = None
        found = rows(
            timeline.connection,
            "select slot, (payload ->> 'number')::int as number, slots from slotkeeper.job"
            " where schedule = %s order by slot", name,
        )  # fmt: skip
        assert [(row.slot, row.number) for row in found] == model.slots, f"after {what} at {moment}"
        assert all(row.slots == 1 for row in found)
        before, watermark = watermark, timeline.watermark(name)
        assert watermark >= before, "the watermark never falls"


def test_c055_three_replicas_at_once_make_each_slot_once_and_no_error(
    shared_dsn: str, connection: psycopg.Connection[Any], postgres: Any
) -> None:
    """Ten minutes of a minutely schedule; all three have read what is due before one of them stores it."""
    log = postgres.folder / "postgres.log"
    start = datetime(2026, 6, 5, 12, tzinfo=UTC)
    spec = '{"cron": ["* * * * *"], "task": "t", "catchUp": {"policy": "RunAll"}, "overlapPolicy": "Allow"}'
    schedule = add_schedule(
        connection, "three", namespace="three", spec=spec, overlap="Allow", catch_up="RunAll", next_due=start
    )
    connection.execute(
        "update slotkeeper.schedule set watermark = %s, watermark_highest = %s where id = %s",
        (start - SECOND, start - SECOND, schedule.id),
    )
    logged = log.stat().st_size
    barrier = Barrier(3)
    stored: list[int] = []

    def replica() -> None:
        timeline = _Replica(shared_dsn)
        for minute in range(10):
            due = timeline.due(start + timedelta(minutes=minute))
            barrier.wait(20)
            stored.append(len(due) - len(timeline.store(due)))
            barrier.wait(20)
        timeline.close()

    replicas = [Thread(target=replica) for _ in range(3)]
    for thread in replicas:
        thread.start()
    for thread in replicas:
        thread.join(40)
    assert sum(stored) == 10
    assert [run["slot"] for run in schedule.runs()] == [start + timedelta(minutes=minute) for minute in range(10)]
    assert len(add_worker(connection, namespaces=["three"]).claim()) == 10
    assert "ERROR" not in log.read_bytes()[logged:].decode()


class _Replica(Timeline):
    """A ticker with a connection of its own."""

    def __init__(self, dsn: str) -> None:
        self.connection = scenario.connect(dsn)
        self.session = Session(dsn, "replica")
        self.names = {"three"}
        self._decisions = DecisionMaker(self.session)

    def close(self) -> None:
        super().close()
        self.connection.close()


def test_a_year_away_is_a_handful_of_rows_and_statements(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minutely schedule, RunAll with maxRuns 100: one hundred runs, one range, whatever the length of the outage."""
    with scenario.connect(dsn) as connection:
        spec = '{"cron": ["* * * * *"], "task": "t", "catchUp": {"policy": "RunAll", "maxRuns": 100}}'
        schedule = add_schedule(connection, spec=spec, catch_up="RunAll", next_due=scenario.EPOCH)
        away = "date_trunc('minute', clock_timestamp()) - interval '365 days'"
        connection.execute(f"update slotkeeper.schedule set watermark = {away}, watermark_highest = {away}")
        statements: list[str] = []
        execute = psycopg.Cursor.execute

        def counted(cursor: Any, query: Any, *arguments: Any, **more: Any) -> Any:
            statements.append(str(query))
            return execute(cursor, query, *arguments, **more)

        ticker = Ticker(dsn)
        monkeypatch.setattr(psycopg.Cursor, "execute", counted)
        ticker.tick()
        monkeypatch.undo()
        ticker._session.close()
        assert sum("materialise_v1" in text for text in statements) == 1
        assert len(statements) < 12, statements
        assert len(schedule.runs()) == 100
        (skipped,) = rows(connection, "select first_slot, last_slot, slots, reason from slotkeeper.slot_skip")
        decided = one(connection, "select extract(epoch from watermark) from slotkeeper.schedule")
        minutes = int(decided) // 60 - int((skipped.first_slot - SECOND).timestamp()) // 60
        assert (skipped.reason, skipped.slots) == ("CatchUpLimit", minutes - 100)
        assert skipped.slots >= 525_600 - 100
        assert skipped.last_slot == schedule.runs()[0]["slot"] - timedelta(minutes=1)
        assert one(connection, "select missed from slotkeeper.health") == skipped.slots

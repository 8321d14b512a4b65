"""The joints of a worker where an outcome could get lost between two threads, two calls or two states."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

import scenario
from processes import eventually
from slotkeeper.database_clock import DatabaseClock, boot_seconds
from slotkeeper.errors import DatabaseUnavailable
from slotkeeper.store.worker import Outlook
from slotkeeper.ticker import Ticker
from slotkeeper.worker.attempt import DONE, Attempt, Batch
from slotkeeper.worker.claim_loop import ClaimLoop, LaneBounds
from slotkeeper.worker.hand import Hand
from worker_place import Place

MOMENT = datetime(2026, 3, 1, tzinfo=UTC)


def ended_attempt() -> Attempt:
    attempt = Attempt(
        row=SimpleNamespace(id=1, owner=None, slot=None, address=b""),  # type: ignore[arg-type]
        batch=Batch(uuid.uuid4(), 1),
        action=SimpleNamespace(kind="task"),  # type: ignore[arg-type]
        run=SimpleNamespace(lost=False),  # type: ignore[arg-type]
    )
    attempt.outcome = DONE
    return attempt


def test_every_outcome_that_is_reported_wakes_somebody() -> None:
    """Many threads at once: after the last report either a wake-up has followed it, or it was collected."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(300):
            woken = threading.Event()
            hand = Hand(4, woken.set)
            together = threading.Barrier(4)

            def report(hand: Hand = hand, together: threading.Barrier = together) -> None:
                attempt = ended_attempt()
                together.wait()
                hand.report(attempt)

            threads = [threading.Thread(target=report) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert woken.is_set()
            hand.collect()
            assert len(hand.successes) == 4
    finally:
        sys.setswitchinterval(before)


def test_only_the_first_word_on_an_attempt_counts() -> None:
    hand = Hand(1, lambda: None)
    attempt = ended_attempt()
    hand.report(attempt)
    hand.report(attempt)
    hand.collect()
    assert len(hand.successes) == 1


class OneCallHost:
    """Finishes once the hand is idle."""

    worker_id = 7

    def __init__(self, hand: Hand) -> None:
        self.hand = hand
        self.recorded_attempts: list[Attempt] = []

    def may_claim(self) -> bool:
        return True

    def finished(self) -> bool:
        return self.hand.idle

    def lease_lost(self) -> None:
        raise AssertionError

    def answered(self, *_: object) -> None:
        raise AssertionError

    def recorded(self, attempts: Any) -> None:
        self.recorded_attempts += attempts

    async def accept(self, *_: object) -> None:
        raise AssertionError


class FlakyStore:
    """Cannot be reached when it is first asked for its lanes."""

    def __init__(self, hand: Hand) -> None:
        self.hand = hand
        self.asked = 0

    async def lanes(self, _: int) -> list[tuple[int, int]]:
        self.asked += 1
        if self.asked == 1:
            raise DatabaseUnavailable("away")
        return [(1, 0)]

    async def work(self, *_: object, **__: object) -> tuple[list[Any], Outlook]:
        assert not self.hand.idle, "a call is under way: nobody may think that all is done"
        return [], Outlook(MOMENT, None, None)


def test_successes_survive_a_database_that_is_away_when_they_are_to_be_recorded() -> None:
    hand = Hand(1, lambda: None)
    attempt = ended_attempt()
    hand.take([attempt])
    hand.report(attempt)
    hand.collect()
    host, store = OneCallHost(hand), FlakyStore(hand)
    loop = ClaimLoop(host, store, hand, DatabaseClock(), LaneBounds(), 0.05)  # type: ignore[arg-type]
    asyncio.run(asyncio.wait_for(loop.run(), 20))
    assert host.recorded_attempts == [attempt]
    assert store.asked == 2


def test_a_late_answer_does_not_look_like_a_forward_step_of_the_clock() -> None:
    clock = DatabaseClock()
    clock.tell(MOMENT, boot_seconds() - 30)  # the process stood still while the answer was on its way
    expected = clock.expected()
    assert expected is not None
    assert expected >= MOMENT + timedelta(seconds=30)


def test_runs_of_a_claim_that_was_under_way_at_the_signal_are_given_back(place: Place) -> None:
    """Another transaction holds the lane while the signal comes; then the claim succeeds, too late."""
    worker = place.worker()
    place.ended(place.enqueue("succeed"))
    with scenario.connect(place.dsn) as other, place.connection.transaction():
        place.connection.execute("select pg_advisory_xact_lock(1936420971, id) from slotkeeper.lane")
        late = int(scenario.enqueue(other, "succeed").id)
        eventually(
            lambda: place.value("select count(*) from pg_locks where locktype = 'advisory' and not granted"),
            "a claim waits for the lane",
        )
        worker.send(signal.SIGTERM)
        eventually(lambda: worker.log("draining"), "draining")
        # Longer than two looks at whether the drain is over.
        assert place.value("select count(*) from pg_sleep(0.4)") == 1
    assert worker.wait() == 0
    job = place.job(late)
    assert (job.status, job.charged, job.started_at) == ("ready", 0, None)
    assert place.noted(late) == []
    assert place.value("select count(*) from slotkeeper.worker") == 0


@pytest.mark.parametrize("order", [1, -1])
def test_a_schedule_that_the_ticker_cannot_read_does_not_stop_the_others(place: Place, order: int) -> None:
    names = [place.schedules.add(task="succeed") for _ in range(2)][::order]
    for name in names:
        place.schedules.rewind(name, timedelta(hours=1))
    place.connection.execute(
        "update slotkeeper.schedule_version v set spec = jsonb_set(spec, '{timeZone}', '\"Mars/Olympus\"')"
        " from slotkeeper.schedule s where s.id = v.schedule and s.name = %s",
        (names[0],),
    )
    ticker = Ticker(place.dsn)
    wait = ticker.tick()
    ticker.actor._close()
    assert place.schedules.jobs(names[0]) == []
    assert len(place.schedules.jobs(names[1])) == 1
    assert 0.1 <= wait <= 1, "it neither spins nor sleeps past the others' slots"

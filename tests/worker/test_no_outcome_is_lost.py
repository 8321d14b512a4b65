"""The joints of a worker where an outcome could get lost between two threads, two calls or two states."""

from __future__ import annotations

import asyncio
import signal
import threading
import uuid
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import scenario
from processes import eventually
from slotkeeper.database_clock import DatabaseClock, boot_seconds
from slotkeeper.errors import DatabaseUnavailable, LeaseLost
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
        batch=Batch(uuid.uuid4(), MOMENT, 1),
        action=SimpleNamespace(kind="task"),  # type: ignore[arg-type]
    )
    attempt.outcome = DONE
    return attempt


class Interrupted(deque[Attempt]):
    """Where one thread is about to add something, another comes in between: once."""

    def __init__(self, attempts: list[Attempt], intruder: Callable[[], None]) -> None:
        super().__init__(attempts)
        self._intruder: Callable[[], None] | None = intruder

    def __len__(self) -> int:
        length = super().__len__()
        intruder, self._intruder = self._intruder, None
        if intruder is not None:
            thread = threading.Thread(target=intruder)
            thread.start()
            thread.join(0.3)  # it may have to wait for us
        return length


@pytest.mark.parametrize("pending", [0, 1])
@pytest.mark.parametrize("intrusion", ["collect", "report"])
def test_every_outcome_that_is_reported_is_collected_or_wakes_somebody(pending: int, intrusion: str) -> None:
    woken = threading.Event()
    hand = Hand(4, woken.set)
    attempt, other = ended_attempt(), ended_attempt()
    intruder = hand.collect if intrusion == "collect" else partial(hand.report, [other])
    hand._reported = Interrupted([ended_attempt() for _ in range(pending)], intruder)
    if pending:
        woken.set()  # whoever reported that one woke us; we have not looked yet
    if intrusion == "collect":
        woken.clear()  # we are looking now
    hand.report([attempt])
    eventually(lambda: attempt in hand.successes or woken.is_set(), "collected, or a wake-up", seconds=2)


def test_only_the_first_word_on_an_attempt_counts() -> None:
    hand = Hand(1, lambda: None)
    attempt = ended_attempt()
    hand.report([attempt])
    hand.report([attempt])
    hand.collect()
    assert len(hand.successes) == 1


def test_a_claim_is_not_drained_while_one_of_its_runs_may_come_back() -> None:
    """Two loops record one run each of a claim, and the first call fails: without a claim row its run is an orphan."""
    hand = Hand(2, lambda: None)
    first, second = ended_attempt(), ended_attempt()
    second.batch = first.batch
    first.batch.outstanding = 2
    hand.take([first, second])
    assert hand.let_go([first]) == hand.let_go([second]) == []
    hand.settled([second])
    assert hand.drained == []
    hand.reopen([first])
    assert hand.let_go([first]) == [first.batch.token]
    hand.settled([first], told=[first.batch.token])
    assert hand.drained == []


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
    hand.report([attempt])
    hand.collect()
    host, store = OneCallHost(hand), FlakyStore(hand)
    loop = ClaimLoop(host, store, hand, DatabaseClock(), LaneBounds(), 0.05)  # type: ignore[arg-type]
    asyncio.run(asyncio.wait_for(loop.run(), 20))
    assert host.recorded_attempts == [attempt]
    assert store.asked == 2


class LostAnswerStore:
    """The answer to a claim is lost, and the lease has ended when it is asked for again; then a beat has renewed it."""

    def __init__(self) -> None:
        self.tokens: list[uuid.UUID] = []

    async def lanes(self, _: int) -> list[tuple[int, int]]:
        return [(1, 0)]

    async def work(self, _: int, token: uuid.UUID, *__: object, resend: bool = False, **___: object) -> Any:
        self.tokens.append(token)
        assert resend is (len(self.tokens) > 1)
        match len(self.tokens):
            case 1:
                raise DatabaseUnavailable("the answer is lost")
            case 2:
                raise LeaseLost("not renewed yet")
        return [SimpleNamespace(id=1, lane=1, run_at_microseconds=0)], Outlook(MOMENT, None, None)


class AcceptingHost(OneCallHost):
    def __init__(self, hand: Hand) -> None:
        super().__init__(hand)
        self.accepted: list[Any] = []
        self.beats = 0

    def finished(self) -> bool:
        return bool(self.accepted)

    def lease_lost(self) -> None:
        self.beats += 1

    async def accept(self, *given: Any) -> None:
        assert self.hand.calls == 1
        self.accepted.append(given)


def test_a_claim_whose_answer_was_lost_is_asked_for_until_it_is_known() -> None:
    """Else its runs would be held by a living worker that knows nothing of them."""
    hand = Hand(1, lambda: None)
    host, store = AcceptingHost(hand), LostAnswerStore()
    loop = ClaimLoop(host, store, hand, DatabaseClock(), LaneBounds(), 0.05)  # type: ignore[arg-type]
    asyncio.run(asyncio.wait_for(loop.run(), 20))
    assert len(set(store.tokens)) == 1
    assert host.beats == 1
    ((_, worker, token, (row,), _),) = host.accepted
    assert (worker, token, row.id) == (7, store.tokens[0], 1)


class HintedStore:
    """A hint comes while the first claim, which finds nothing, is under way."""

    def __init__(self) -> None:
        self.claims = 0
        self.loop: ClaimLoop

    async def lanes(self, _: int) -> list[tuple[int, int]]:
        return [(1, 0)]

    async def work(self, *_: object, **__: object) -> tuple[list[Any], Outlook]:
        self.claims += 1
        if self.claims == 1:
            self.loop.look_now()
        return [], Outlook(MOMENT, None, None)


class PatientHost(OneCallHost):
    """Finishes after the second claim."""

    def __init__(self, hand: Hand, store: HintedStore) -> None:
        super().__init__(hand)
        self.store = store

    def finished(self) -> bool:
        return self.store.claims >= 2


def test_a_hint_during_a_claim_makes_the_loop_look_again_at_once() -> None:
    """The claim may have looked just before the row was committed; the poll interval here is an hour."""
    hand, store = Hand(1, lambda: None), HintedStore()
    store.loop = ClaimLoop(
        PatientHost(hand, store), store, hand, DatabaseClock(), LaneBounds(), 3600  # type: ignore[arg-type]
    )  # fmt: skip
    asyncio.run(asyncio.wait_for(store.loop.run(), 20))
    assert store.claims == 2


def test_an_idle_worker_hears_of_a_run_in_a_lane_it_has_never_seen(place: Place) -> None:
    """Long before its next poll."""
    place.worker(poll_seconds=60)
    place.ended(place.enqueue("succeed"))
    place.ended(place.enqueue("succeed", priority=2))


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

"""What an edit, a suspension, a deletion and a new object do to slots, on a real Postgres.

Time is moved in the database: a watermark that is set back makes slots due, as an outage of the ticker would.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from jobschedule_objects import Object, edited, jobschedule

from scenario import add_worker, connect, one, rows
from slotkeeper.operator import Applied, Applier, Outcome
from slotkeeper.store.connection import Session
from slotkeeper.ticker import Ticker

MINUTE = timedelta(minutes=1)


class World:
    """One database, an applier, and what the API server would confirm."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.connection: psycopg.Connection[Any] = connect(dsn)
        self.session = Session(dsn, "test")
        self.alive = True
        self.asked: list[tuple[str, str, str]] = []
        self.applier = self.another_applier()

    def another_applier(self, cluster: str = "default") -> Applier:
        return Applier(self.session, cluster, self._confirm)

    def _confirm(self, namespace: str, name: str, uid: str) -> bool:
        self.asked.append((namespace, name, uid))
        return self.alive

    def apply(self, obj: Object) -> Applied:
        [applied] = self.applier.apply([obj])
        return applied

    def set_back(self, minutes: int = 5) -> datetime:
        """Slots of so many minutes are due now; returns the watermark."""
        return one(
            self.connection,
            "update slotkeeper.schedule set"
            " watermark = date_trunc('minute', clock_timestamp()) - make_interval(mins => %s),"
            " watermark_highest = date_trunc('minute', clock_timestamp()) - make_interval(mins => %s),"
            " next_due = case when next_due is null then null else clock_timestamp() - make_interval(mins => %s) end"
            " returning watermark",
            minutes, minutes, minutes,
        )  # fmt: skip

    def schedule(self) -> Any:
        [row] = rows(self.connection, "select * from slotkeeper.schedule")
        return row

    def jobs(self) -> list[tuple[str, str, str | None, int]]:
        """(trigger, status, reason, slots) of everything on record."""
        query = "select trigger, status, reason, slots from slotkeeper.job order by slot, status"
        return [tuple(row) for row in rows(self.connection, query)]

    def tick(self) -> None:
        ticker = Ticker(self.dsn)
        try:
            ticker.tick()
        finally:
            ticker._session.close()


@pytest.fixture
def world(dsn: str) -> Iterator[World]:
    world = World(dsn)
    yield world
    world.session.close()
    world.connection.close()


def test_a_new_object_is_stored_and_fires_nothing(world: World) -> None:
    applied = world.apply(jobschedule(cron=["30 2 * * *"], timeZone="Europe/Berlin", payload={"a": "ä"}))
    assert applied.outcome is Outcome.STORED
    assert (applied.accepted_generation, applied.resolved_schedule) == (1, "30 2 * * *")
    stored = world.schedule()
    assert stored.next_slot == applied.next_slot == stored.next_due > stored.watermark
    assert stored.timing_since == stored.watermark == applied.effective_time
    assert one(world.connection, "select payload from slotkeeper.schedule_version") == '{"a":"ä"}'
    world.tick()
    assert world.jobs() == []


def test_an_equal_object_changes_nothing(world: World) -> None:
    obj = jobschedule()
    first = world.apply(obj)
    before = world.schedule()
    again = world.apply(obj)
    assert again.outcome is Outcome.UNCHANGED
    assert (again.accepted_generation, again.effective_time, again.created_at, again.next_slot) == (
        first.accepted_generation, first.effective_time, before.created_at, first.next_slot,
    )  # fmt: skip
    assert world.another_applier().apply([obj])[0].outcome is Outcome.UNCHANGED  # after a restart
    assert world.schedule() == before


def test_an_edit_decides_due_slots_under_the_old_spec_and_fires_none_of_the_new(world: World) -> None:
    obj = jobschedule(catchUp={"policy": "RunAll"})
    world.apply(obj)
    world.set_back(minutes=3)
    edit = edited(obj, cron=["*/2 * * * *"], payload={"new": True})
    applied = world.apply(edit)
    assert applied.outcome is Outcome.STORED
    jobs = world.jobs()
    assert len(jobs) == 3
    assert {status for _, status, _, _ in jobs} == {"ready"}
    versions = rows(world.connection, "select distinct version from slotkeeper.run")
    assert [row.version for row in versions] == [1]  # the payload they were due with
    stored = world.schedule()
    assert stored.version == 2
    assert stored.generation == 2
    assert stored.next_slot > stored.watermark
    world.tick()
    assert len(world.jobs()) == 3


def test_an_edit_with_a_spread_makes_a_row_of_the_slot_whose_due_time_is_still_to_come(world: World) -> None:
    obj = jobschedule(cron=["* * * * *"], spreadSeconds=86400)
    world.apply(obj)
    watermark = world.set_back(minutes=2)
    world.apply(edited(obj, cron=["0 0 1 1 *"], spreadSeconds=0))
    found = rows(world.connection, "select slot, run_at from slotkeeper.run order by slot")
    assert [row.slot for row in found][:2] == [watermark + MINUTE, watermark + 2 * MINUTE]
    offsets = {row.run_at - row.slot for row in found}
    assert len(offsets) == 1
    assert offsets.pop() > timedelta(minutes=5)


def test_a_change_of_payload_alone_keeps_the_timing(world: World) -> None:
    obj = jobschedule(cron=["0 0 1 1 *"])
    since = world.apply(obj).effective_time
    applied = world.apply(edited(obj, payload={"a": 1}))
    assert applied.effective_time == since
    assert world.schedule().timing_since == since
    assert world.schedule().version == 2


def test_a_generation_that_says_the_same_moves_nothing(world: World) -> None:
    obj = jobschedule()
    world.apply(obj)
    watermark = world.set_back()
    same = edited(obj, timeZone="Etc/UTC")  # the default, written out
    applied = world.apply(same)
    stored = world.schedule()
    assert applied.accepted_generation == stored.generation == 2
    assert (stored.version, stored.watermark, stored.next_slot) == (1, watermark, watermark + MINUTE)
    world.tick()
    assert [status for _, status, _, _ in world.jobs()].count("ready") == 1  # the slots that were due still come


def test_suspended_time_has_no_slots(world: World) -> None:
    obj = jobschedule(catchUp={"policy": "RunAll"})
    world.apply(obj)
    world.set_back(minutes=2)
    suspended = edited(obj, suspend=True)
    assert world.apply(suspended).next_slot is None
    assert len(world.jobs()) == 2  # due before the suspension
    world.set_back(minutes=60)
    world.tick()
    resumed = world.apply(edited(suspended, suspend=False))
    assert resumed.next_slot is not None
    assert resumed.effective_time == world.schedule().watermark
    world.tick()
    assert len(world.jobs()) == 2


def test_an_older_generation_is_ignored(world: World) -> None:
    obj = jobschedule()
    world.apply(edited(obj, cron=["0 0 1 1 *"]))
    before = world.schedule()
    assert world.apply(obj).outcome is Outcome.STALE
    assert world.schedule() == before


def test_an_invalid_edit_leaves_the_last_valid_generation_running(world: World) -> None:
    obj = jobschedule(cron=["0 0 1 1 *"], timeZone="Europe/Berlin")
    world.apply(obj)
    before = world.schedule()
    wrong = edited(obj, cron=["61 * * * *"])
    refused = world.apply(wrong)
    assert refused.outcome is Outcome.REFUSED
    assert refused.refusal is not None
    assert (refused.refusal.reason, refused.refusal.field) == ("InvalidSpec", "spec.cron[0]")
    assert (refused.generation, refused.accepted_generation, refused.resolved_schedule) == (2, 1, "0 0 1 1 *")
    assert refused.next_slot == before.next_slot
    assert world.schedule() == before
    assert world.apply(edited(wrong, cron=["0 0 1 1 *"])).accepted_generation == 3


@pytest.mark.parametrize(
    ("spec", "reason", "field"),
    [
        ({"timeZone": "Europe/Berlim"}, "UnknownTimeZone", "spec.timeZone"),
        ({"http": {"url": "https://example.com"}}, "NotYetSupported", "spec.http"),
        ({"cron": ["0 0 * * *", "0 0 L * *"]}, "InvalidSpec", "spec.cron[1]"),
        ({"payload": {"a": "x" * 70_000}}, "InvalidSpec", "spec.payload"),
    ],
)
def test_what_cannot_be_served_is_refused_by_field(world: World, spec: dict[str, Any], reason: str, field: str) -> None:
    applied = world.apply(jobschedule(**spec))
    assert applied.outcome is Outcome.REFUSED
    assert applied.refusal is not None
    assert (applied.refusal.reason, applied.refusal.field) == (reason, field)
    assert field in applied.refusal.message
    assert applied.accepted_generation is None
    assert rows(world.connection, "select from slotkeeper.schedule") == []


def test_suspend_is_honoured_while_the_spec_is_invalid(world: World) -> None:
    obj = jobschedule()
    world.apply(obj)
    wrong = edited(obj, cron=["61 * * * *"], suspend=True)
    applied = world.apply(wrong)
    assert applied.suspended
    assert world.schedule().suspended
    assert world.schedule().next_due is None
    world.set_back(minutes=10)
    world.tick()
    still_wrong = edited(wrong, suspend=False)
    assert not world.apply(still_wrong).suspended
    assert world.schedule().next_due > world.schedule().watermark
    world.tick()
    assert world.jobs() == []


def test_a_spec_that_was_suspended_stays_so_under_an_invalid_edit(world: World) -> None:
    obj = jobschedule(suspend=True)
    world.apply(obj)
    assert world.apply(edited(obj, cron=["61 * * * *"], suspend=False)).suspended
    assert world.schedule().next_due is None


def test_c004_a_trigger_key_runs_once_though_no_date_ever_comes(world: World) -> None:
    obj = jobschedule(cron=["0 0 31 2 *"])
    world.apply(obj)
    first = edited(obj, trigger="one")
    assert world.apply(first).triggered == "one"
    assert world.apply(first).triggered is None
    assert world.apply(edited(obj, trigger="two")).triggered == "two"
    assert world.apply(first).triggered is None  # its key has run before
    keys = rows(world.connection, "select idempotency_key from slotkeeper.job where trigger = 'Manual' order by 1")
    assert [row.idempotency_key for row in keys] == ["billing/report#one", "billing/report#two"]


def test_a_trigger_key_that_a_uid_is_born_with_does_not_run(world: World) -> None:
    obj = jobschedule(trigger="copied")
    assert world.apply(obj).triggered is None
    assert world.apply(edited(obj, trigger="other")).triggered == "other"
    assert world.apply(obj).triggered is None  # and never will
    again = edited(jobschedule(uid="uid-2"), trigger="restored")
    assert world.apply(again).triggered is None
    assert len(rows(world.connection, "select from slotkeeper.job where trigger = 'Manual' and status = 'ready'")) == 0


def test_a_trigger_key_is_heard_while_the_spec_is_invalid_and_one_that_is_too_long_never(world: World) -> None:
    obj = jobschedule()
    world.apply(obj)
    wrong = edited(obj, cron=["61 * * * *"])
    assert world.apply(edited(wrong, trigger="now")).triggered == "now"
    assert world.apply(edited(obj, trigger="x" * 201)).triggered is None
    assert one(world.connection, "select count(*) from slotkeeper.run") == 1


def test_deletion_decides_what_was_due_and_cancels_it(world: World) -> None:
    obj = jobschedule(catchUp={"policy": "RunAll"})
    world.apply(obj)
    world.set_back(minutes=2)
    assert not world.applier.retire("billing", "report", "another uid")
    assert world.applier.retire("billing", "report", "uid-1")
    assert not world.applier.retire("billing", "report", "uid-1")
    assert [job[1:] for job in world.jobs()] == [("cancelled", "ScheduleDeleted", 1)] * 2
    world.tick()
    assert len(world.jobs()) == 2


def test_a_running_run_of_a_deleted_schedule_keeps_its_place(world: World) -> None:
    obj = jobschedule()
    world.apply(obj)
    world.set_back(minutes=1)
    world.tick()
    worker = add_worker(world.connection, namespaces=["billing"])
    [run] = worker.claim()
    assert world.applier.retire("billing", "report", None)
    assert one(world.connection, "select state from slotkeeper.run") == 2
    worker.finish(run)
    assert world.jobs()[-1][:2] == ("Schedule", "done")


def test_a_new_object_of_the_same_name_continues_the_watermark(world: World) -> None:
    obj = jobschedule(catchUp={"policy": "RunAll"})
    world.apply(obj)
    world.applier.retire("billing", "report", "uid-1")
    tombstone = world.schedule()
    again = jobschedule(uid="uid-2", catchUp={"policy": "RunAll"})
    applied = world.apply(again)
    assert applied.outcome is Outcome.STORED
    assert world.asked == [("billing", "report", "uid-2")]
    stored = world.schedule()
    assert (stored.id, stored.version, stored.retired_at) == (tombstone.id, 2, None)
    assert stored.watermark > tombstone.watermark
    assert stored.next_slot > stored.watermark
    world.tick()
    assert world.jobs() == []


@pytest.mark.parametrize("uid", ["uid-1", "uid-2"])
def test_what_was_read_before_a_deletion_does_not_bring_it_back(world: World, uid: str) -> None:
    world.apply(jobschedule())
    world.applier.retire("billing", "report", "uid-1")
    world.alive = False
    assert world.apply(jobschedule(uid=uid)).outcome is Outcome.STALE
    assert world.schedule().retired_at is not None


def test_another_uid_takes_over_only_when_it_is_there(world: World) -> None:
    obj = jobschedule(catchUp={"policy": "RunAll"})
    world.apply(obj)
    world.set_back(minutes=2)
    world.alive = False
    assert world.apply(jobschedule(uid="uid-2")).outcome is Outcome.STALE
    assert world.schedule().uid == "uid-1"
    world.alive = True
    # Generations count only within one UID.
    assert world.apply(jobschedule(uid="uid-2", generation=1)).outcome is Outcome.STORED
    assert world.schedule().uid == "uid-2"
    assert {(status, reason) for _, status, reason, _ in world.jobs()} == {("cancelled", "ScheduleDeleted")}
    assert not world.applier.retire("billing", "report", "uid-1")  # a late event of the old one


def test_another_uid_that_is_invalid_retires_the_old_one(world: World) -> None:
    world.apply(jobschedule())
    applied = world.apply(jobschedule(uid="uid-2", cron=["61 * * * *"]))
    assert applied.outcome is Outcome.REFUSED
    assert applied.accepted_generation is None
    assert world.schedule().retired_at is not None


def test_a_namespace_that_is_not_watched_keeps_its_runs_and_gets_no_slots(world: World) -> None:
    obj = jobschedule(catchUp={"policy": "RunAll"})
    world.apply(obj)
    world.set_back(minutes=2)
    assert world.applier.unwatch("billing", "report")
    assert not world.applier.unwatch("billing", "report")
    world.tick()
    assert [status for _, status, _, _ in world.jobs()] == ["ready", "ready"]
    world.set_back(minutes=9)
    assert world.apply(obj).outcome is Outcome.STORED  # watched again
    assert not world.schedule().unwatched
    world.tick()
    assert len(world.jobs()) == 2


def test_an_edit_waits_while_somebody_holds_the_runs(world: World) -> None:
    obj = jobschedule()
    world.apply(obj)
    world.set_back(minutes=2)
    world.tick()
    world.set_back(minutes=1)
    with connect(world.dsn) as other, other.transaction():
        other.execute("select from slotkeeper.run for update")
        before = world.schedule()
        applied = world.apply(edited(obj, payload={"a": 1}))
        assert applied.outcome is Outcome.BUSY
        assert "held" in (applied.problem or "")
        assert world.schedule() == before
    assert world.apply(edited(obj, payload={"a": 1})).outcome is Outcome.STORED


def test_one_object_that_cannot_be_stored_does_not_stop_the_others(world: World) -> None:
    world.connection.execute("alter table slotkeeper.schedule_version add check (action <> 'poison')")
    results = world.applier.apply(
        [jobschedule("a"), jobschedule("b", task="poison"), jobschedule("c", cron=["x"]), jobschedule("d")]
    )
    outcomes = [applied.outcome for applied in results]
    assert outcomes == [Outcome.STORED, Outcome.BUSY, Outcome.REFUSED, Outcome.STORED]
    assert [applied.name for applied in results] == ["a", "b", "c", "d"]


def test_many_new_objects(world: World) -> None:
    objects = [jobschedule(f"report-{number}", uid=f"uid-{number}") for number in range(1200)]
    assert {applied.outcome for applied in world.applier.apply(objects)} == {Outcome.STORED}
    assert {applied.outcome for applied in world.applier.apply(objects)} == {Outcome.UNCHANGED}
    assert one(world.connection, "select count(*) from slotkeeper.schedule where next_due is not null") == 1200


def test_two_clusters_do_not_know_each_other(world: World) -> None:
    world.apply(jobschedule())
    other = world.another_applier("elsewhere")
    assert other.apply([jobschedule(uid="uid-9")])[0].outcome is Outcome.STORED
    assert other.retire("billing", "report")
    assert world.applier.apply([jobschedule()])[0].outcome is Outcome.UNCHANGED


def test_objects_from_files_have_neither_uid_nor_generation(world: World) -> None:
    file = jobschedule(uid="", generation=0)
    assert world.apply(file).outcome is Outcome.STORED
    assert world.apply(file).outcome is Outcome.UNCHANGED
    changed = jobschedule(uid="", generation=0, cron=["0 0 1 1 *"])
    assert world.apply(changed).outcome is Outcome.STORED
    assert world.schedule().next_slot == datetime(world.schedule().watermark.year + 1, 1, 1, tzinfo=UTC)
    assert world.applier.retire("billing", "report")
    assert world.apply(changed).outcome is Outcome.STORED

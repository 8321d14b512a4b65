"""Holds on a real Postgres: what they do to slots, on the very second, and what the commands say.

Where time has to pass, the data are moved: a hold's end, a watermark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg import sql

from applied_schedules import AppliedSchedules, jobschedule
from scenario import one, rows
from slotkeeper.cli.main import commands
from slotkeeper.errors import InvalidField, SlotkeeperError
from slotkeeper.store import holds
from slotkeeper.store.connection import Session
from slotkeeper.store.holds import outstanding
from slotkeeper.store.migrate import migrate
from slotkeeper.store.schedules import find

MINUTE, MICROSECOND = timedelta(minutes=1), timedelta(microseconds=1)
MINUTELY = {"every": {"periodSeconds": 60}, "catchUp": {"policy": "RunAll"}, "overlapPolicy": "Allow"}


class World:
    """One database, its schedules, and the commands."""

    def __init__(self, dsn: str, connection: psycopg.Connection[Any]) -> None:
        self.dsn = dsn
        self.connection = connection
        self.schedules = AppliedSchedules(dsn, connection)

    def command(self, *words: str, dsn: str | None = None) -> Result:
        return CliRunner().invoke(commands, [*words[:1], "--dsn", dsn or self.dsn, *words[1:]])

    def does(self, *words: str) -> str:
        result = self.command(*words)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.output

    def hold(self, *words: str) -> str:
        return self.does("hold", *words, "--reason", "the bank is down", "--by", "alice")

    def add(self, namespace: str = "default", **spec: Any) -> str:
        return self.schedules.add(namespace, **{**MINUTELY, "task": "t", **spec})

    def schedule(self, name: str) -> Any:
        [row] = rows(self.connection, "select * from slotkeeper.schedule where name = %s", name)
        return row

    def held(self) -> set[str]:
        """Names, by what the public view says."""
        return {row.name for row in rows(self.connection, "select name from slotkeeper.health where held")}

    def outstanding(self) -> int:
        with closing(Session(self.dsn, "test")) as session:
            return outstanding(session)

    def tick(self) -> None:
        self.schedules._ticker._holds_at = float("-inf")  # whatever it does now and then, it does now
        self.schedules._ticker.tick()

    def slots(self, name: str) -> list[datetime]:
        return [job.slot.astimezone(UTC) for job in self.schedules.jobs(name)]

    def set(self, name: str, **columns: object) -> None:
        for column, value in columns.items():
            self.connection.execute(f"update slotkeeper.schedule set {column} = %s where name = %s", (value, name))

    def now(self) -> datetime:
        moment: datetime = one(self.connection, "select clock_timestamp()")
        return moment.astimezone(UTC)

    def ended(self, name: str, *, began: datetime, until: datetime) -> None:
        """As if a hold had begun then and had ended by itself, and nobody had looked since."""
        self.set(
            name, watermark=began, watermark_highest=began, timing_since=began, held_until=until, next_due=until
        )  # fmt: skip
        self.connection.execute("update slotkeeper.hold set held_until = %s", (until,))


@pytest.fixture
def world(dsn: str, connection: psycopg.Connection[Any]) -> Iterator[World]:
    world = World(dsn, connection)
    yield world
    world.schedules.close()


def test_due_slots_are_decided_and_then_there_are_none(world: World) -> None:
    name = world.add()
    world.schedules.rewind(name, 3 * MINUTE)
    before = world.schedule(name).watermark
    said = world.hold(f"default/{name}")
    assert said == f"default/{name} is held until it is released\n"
    due = world.slots(name)
    assert len(due) == 3
    stored = world.schedule(name)
    assert (stored.held, stored.next_due) == (True, None)
    assert before < due[0]
    assert due[-1] <= stored.watermark
    # An hour of held time: nothing, however often somebody looks, and nothing afterwards.
    world.set(name, watermark=stored.watermark - timedelta(hours=1))
    world.tick()
    assert world.slots(name) == due
    world.does("release", f"default/{name}")
    at_once = world.schedule(name)
    assert min(at_once.watermark, at_once.timing_since) > stored.watermark
    world.tick()
    assert world.slots(name) == due
    released = world.schedule(name)
    assert released.next_due == released.next_slot > released.watermark
    assert released.next_slot - released.watermark <= MINUTE


def test_a_slot_whose_due_time_is_still_to_come_becomes_a_row_as_at_an_edit(world: World) -> None:
    name = world.add(every={"periodSeconds": 86400}, spreadSeconds=80_000)
    slot = world.now().replace(hour=0, minute=0, second=0, microsecond=0)
    world.set(name, watermark=slot - timedelta(seconds=1), watermark_highest=slot - timedelta(seconds=1))
    world.hold(f"default/{name}")
    assert world.slots(name) == [slot]


@pytest.mark.parametrize(("hold", "covered"), [
    (["default/a"], {"a"}), (["--namespace", "default"], {"a", "b"}), (["--all"], {"a", "b", "c"}),
])  # fmt: skip
def test_what_a_hold_covers(world: World, hold: list[str], covered: set[str]) -> None:
    for name, namespace in (("a", "default"), ("b", "default"), ("c", "other")):
        world.schedules.apply(jobschedule(name, namespace, task="t", **MINUTELY))
    world.hold(*hold)
    assert world.held() == covered
    [listed] = json.loads(world.does("holds", "-o", "json"))
    assert (listed["schedules"], listed["heldUntil"]) == (len(covered), None)
    assert (listed["heldBy"], listed["reason"]) == ("alice", "the bank is down")
    assert listed["login"] == one(world.connection, "select session_user::text")
    assert one(world.connection, "select count(next_slot) from slotkeeper.health where held") == 0
    # What comes later is born held, where the hold is not on one schedule.
    for name, namespace in (("later-1", "default"), ("later-2", "other")):
        world.schedules.apply(jobschedule(name, namespace, task="t", **MINUTELY))
        assert (world.schedule(name).next_due is None) == (name in world.held())
    assert len(world.held()) == len(covered) + {1: 0, 2: 1, 3: 2}[len(covered)]
    world.does("release", *hold)
    assert world.held() == set()
    assert json.loads(world.does("holds", "-o", "json")) == []
    assert world.outstanding() == 0


def test_another_cluster_is_not_held(world: World) -> None:
    name = world.add()
    world.hold("--all", "--cluster-name", "elsewhere")
    assert world.held() == set()
    assert world.command("hold", f"default/{name}", "--cluster-name", "elsewhere", "--reason", "x").exit_code == 3


@pytest.mark.parametrize("seen_by", ["ticker", "edit"])
def test_an_end_by_itself_counts_from_its_very_second(world: World, seen_by: str) -> None:
    """The slot on that second is the first; none of the held time fires; nobody looked before now."""
    name = world.add()
    world.hold(f"default/{name}", "--until", "1h")
    until = world.now().replace(second=0, microsecond=0) - 2 * MINUTE
    world.ended(name, began=until - 30 * MINUTE, until=until)
    if seen_by == "ticker":
        world.tick()
    else:
        world.schedules.apply(jobschedule(name, task="another", **MINUTELY))
    now = world.now()
    assert world.slots(name) == [until + minutes * MINUTE for minutes in range(10) if until + minutes * MINUTE <= now]
    stored = world.schedule(name)
    assert (stored.held, stored.held_until, stored.timing_since) == (False, None, until)
    world.tick()
    assert world.schedule(name).next_due > world.schedule(name).watermark
    assert rows(world.connection, "select from slotkeeper.hold") == []


def test_a_hold_that_ends_a_microsecond_after_a_slot_covers_it(world: World) -> None:
    name = world.add()
    world.hold(f"default/{name}", "--until", "1h")
    until = world.now().replace(second=0, microsecond=0) - 2 * MINUTE + MICROSECOND
    world.ended(name, began=until - 30 * MINUTE, until=until)
    world.tick()
    assert world.slots(name)[0] == until - MICROSECOND + MINUTE


def test_the_ticker_wakes_at_the_end_of_a_hold(world: World) -> None:
    name = world.add(every={"periodSeconds": 31_622_400})
    world.hold(f"default/{name}", "--until", "30m")
    assert world.schedule(name).next_due == world.schedule(name).held_until
    world.set(name, next_due=world.now() + timedelta(milliseconds=500))
    assert 0 < world.schedules._ticker.tick() <= 0.5


def test_a_hold_that_was_renewed_after_its_end_lets_the_slots_between_fire(world: World) -> None:
    name = world.add()
    world.hold(f"default/{name}", "--until", "1h")
    until = world.now().replace(second=0, microsecond=0) - MINUTE
    world.ended(name, began=until - 30 * MINUTE, until=until)
    world.hold(f"default/{name}")
    assert world.slots(name)[0] == until
    assert world.held() == {name}
    assert world.schedule(name).next_due is None
    count = len(world.slots(name))
    world.tick()
    assert len(world.slots(name)) == count


def test_of_several_holds_the_last_one_counts(world: World) -> None:
    name = world.add()
    world.hold("--namespace", "default")
    world.hold(f"default/{name}", "--until", "2h")
    assert world.schedule(name).next_due is None
    shorter = world.hold("--namespace", "default", "--until", "1h")
    assert "there was a hold already" in shorter
    longest = world.schedule(name).held_until
    assert longest == one(world.connection, "select max(held_until) from slotkeeper.hold")
    assert len(json.loads(world.does("holds", "-o", "json"))) == 2
    released = world.command("release", f"default/{name}")
    assert (released.exit_code, released.stdout) == (0, f"default/{name} is released\n")
    assert "still held by the hold on namespace default" in released.stderr
    assert world.schedule(name).held_until < longest
    refused = world.command("release", f"default/{name}")
    assert refused.exit_code == 4
    assert "release that" in refused.stderr
    world.does("release", "--namespace", "default")
    assert world.held() == set()
    assert world.command("release", f"default/{name}").exit_code == 3


def test_held_and_suspended_are_two_things(world: World) -> None:
    name = world.add()
    world.hold("--all")
    world.schedules.apply(jobschedule(name, task="t", suspend=True, **MINUTELY))
    world.does("release", "--all")
    assert world.schedule(name).next_due is None
    world.hold("--all")
    world.schedules.apply(jobschedule(name, task="t", **MINUTELY))
    assert (world.schedule(name).suspended, world.schedule(name).next_due) == (False, None)
    world.does("release", "--all")
    world.tick()
    assert world.schedule(name).next_due > world.now()


def test_an_edit_while_held_changes_what_comes_after(world: World) -> None:
    name = world.add()
    world.hold("--all", "--until", "2h")
    world.schedules.rewind(name, timedelta(0))
    edit = {**MINUTELY, "every": {"periodSeconds": 600}}
    world.schedules.apply(jobschedule(name, task="t", **edit))
    stored = world.schedule(name)
    assert (stored.held, stored.next_due) == (True, stored.held_until)
    world.does("release", "--all")
    world.tick()
    assert world.slots(name) == []
    assert world.schedule(name).next_slot.timestamp() % 600 == 0


def test_what_is_triggered_by_hand_runs_all_the_same(world: World) -> None:
    name = world.add()
    world.hold("--all")
    world.schedules.trigger(name, "by-hand", task="t", **MINUTELY)
    assert [job.trigger for job in world.schedules.jobs(name)] == ["Manual"]


def test_what_a_killed_command_left_undone_the_ticker_does(world: World) -> None:
    name = world.add()
    world.connection.execute("select slotkeeper.add_hold_v1('default', null, null, 'alice', 'x', null)")
    assert world.outstanding() == 1
    world.tick()
    assert world.held() == {name}
    world.connection.execute("select slotkeeper.remove_hold_v1('default', null, null)")
    world.tick()
    assert world.held() == set()
    assert world.slots(name) == []


def test_a_hold_that_goes_while_it_is_being_applied_leaves_nobody_silent(
    world: World, other: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release between the decision, which takes the next due time away, and the mark."""
    name = world.add()
    world.set(name, watermark=world.schedule(name).watermark - 3 * MINUTE)
    mark = holds.mark_held

    def after_the_release(connection: psycopg.Connection[Any], ids: list[int]) -> int:
        other.execute("select slotkeeper.remove_hold_v1('default', null, null)")
        return mark(connection, ids)

    monkeypatch.setattr("slotkeeper.holds.holds.mark_held", after_the_release)
    world.connection.execute("select slotkeeper.add_hold_v1('default', null, null, 'alice', 'x', null)")
    world.tick()
    assert world.held() == set()
    world.tick()
    schedule = world.schedule(name)
    assert schedule.next_due == schedule.next_slot > schedule.watermark
    assert len(world.slots(name)) == 3


def test_a_schedule_whose_runs_are_held_by_somebody_is_held_a_moment_later(
    world: World, other: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slotkeeper.cli.holds._PATIENCE", 0.0)
    busy, free = world.add(), world.add()
    world.schedules.fire(busy, back=MINUTE)
    world.set(busy, watermark=world.schedule(busy).watermark - MINUTE)
    # Skip: the presence of a live run decides, so that nobody may be at it.
    world.schedules.apply(jobschedule(busy, task="t", **{**MINUTELY, "overlapPolicy": "Skip"}))
    world.set(busy, watermark=world.schedule(busy).watermark - MINUTE)
    with other.transaction():
        other.execute("select from slotkeeper.run for update")
        result = world.command("hold", "--all", "--reason", "x")
        assert (result.exit_code, world.held()) == (0, {free})
        assert "1 schedules are busy" in result.stderr
    world.tick()
    assert world.held() == {busy, free}


def test_a_thousand_schedules(world: World) -> None:
    names = [f"report-{number}" for number in range(1100)]
    world.schedules.apply(*[jobschedule(name, task="t", **MINUTELY) for name in names])
    world.connection.execute("update slotkeeper.schedule set watermark = watermark - interval '1 minute'")
    world.hold("--all")
    assert world.held() == set(names)
    assert one(world.connection, "select count(*) from slotkeeper.run") == len(names)
    world.does("release", "--all")
    assert world.held() == set()


def test_who_why_and_until_when_are_read_with_the_schedule(world: World) -> None:
    name = world.add()
    with closing(Session(world.dsn, "test")) as session:
        assert find(session, "default", [("default", name)])["default", name].hold is None
        world.hold("--namespace", "default", "--until", "2040-01-01T01:00:00+01:00")
        hold = find(session, "default", [("default", name)])["default", name].hold
    assert hold is not None
    assert (hold.namespace, hold.name, hold.held_by, hold.reason) == ("default", None, "alice", "the bank is down")
    assert hold.until == datetime(2040, 1, 1, tzinfo=UTC)
    table = world.does("holds")
    assert table.splitlines()[0].split()[:2] == ["ON", "SCHEDULES"]
    assert "2040-01-01T00:00:00Z   the bank is down" in table


def test_an_end_that_cannot_be_meant(world: World) -> None:
    for until, problem in (
        ("soon", "neither a time nor a duration"), ("", "neither a time nor a duration"), ("5", "neither a time"),
        ("2040-01-01T00:00:00", "has no offset"), ("2020-01-01T00:00:00Z", "is not after"), ("0s", "is not after"),
        ("999999d999999d", "neither"), ("9999-12-31T23:59:59.5Z", "neither"),
    ):  # fmt: skip
        result = world.command("hold", "--all", "--reason", "x", "--until", until)
        assert isinstance(result.exception, InvalidField), until
        assert str(result.exception).startswith("--until: ")
        assert problem in str(result.exception)
        assert "2h30m" in str(result.exception)
    assert rows(world.connection, "select from slotkeeper.hold") == []


@pytest.mark.parametrize(
    "words",
    [[], ["a/b", "--all"], ["--all", "--namespace", "a"], ["report"], ["/report"], ["a/"], ["a/b/c"]],
)
def test_a_target_that_is_not_one(words: list[str]) -> None:
    result = CliRunner().invoke(commands, ["hold", "--dsn", "not asked", *words, "--reason", "x"])
    assert isinstance(result.exception, InvalidField)
    assert result.exception.field == "SCHEDULE"


def test_what_is_not_there_is_not_held(world: World) -> None:
    world.schedules.apply(jobschedule("gone", task="t", **MINUTELY))
    assert world.schedules._applier.retire("default", "gone")
    for words in (["default/typo"], ["--namespace", "typo"], ["default/gone"]):
        assert world.command("hold", *words, "--reason", "x").exit_code == 3
    assert rows(world.connection, "select from slotkeeper.hold") == []


def test_a_reason_is_asked_for(world: World) -> None:
    assert world.command("hold", "--all").exit_code == 2
    result = world.command("hold", "--all", "--reason", " ")
    assert isinstance(result.exception, InvalidField)
    assert result.exception.field == "--reason"


def test_a_login_of_the_role_operator_may_and_a_worker_may_not(world: World) -> None:
    name = world.add()
    world.schedules.rewind(name, MINUTE)
    for role, may in (("worker", False), ("operator", True)):
        login = f"{role}_of_{one(world.connection, 'select current_database()')}"
        world.connection.execute(sql.SQL("create role {} login").format(sql.Identifier(login)))
        migrate(world.dsn, [f"{login}={role}"])
        dsn = psycopg.conninfo.make_conninfo(world.dsn, user=login)
        result = world.command("hold", "--all", "--reason", "x", dsn=dsn)
        assert isinstance(result.exception, SlotkeeperError) != may, result.output
        if may:
            assert len(world.slots(name)) == 1
            assert json.loads(world.does("holds", "-o", "json"))[0]["login"] == login
            assert world.command("holds", dsn=dsn).exit_code == 0
            assert world.command("release", "--all", dsn=dsn).exit_code == 0
        with psycopg.connect(world.dsn, autocommit=True) as connection:
            # The login's time-outs are stored for the role, its memberships too: both go with it.
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(login)))

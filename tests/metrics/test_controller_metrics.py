"""What a controller shows is what the database holds, and what its own loops have done."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

import scenario
from applied_schedules import AppliedSchedules, jobschedule
from controller_place import ControllerPlace, controller_place
from processes import eventually
from scenario import add_schedule, add_worker, enqueue, fold, one, rows
from slotkeeper.metrics.catalogue import DEFINITIONS
from slotkeeper.store.metrics import queues
from slotkeeper.store.metrics import schedules as schedules_shown

Connection = psycopg.Connection[Any]


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    with scenario.connect(dsn) as opened:
        yield opened


@pytest.fixture
def controller(dsn: str) -> Iterator[ControllerPlace]:
    with controller_place(dsn) as place:
        yield place


@pytest.fixture
def schedules(dsn: str, connection: Connection) -> Iterator[AppliedSchedules]:
    applied = AppliedSchedules(dsn, connection)
    yield applied
    applied.close()


def test_every_state_of_a_queue(connection: Connection, controller: ControllerPlace) -> None:
    worker = add_worker(connection, namespaces=["shop"], queues=["mail"])
    place = {"namespace": "shop", "queue": "mail"}
    for _ in range(2):
        enqueue(connection, **place)
    dies, retries = sorted(worker.claim(), key=lambda run: run.id)
    worker.finish(dies, "fatal", reason="No")
    worker.finish(retries, "failed", seconds=3600)
    assert enqueue(connection, **place) is not None
    running = worker.claim()
    assert len(running) == 1
    for run_at in ("now", "now", "later"):
        enqueue(connection, priority=1 if run_at == "now" else 0, **place)
    connection.execute(
        "update slotkeeper.run set run_at = clock_timestamp() + interval '1 hour'"
        " where id = (select max(id) from slotkeeper.run)"
    )
    connection.execute(
        "update slotkeeper.run set run_at = clock_timestamp() - interval '10 minutes'"
        " where id = (select max(id) - 1 from slotkeeper.run)"
    )
    chain = add_schedule(connection, overlap="Queue", catch_up="RunAll", namespace="shop", queue="mail")
    chain.materialise([scenario.EPOCH, scenario.EPOCH + timedelta(minutes=1), scenario.EPOCH + timedelta(minutes=2)])
    late = add_schedule(connection, namespace="shop", queue="mail", late_reason="Late")
    late.materialise([scenario.EPOCH], start_by=scenario.EPOCH)  # no claim finds it, so it is not ready

    shown = controller.scrape()
    states = {state: shown.value("slotkeeper_queue_runs", **place, state=state) for state in
              ("scheduled", "ready", "waiting", "retrying", "running", "dead")}  # fmt: skip
    # Ready: two of them, and the first of the chain; its other two wait.
    assert states == {"scheduled": 1, "ready": 3, "waiting": 2, "retrying": 1, "running": 1, "dead": 1}
    age = shown.value("slotkeeper_queue_oldest_ready_age_seconds", **place)
    assert age is not None
    assert 600 <= age < 3600


def test_an_empty_queue_is_zero_and_not_absent(connection: Connection, controller: ControllerPlace) -> None:
    enqueue(connection)
    worker = add_worker(connection)
    worker.finish_batch(worker.claim())
    shown = controller.scrape()
    assert shown.values("slotkeeper_queue_runs", namespace="default") == [0] * 6
    assert shown.value("slotkeeper_queue_oldest_ready_age_seconds", namespace="default") == 0


def test_schedules_by_state_and_slots_by_outcome(
    connection: Connection, controller: ControllerPlace, schedules: AppliedSchedules
) -> None:
    schedules.apply(
        jobschedule("works", "shop", task="t", every={"periodSeconds": 60}),
        jobschedule("rests", "shop", task="t", every={"periodSeconds": 60}, suspend=True),
        jobschedule("goes", "shop", task="t", every={"periodSeconds": 60}),
    )
    worker = add_worker(connection, namespaces=["shop"])
    schedules.rewind("works", timedelta(minutes=5))
    controller.parts.ticker.tick()
    worker.finish_batch(worker.claim())
    schedules.rewind("goes", timedelta(minutes=1))
    controller.parts.ticker.tick()
    worker.finish(worker.claim()[0], "fatal", reason="No")
    fold(connection)
    goes = one(connection, "select id from slotkeeper.schedule where name = 'goes'")
    connection.execute("select slotkeeper.retire_schedule_v1(%s, 'shop/goes', clock_timestamp())", (goes,))
    shown = controller.scrape()
    count = {
        state: shown.value("slotkeeper_schedules", namespace="shop", state=state)
        for state in ("active", "suspended", "held", "unwatched")
    }
    assert count == {"active": 1, "suspended": 1, "held": 0, "unwatched": 0}
    ended = {
        outcome: shown.value("slotkeeper_slots_ended_total", namespace="shop", outcome=outcome)
        for outcome in ("done", "dead", "skipped")
    }
    assert ended["done"] == 1
    assert ended["dead"] == 1  # of the deleted one: a total never falls
    assert ended["skipped"] == one(connection, "select sum(slots) from slotkeeper.slot_skip") >= 4
    # One of each schedule ran; under RunOnce the older slots of the outage did not become runs.
    assert shown.value("slotkeeper_slots_materialised_total") == 2


def test_c102_when_retention_was_last_complete_is_shown(connection: Connection, controller: ControllerPlace) -> None:
    name = "slotkeeper_retention_last_success_timestamp_seconds"
    assert controller.scrape().value(name) is None
    before = time.time()
    controller.parts.keeper.keep()
    shown = controller.scrape().value(name)
    assert shown is not None
    assert shown >= before


def test_another_clusters_schedules_are_not_shown(connection: Connection, controller: ControllerPlace) -> None:
    add_schedule(connection, "theirs", cluster="other", namespace="elsewhere")
    add_schedule(connection, "ours", namespace="here")
    assert controller.scrape().labels("slotkeeper_schedules", "namespace") == {"here"}
    assert controller.scrape("/metrics/schedules").labels("slotkeeper_schedule_info", "schedule") == {"ours"}


def test_an_overdue_slot_is_the_tickers_lag(connection: Connection, controller: ControllerPlace) -> None:
    schedule = add_schedule(connection, next_due=scenario.EPOCH)
    connection.execute(
        "update slotkeeper.schedule set next_due = clock_timestamp() - interval '3 minutes',"
        " watermark = clock_timestamp() + interval '1 hour' where id = %s", (schedule.id,),
    )  # fmt: skip
    shown = controller.scrape()
    lag, ahead = shown.value("slotkeeper_ticker_lag_seconds"), shown.value("slotkeeper_watermark_ahead_seconds")
    assert lag is not None
    assert 180 <= lag < 3600
    assert ahead is not None
    assert 600 < ahead <= 3600


def test_leases_that_ended_are_counted_by_who_reaps(connection: Connection, controller: ControllerPlace) -> None:
    """Counted by queue, pool, and what became of the runs: attempts are left, none is left, one was being cancelled."""
    for attempts, queue in ((6, "mail"), (6, "mail"), (1, "mail"), (6, "reports")):
        enqueue(connection, max_attempts=attempts, queue=queue)
    cancelled = enqueue(connection, queue="reports", priority=1).id  # another lane of the same queue
    add_worker(connection)  # somebody lives, so that the fleet is not silent
    gone = add_worker(connection, queues=["*"], pool="apps")
    quiet = add_worker(connection, queues=["mail"], pool="quiet")
    assert len(gone.claim()) == 5
    assert scenario.cancel(connection, cancelled) == {cancelled: "running"}
    name = "slotkeeper_lease_expirations_total"
    shown = controller.scrape()
    assert sum(shown.values(name)) == 0
    assert shown.value(name, queue="mail", pool="quiet", became="ready") == 0, "told before anything is lost"
    gone.expire()
    quiet.expire()
    controller.parts.keeper.reap()
    shown = controller.scrape()
    lost = {
        (queue, became): shown.value(name, namespace="default", queue=queue, pool="apps", became=became)
        for queue in ("mail", "reports")
        for became in ("ready", "dead", "cancelled")
    }
    assert lost == {
        ("mail", "ready"): 2, ("mail", "dead"): 1, ("mail", "cancelled"): 0,
        ("reports", "ready"): 1, ("reports", "dead"): 0, ("reports", "cancelled"): 1,
    }  # fmt: skip
    assert sum(shown.values(name)) == 5, "the other pools lost nothing"


def test_c124_a_total_never_falls_whatever_retention_deletes(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 done, 900 of them deleted, 50 more done, another process: increase() is 1,050."""
    monkeypatch.setattr("slotkeeper.metrics.controller._SECONDS", 0.0)
    schedule = add_schedule(connection, overlap="Allow", catch_up="RunAll")
    worker = add_worker(connection)
    looks: list[dict[tuple[Any, ...], float]] = []

    def done(count: int) -> None:
        schedule.materialise([schedule.watermark + timedelta(minutes=number) for number in range(1, count + 1)])
        worker.finish_batch(worker.claim(count))
        fold(connection)

    def look(place: ControllerPlace) -> None:
        families = place.scrape().families.values()
        samples = [sample for family in families if family.type == "counter" for sample in family.samples]
        looks.append({(sample.name, *sorted(sample.labels.items())): sample.value for sample in samples})
        assert {family.type for family in families if family.name == "slotkeeper_queue_runs"} == {"gauge"}

    with controller_place(dsn) as place:
        look(place)
        done(1000)
        look(place)
        connection.execute("delete from slotkeeper.run_done where id in (select id from slotkeeper.run_done limit 900)")
        assert one(connection, "select count(*) from slotkeeper.run_done") == 100
        look(place)
        done(50)
        look(place)
    with controller_place(dsn) as another:
        look(another)
    name = ("slotkeeper_slots_ended_total", ("namespace", "default"), ("outcome", "done"))
    assert [seen[name] for seen in looks] == [0, 1000, 1000, 1050, 1050]
    for before, after in itertools.pairwise(looks):
        assert before.keys() <= after.keys()
        assert [series for series in before if 0 != after[series] < before[series]] == []


def test_c131_scrapers_share_one_reading_that_never_touches_history(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many scrape at once, there is one question per endpoint and interval, and its age is told."""
    add_schedule(connection)
    enqueue(connection)
    asked: list[str] = []

    def counted(name: str, read: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*values: Any) -> Any:
            asked.append(name)
            return read(*values)

        return ask

    monkeypatch.setattr("slotkeeper.metrics.controller.queues", counted("queues", queues))
    monkeypatch.setattr("slotkeeper.metrics.schedules.schedules", counted("schedules", schedules_shown))
    monkeypatch.setattr("slotkeeper.metrics.controller._SECONDS", 3600.0)
    monkeypatch.setattr("slotkeeper.metrics.schedules.SHARED_SECONDS", 3600.0)
    before = time.time()
    with controller_place(dsn) as place, connection.transaction(), ThreadPoolExecutor(10) as scrapers:
        for table in ("run_done", "run_error"):
            connection.execute(f"lock slotkeeper.{table} in access exclusive mode")
        paths = ["/metrics", "/metrics/schedules"] * 20
        shown = list(scrapers.map(place.scrape, paths))
        later = [place.scrape(path) for path in paths[:2]]
    assert sorted(asked) == ["queues", "schedules"]
    assert later[0].value("slotkeeper_queue_runs", namespace="default", state="ready") == 1
    assert later[1].value("slotkeeper_schedules_left_out") == 0
    names = ("slotkeeper_queues_read_timestamp_seconds", "slotkeeper_schedules_read_timestamp_seconds")
    for scraped, name in zip([*shown, *later], itertools.cycle(names)):
        read_at = scraped.value(name)
        assert read_at is None or before <= read_at <= time.time()
    assert all(scraped.value(name) for scraped, name in zip(later, names, strict=True))


def test_all_that_is_in_the_catalogue_is_shown_and_nothing_else(
    connection: Connection, controller: ControllerPlace
) -> None:
    """But what only a controller with Kubernetes has."""
    add_schedule(connection, next_due=scenario.EPOCH)
    enqueue(connection)
    controller.parts.keeper.keep()
    of_kubernetes = {
        "leader", "watch_pump_restarts_total", "resync_braked_schedules", "resync_failed", "resync_age_seconds",
        "permission_missing",
    }  # fmt: skip
    for path, where in (("/metrics", "controller"), ("/metrics/schedules", "schedules")):
        families = controller.scrape(path).families
        shown = {
            name: family for name, family in families.items() if not name.startswith(("process_", "slotkeeper_pool"))
        }
        wanted = {definition.name.removesuffix("_total") for definition in DEFINITIONS if where in definition.where}
        assert shown.keys() == wanted - {f"slotkeeper_{name}".removesuffix("_total") for name in of_kubernetes}
        assert all(family.documentation and family.type != "unknown" for family in shown.values())


def test_probes_of_a_controller(controller: ControllerPlace) -> None:
    assert controller.status("/livez") == 503  # its loops have not been started
    assert controller.status("/readyz") == 200
    for actor in controller.parts.actors:
        actor.start()
    assert controller.status("/livez") == 200
    controller.parts.stopping.set()
    assert controller.status("/readyz") == 503
    assert controller.status("/livez") == 200
    assert controller.status("/elsewhere") == 404


def test_an_older_schema_is_not_ready(connection: Connection, controller: ControllerPlace) -> None:
    connection.execute("delete from slotkeeper.migration where name ~ '^\\d'")
    assert controller.status("/readyz") == 503


def test_a_read_that_takes_long_is_no_database_away(connection: Connection, controller: ControllerPlace) -> None:
    """Nobody but the test ends the read, and a probe does not wait behind it."""
    with connection.transaction():
        connection.execute("lock table slotkeeper.lane in access exclusive mode")
        shown = eventually(
            lambda: (now := controller.scrape()).value("slotkeeper_database_up") == 1 and now, "the scrape says so"
        )
        assert shown.value("slotkeeper_ticker_lag_seconds") is None
        eventually(lambda: controller.status("/readyz") == 200, "it is ready")


def test_the_database_goes_away(dsn: str, connection: Connection, controller: ControllerPlace) -> None:
    """What was known stays for a while, what the process knows itself stays, and one series says it."""
    enqueue(connection)
    before = controller.scrape()
    assert before.value("slotkeeper_database_up") == 1
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    other = psycopg.conninfo.make_conninfo(dsn, dbname="postgres")
    with psycopg.connect(other, autocommit=True) as server:
        server.execute(sql.SQL("alter database {} allow_connections false").format(sql.Identifier(str(name))))
        server.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))
    for actor in controller.parts.actors:
        actor.start()
    after = eventually(
        lambda: (now := controller.scrape()).value("slotkeeper_database_up") == 0 and now, "the scrape says so"
    )
    assert after.value("slotkeeper_queue_runs", namespace="default", state="ready") == 1
    contact = before.value("slotkeeper_database_last_contact_timestamp_seconds")
    assert after.value("slotkeeper_database_last_contact_timestamp_seconds") >= (contact or 0)
    assert after.value("slotkeeper_slots_materialised_total") == 0
    eventually(
        lambda: (controller.scrape().value("slotkeeper_actor_failures", actor="ticker") or 0) > 0, "its loops fail"
    )
    assert controller.status("/readyz") == 503
    assert controller.status("/livez") == 200  # a restart would not bring the database back


def test_counting_a_deep_queue_has_an_end(connection: Connection) -> None:
    """At most so many rows of a lane are read, whatever the statistics say."""
    connection.execute(
        "insert into slotkeeper.run (run_at, lane, max_attempts, trigger, task, payload)"
        " select clock_timestamp(), slotkeeper.lane_of('deep', 'default', 0::smallint), 6, 5, 't', '{}'"
        " from generate_series(1, 20000)"
    )
    connection.execute(
        "insert into slotkeeper.run_dead"
        " (id, created_at, run_at, lane, max_attempts, trigger, attempt, charged, lost, reason)"
        " select g, now(), now(), slotkeeper.lane_of('deep', 'default', 0::smallint), 6, 5, 1, 1, 0, 'No'"
        " from generate_series(1, 20000) g"
    )
    worker = add_worker(connection, namespaces=["deep"])
    for query in ("queues_v1(100)", f"own_queues_v1({worker.id}, 100)"):
        with connection.transaction():
            (lane,) = rows(connection, f"select ready, dead from slotkeeper.{query}")
            read = one(
                connection,
                "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_xact_user_tables"
                " where relname in ('run', 'run_dead')",
            )
        assert (lane.ready, lane.dead) == (100, 100)
        assert 100 <= read <= 1000

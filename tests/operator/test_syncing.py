"""Objects of a real API server become rows: by the watch, by the full resync, and never somebody else's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import psycopg
import pytest
from api_server import ApiServer, condition, eventually, settled
from jobschedule_objects import manifest

from scenario import connect, one, rows
from slotkeeper.operator import Operator
from slotkeeper.operator.errors import AnotherCluster, KubernetesUnavailable
from slotkeeper.operator.kubernetes_gateway import KubernetesGateway
from slotkeeper.operator.resync import ResyncReport
from slotkeeper.store.schedules import bind_cluster
from slotkeeper.ticker import Ticker

NewOperator = Callable[..., Operator]
NewNamespace = Callable[[], str]


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(dsn) as connection:
        yield connection


def stored(connection: psycopg.Connection[Any], cluster: str = "default") -> set[str]:
    """Names of the schedules that are not retired."""
    query = "select name from slotkeeper.schedule where cluster = %s and retired_at is null"
    return {row.name for row in rows(connection, query, cluster)}


def many(namespace: str, count: int) -> list[dict[str, Any]]:
    return [manifest(f"report-{number}", namespace, cron=["0 0 1 1 *"]) for number in range(count)]


def delete(api_server: ApiServer, namespace: str, *names: str) -> None:
    api_server.kubectl("-n", namespace, "delete", "jsched", *(names or ["--all"]))


def test_deleting_leaves_a_tombstone_and_creating_again_continues_it(
    api_server: ApiServer, namespace: str, operator: Operator, connection: psycopg.Connection[Any]
) -> None:
    api_server.apply(manifest("report", namespace))
    first = eventually(lambda: rows(connection, "select * from slotkeeper.schedule"))[0]
    delete(api_server, namespace, "report")
    query = "select * from slotkeeper.schedule where retired_at is not null"
    tombstone = eventually(lambda: rows(connection, query))[0]
    assert tombstone.watermark > first.watermark
    api_server.apply(manifest("report", namespace, trigger="from-git"))
    query = "select * from slotkeeper.schedule where retired_at is null"
    again = eventually(lambda: rows(connection, query))[0]
    assert (again.id, again.version) == (first.id, 2)
    assert again.uid != first.uid
    assert again.watermark > tombstone.watermark
    assert again.next_slot > again.watermark
    assert rows(connection, "select from slotkeeper.job") == []  # nothing fired, not even the key it came with


def test_edits_and_resumes_fire_nothing(
    api_server: ApiServer, namespace: str, operator: Operator, dsn: str, connection: psycopg.Connection[Any]
) -> None:
    api_server.apply(manifest("report", namespace, cron=["0 0 1 1 *"]))
    patches = [
        '{"spec": {"cron": ["0 0 * * *"]}}', '{"spec": {"suspend": true}}', '{"spec": {"suspend": false}}',
        '{"spec": {"every": {"periodSeconds": 600}, "cron": null}}', '{"spec": {"payload": {"a": 1}}}',
    ]  # fmt: skip
    ticker = Ticker(dsn)
    for generation, patch in enumerate(patches, start=2):
        api_server.kubectl("-n", namespace, "patch", "jsched", "report", "--type=merge", "-p", patch)
        eventually(
            lambda want=generation: one(connection, "select generation from slotkeeper.schedule") == want,
            what=f"generation {generation} is stored",
        )
        ticker.tick()
    ticker._session.close()
    assert rows(connection, "select from slotkeeper.run") == []
    obj = eventually(lambda: settled(found := api_server.get(namespace, "report")) and found)
    assert obj["status"]["acceptedGeneration"] == 6
    assert obj["status"]["resolvedSchedule"] == "every 600s"


def test_the_trigger_annotation_runs_once_per_key(
    api_server: ApiServer, namespace: str, operator: Operator, connection: psycopg.Connection[Any]
) -> None:
    api_server.apply(manifest("report", namespace, cron=["0 0 31 2 *"]))
    eventually(lambda: stored(connection))
    for key in ("one", "two"):
        api_server.kubectl(
            "-n", namespace, "annotate", "--overwrite", "jsched", "report", f"slotkeeper.dev/trigger={key}"
        )
        query = f"select from slotkeeper.job where idempotency_key = '{namespace}/report#{key}'"
        eventually(lambda query=query: rows(connection, query), what=f"the run of {key}")
    operator.syncer.dirty.mark((namespace, "report"), "", api_server.get(namespace, "report"))
    eventually(lambda: not len(operator.syncer.dirty))
    assert one(connection, "select count(*) from slotkeeper.job") == 2


def test_what_the_watch_missed_is_found_and_a_few_missing_are_believed(
    api_server: ApiServer, namespace: str, new_operator: NewOperator, connection: psycopg.Connection[Any]
) -> None:
    api_server.apply(*many(namespace, 10))
    syncer = new_operator(namespaces=[namespace]).syncer
    syncer.step()
    assert len(stored(connection)) == 10
    delete(api_server, namespace, "report-0", "report-1", "report-2")
    api_server.apply(manifest("new", namespace))
    report = syncer.resync()
    assert sorted(report.retired) == [(namespace, f"report-{number}") for number in range(3)]
    assert len(stored(connection)) == 8


@pytest.mark.parametrize("left", [0, 5])
def test_a_list_that_shrank_much_is_believed_when_it_says_so_twice(
    api_server: ApiServer, namespace: str, new_operator: NewOperator, connection: psycopg.Connection[Any], left: int
) -> None:
    api_server.apply(*many(namespace, 10))
    syncer = new_operator(namespaces=[namespace]).syncer
    syncer.step()
    delete(api_server, namespace, *(f"report-{number}" for number in range(left, 9)))
    report = syncer.resync()
    assert (report.retired, report.braked) == ([], {namespace: 9 - left})
    delete(api_server, namespace, "report-9")
    assert syncer.resync().braked == {namespace: 10 - left}  # another answer: not the second of the same
    assert len(stored(connection)) == 10
    report = syncer.resync()
    assert (len(report.retired), report.braked) == (10 - left, {})
    assert len(stored(connection)) == left


def test_an_empty_list_is_not_believed_even_for_one_schedule(
    api_server: ApiServer, namespace: str, new_operator: NewOperator, connection: psycopg.Connection[Any]
) -> None:
    api_server.apply(*many(namespace, 1))
    syncer = new_operator(namespaces=[namespace]).syncer
    syncer.step()
    delete(api_server, namespace)
    assert syncer.resync().braked == {namespace: 1}
    assert stored(connection) == {"report-0"}
    assert syncer.resync().retired == [(namespace, "report-0")]


def test_a_list_that_leaves_things_out_retires_nothing(
    api_server: ApiServer,
    namespace: str,
    new_operator: NewOperator,
    connection: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api_server.apply(*many(namespace, 6))
    syncer = new_operator(namespaces=[namespace]).syncer
    syncer.step()
    monkeypatch.setattr(KubernetesGateway, "list_objects", lambda *_: iter([[]]))
    for _ in range(3):
        assert syncer.resync().retired == []
    assert len(stored(connection)) == 6


def test_a_list_that_fails_retires_nothing(
    api_server: ApiServer, namespace: str, new_operator: NewOperator, connection: psycopg.Connection[Any]
) -> None:
    api_server.apply(*many(namespace, 2))
    operator = new_operator(namespaces=[namespace])
    operator.syncer.step()
    delete(api_server, namespace)
    operator.gateway.request_stop()  # no second try
    operator.gateway._objects.api_client.configuration.host = "https://127.0.0.1:1"
    for _ in range(2):
        report = operator.syncer.resync()
        assert list(report.failed) == [namespace]
        assert (report.retired, report.braked) == ([], {})
    assert len(stored(connection)) == 2


@pytest.mark.parametrize("status", [0, 503])
def test_a_list_that_fails_is_tried_again_without_the_others(
    api_server: ApiServer, new_namespace: NewNamespace, new_operator: NewOperator,
    connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, status: int,
) -> None:  # fmt: skip
    """An API server that does not answer at all is asked once, because each of its time-outs takes minutes."""
    monkeypatch.setattr("slotkeeper.operator.syncer.RETRY_SECONDS", 0.0)
    first, second, third = sorted(new_namespace() for _ in range(3))
    api_server.apply(*(manifest("report", namespace) for namespace in (first, second, third)))
    operator = new_operator(namespaces=[first, second, third])
    listed: list[str] = []
    failing = {second}
    really = operator.gateway.list_objects

    def list_objects(namespace: str) -> Any:
        listed.append(namespace)
        if namespace in failing:
            raise KubernetesUnavailable("as if", status=status)
        return really(namespace)

    monkeypatch.setattr(operator.gateway, "list_objects", list_objects)
    operator.syncer.step()
    report = operator.syncer.last_resync
    assert report is not None
    assert listed == ([first, second] if status == 0 else [first, second, third])
    assert sorted(report.failed) == ([second, third] if status == 0 else [second])
    failing.clear()
    listed.clear()
    operator.syncer.step()
    assert listed == sorted(report.failed)
    assert operator.syncer.last_resync is not None
    assert operator.syncer.last_resync.failed == {}
    assert one(connection, "select count(*) from slotkeeper.schedule where not unwatched") == 3
    operator.syncer.step()
    assert listed == sorted(report.failed)  # and then no more


def test_clusters_and_namespaces_leave_each_other_alone(
    api_server: ApiServer,
    new_namespace: NewNamespace,
    new_operator: NewOperator,
    connection: psycopg.Connection[Any],
) -> None:
    one_, other = new_namespace(), new_namespace()
    api_server.apply(*many(one_, 3), *many(other, 2))
    east = new_operator(cluster="east", namespaces=[one_]).syncer
    west = new_operator(cluster="west", namespaces=[other]).syncer
    east.step()
    west.step()
    assert (len(stored(connection, "east")), len(stored(connection, "west"))) == (3, 2)
    delete(api_server, other)
    for syncer in (east, west, east):
        syncer.resync()
    assert (len(stored(connection, "east")), len(stored(connection, "west"))) == (3, 2)
    west.resync()
    assert (len(stored(connection, "east")), len(stored(connection, "west"))) == (3, 0)


def test_a_namespace_that_is_no_longer_watched_is_kept_without_slots(
    api_server: ApiServer,
    new_namespace: NewNamespace,
    new_operator: NewOperator,
    connection: psycopg.Connection[Any],
) -> None:
    kept, dropped = new_namespace(), new_namespace()
    api_server.apply(*many(kept, 2), *many(dropped, 2))
    both = new_operator(namespaces=[kept, dropped])
    both.syncer.step()
    both.stop()
    narrower = new_operator(namespaces=[kept])
    narrower.syncer.step()
    delete(api_server, dropped, "report-1")  # out of sight: not its business
    for _ in range(2):
        assert narrower.syncer.resync().retired == []
    narrower.stop()
    found = rows(connection, "select namespace, unwatched, next_due is null as idle from slotkeeper.schedule")
    assert {tuple(row) for row in found} == {(kept, False, False), (dropped, True, True)}
    again = new_operator(namespaces=[kept, dropped])
    again.syncer.step()
    query = "select unwatched, next_due is null as idle from slotkeeper.schedule where retired_at is null"
    assert [tuple(row) for row in rows(connection, query)] == [(False, False)] * 3


def test_another_cluster_of_the_same_name_syncs_nothing_until_it_adopts(
    api_server: ApiServer, namespace: str, new_operator: NewOperator, connection: psycopg.Connection[Any]
) -> None:
    api_server.apply(*many(namespace, 1))
    stranger = new_operator(namespaces=[namespace])
    bind_cluster(stranger.syncer._session, "default", "the cluster before", adopt=False)
    for _ in range(2):
        with pytest.raises(AnotherCluster, match="the cluster before"):
            stranger.syncer.step()
    assert stored(connection) == set()
    stranger.stop()
    new_operator(namespaces=[namespace], adopt=True).syncer.step()
    assert stored(connection) == {"report-0"}


def test_an_api_server_that_goes_away_and_comes_back(
    api_server: ApiServer, namespace: str, operator: Operator, dsn: str, connection: psycopg.Connection[Any]
) -> None:
    if api_server.state is None:
        pytest.skip("the API server is not ours to stop")
    api_server.apply(manifest("stays", namespace), manifest("goes", namespace))
    eventually(lambda: stored(connection) == {"stays", "goes"})

    def slots_fall_due_all_the_same() -> None:
        connection.execute(
            "update slotkeeper.schedule set watermark = watermark - interval '5 minutes',"
            " watermark_highest = watermark - interval '5 minutes', next_due = clock_timestamp()"
        )
        ticker = Ticker(dsn)
        ticker.tick()
        ticker._session.close()
        assert one(connection, "select count(*) from slotkeeper.run") == 2

    api_server.restart(slots_fall_due_all_the_same)
    delete(api_server, namespace, "goes")
    api_server.apply(manifest("comes", namespace))
    eventually(lambda: stored(connection) == {"stays", "comes"}, seconds=60, what="synced again")
    eventually(lambda: condition(api_server.get(namespace, "comes"), "Ready"), what="status is written again")
    assert operator.alive


def test_one_of_two_replicas_leads_and_the_other_takes_over(
    api_server: ApiServer, namespace: str, new_operator: NewOperator, connection: psycopg.Connection[Any]
) -> None:
    first, second = new_operator(namespaces=[namespace]), new_operator(namespaces=[namespace])
    first.start()
    eventually(lambda: first.leadership.leads)
    second.start()
    api_server.apply(manifest("a", namespace))
    eventually(lambda: settled(api_server.get(namespace, "a")))
    assert not second.leadership.leads
    assert second.statuses.writes == 0
    first.stop()
    api_server.apply(manifest("b", namespace))
    eventually(lambda: settled(api_server.get(namespace, "b")))
    assert second.leadership.leads
    assert stored(connection) == {"a", "b"}


def test_a_lost_connection_ends_leadership(
    api_server: ApiServer, namespace: str, operator: Operator, connection: psycopg.Connection[Any]
) -> None:
    eventually(lambda: operator.leadership.leads)
    assert operator.leadership.term == 1
    query = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'slotkeeper leader'"
    assert rows(connection, query + " and datname = current_database()")
    eventually(lambda: operator.leadership.term == 2, what="promoted anew")
    api_server.apply(manifest("after", namespace))
    eventually(lambda: stored(connection) == {"after"})


def test_a_pump_says_what_changed(api_server: ApiServer, namespace: str, new_operator: NewOperator) -> None:
    from slotkeeper.operator.pump import Pump

    seen: list[tuple[str, str, Mapping[str, Any] | None]] = []
    gateway = new_operator(namespaces=[namespace]).gateway
    pump = Pump(namespace, gateway, lambda where, name, _, body: seen.append((where, name, body)))
    pump.start()
    api_server.apply(manifest("a", namespace))
    eventually(lambda: seen)
    assert seen[0][:2] == (namespace, "a")
    body = seen[0][2]
    assert body is not None
    assert body["spec"]["task"] == "report"
    delete(api_server, namespace, "a")
    eventually(lambda: seen[-1] == (namespace, "a", None))
    pump.stop()
    assert not pump.alive
    assert pump.restarts == 0
    obj = manifest("a", namespace)
    api_server.apply(obj)
    found = api_server.get(namespace, "a")
    assert found is not None
    # What kopf would leave behind if more than a watch were used: finalizers, annotations.
    assert "finalizers" not in found["metadata"]
    assert list(found["metadata"]["annotations"]) == ["kubectl.kubernetes.io/last-applied-configuration"]


def test_a_watch_that_begins_during_a_resync_is_followed_by_another_resync(
    new_operator: Callable[..., Operator], namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What vanished between the two lists is missing from both; a burst of such signs is one."""
    monkeypatch.setattr("slotkeeper.operator.syncer.REWATCH_SECONDS", 0.0)
    monkeypatch.setattr("slotkeeper.operator.syncer.LIST_TOLD_SECONDS", 0.0)
    syncer = new_operator(namespaces=[namespace]).syncer
    run, began, resyncs = syncer._resync.run, [3, 1], 0

    def run_beside_a_watch(*only: Collection[str]) -> ResyncReport:
        nonlocal resyncs
        resyncs += 1
        report = run(*only)
        for _ in range(began.pop(0) if began else 0):
            syncer.watch_began()
        return report

    monkeypatch.setattr(syncer._resync, "run", run_beside_a_watch)
    for _ in range(6):
        syncer.step()
    assert resyncs == 3, "the first, and one after each resync during which a watch began"

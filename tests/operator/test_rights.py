"""Rights of the controller: each is used, and one that is missing is named while everything else goes on.

The API server is a real one with RBAC; a controller has a ServiceAccount with the chart's rules.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog
from api_server import ApiServer, condition, eventually, settled
from jobschedule_objects import manifest
from network import network
from service_accounts import (
    Right,
    ServiceAccount,
    new_service_account,
    rights_of,
    roles_removed,
    rules_of_the_chart,
    without,
)
from structlog.testing import LogCapture

from controller_place import controller_place
from processes import own_processes
from scenario import add_schedule, add_worker, connect, one, rows
from scraping import get, scrape
from slotkeeper.operator import Operator
from slotkeeper.operator.errors import AnotherCluster
from slotkeeper.operator.permissions import Permission, Permissions, needed
from slotkeeper.ticker import Ticker

NewOperator = Callable[..., Operator]
NewNamespace = Callable[[], str]
LIST, GET, WATCH = ("list", "jobschedules"), ("get", "jobschedules"), ("watch", "jobschedules")
STATUS, CREATE, COUNT = ("patch", "jobschedules/status"), ("create", "events"), ("patch", "events")
IDENTITY = ("get", "namespaces")
#: What does not work either without a right: who may not list knows no object, and who may not create counts nothing.
ALSO: dict[Right, set[Right]] = {LIST: {GET, WATCH, STATUS, CREATE, COUNT}, CREATE: {COUNT}}


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(dsn) as connection:
        yield connection


@pytest.fixture
def logged() -> Iterator[LogCapture]:
    """What is logged in this process."""
    capture = LogCapture()
    before = structlog.get_config()["processors"]
    structlog.configure(processors=[capture])
    yield capture
    structlog.configure(processors=before)


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slotkeeper.operator.pump._RIGHT_SECONDS", 1.0)
    monkeypatch.setattr("slotkeeper.operator.syncer.REVIEW_SECONDS", 1.0)
    monkeypatch.setattr("slotkeeper.operator.syncer.RETRY_SECONDS", 1.0)
    monkeypatch.setattr("slotkeeper.operator.status.READ_SECONDS", 0.5)
    monkeypatch.setattr("slotkeeper.operator.status.READ_SHARE", 1.0)
    monkeypatch.setattr("slotkeeper.operator.status.FIGURES_SECONDS", 1.0)
    monkeypatch.setattr("slotkeeper.operator.events.QUIET_SECONDS", 0.0)


@dataclass
class World:
    """What all controllers of a test have done so far."""

    objects: dict[tuple[str, str], dict[str, Any]]
    told: Counter[tuple[str, str]]
    stored: set[tuple[str, str]]
    bound: set[str]


def look(api_server: ApiServer, connection: psycopg.Connection[Any]) -> World:
    found = json.loads(api_server.kubectl("get", "jsched,events", "-A", "-o", "json").stdout)["items"]
    told: Counter[tuple[str, str]] = Counter()
    for obj in found:
        if obj["kind"] == "Event":
            told[obj["metadata"]["namespace"], obj["reason"]] += obj["count"]
    stored = rows(connection, "select namespace, name from slotkeeper.schedule where retired_at is null")
    bound = rows(connection, "select name from slotkeeper.cluster")
    objects = {(obj["metadata"]["namespace"], obj["metadata"]["name"]): obj for obj in found if obj["kind"] != "Event"}
    return World(objects, told, {tuple(row) for row in stored}, {row.name for row in bound})


@dataclass
class Case:
    """A controller of one namespace that lacks one right. Its cluster name is its own: that of the namespace."""

    account: ServiceAccount
    missing: Right
    operator: Operator

    @property
    def namespace(self) -> str:
        return self.account.namespace

    @property
    def place(self) -> str:
        return "kube-system" if self.missing == IDENTITY else self.namespace

    def roles(self, missing: Right | None) -> list[dict[str, Any]]:
        """Every right but this one."""
        return [
            *self.account.role(self.namespace, without(rules_of_the_chart(), missing)),
            *self.account.role("kube-system", without(rules_of_the_chart(system=True), missing)),
        ]

    def works(self, world: World) -> dict[Right, bool]:
        """What each right is good for, and whether it has happened."""
        here = self.namespace
        return {
            IDENTITY: here in world.bound,
            LIST: (here, "came-before") in world.stored,
            GET: (here, "gone") not in world.stored,
            WATCH: (here, "comes-later") in world.stored,
            STATUS: condition(world.objects[here, "stays"], "Healthy") is not None,
            CREATE: world.told[here, "UnknownTimeZone"] > 0,
            COUNT: world.told[here, "RunDead"] > 1,
        }


def runs_die(connection: psycopg.Connection[Any], key: str) -> None:
    """One more run of every `stays` is dead."""
    connection.execute("select slotkeeper.trigger_v1(id, %s) from slotkeeper.schedule where name = 'stays'", (key,))
    worker = add_worker(connection, namespaces=["*"])
    for run in worker.claim():
        worker.finish(run, "fatal")


def slots_fall_due(connection: psycopg.Connection[Any], dsn: str) -> None:
    """One of every `stays`."""
    connection.execute(
        "update slotkeeper.schedule set watermark = watermark - interval '1 minute',"
        " watermark_highest = watermark - interval '1 minute', next_due = clock_timestamp() where name = 'stays'"
    )
    ticker = Ticker(dsn)
    ticker.tick()
    ticker._session.close()


@pytest.mark.timeout(170)
def test_each_right_of_the_chart_is_used_and_named_when_it_is_missing(
    api_server: ApiServer, new_namespace: NewNamespace, new_operator: NewOperator, dsn: str, short_waits: None,
    connection: psycopg.Connection[Any], tmp_path: Path, logged: LogCapture,
) -> None:  # fmt: skip
    """As many controllers as there are rights, at once, each without one of them; then each is given its own."""
    rights = rights_of(rules_of_the_chart()) + rights_of(rules_of_the_chart(system=True))
    cases: list[Case] = []
    for right in rights:
        account = new_service_account(api_server, new_namespace(), tmp_path)
        options = {"cluster": account.namespace, "namespaces": [account.namespace], "resync_seconds": 3600}
        cases.append(Case(account, right, new_operator(kubeconfig=account.kubeconfig, **options)))
    yearly = {"cron": ["0 0 1 1 *"]}
    api_server.apply(
        *(manifest("stays", case.namespace, cron=["* * * * *"], overlapPolicy="Allow") for case in cases),
        *(manifest(name, case.namespace, **yearly) for case in cases for name in ("gone", "a", "b", "c")),
    )
    for case in cases:
        # What was stored by a controller with every right. Then `gone` is deleted while none is there to see it.
        before = new_operator(cluster=case.namespace, namespaces=[case.namespace])
        assert before.leadership.confirm()
        before.syncer.resync()
        before.stop()
    assert not look(api_server, connection).bound
    api_server.kubectl("delete", "jsched", "-A", "--field-selector=metadata.name=gone")
    api_server.apply(
        *(manifest("came-before", case.namespace, **yearly) for case in cases),
        *(manifest("wrong", case.namespace, timeZone="No/Where") for case in cases),
        *(obj for case in cases for obj in case.roles(case.missing)),
    )
    with roles_removed(api_server):
        for case in cases:
            case.operator.start()
        for case in cases:
            eventually(lambda case=case: case.operator.syncer.last_resync, what=f"{case.missing}: a resync")
            warnings = [entry for entry in logged.entries if entry["event"] == "permission_missing"]
            [warning] = [entry for entry in warnings if entry["namespace"] == case.place]
            assert (warning["log_level"], warning["missing"]) == ("warning", " ".join(case.missing))
            with controller_place(dsn, operator=case.operator) as place:
                verb, resource = case.missing
                labels = {"verb": verb, "resource": resource, "namespace": case.place}
                assert place.scrape().value("slotkeeper_permission_missing", **labels) == 1
        api_server.apply(*(manifest("comes-later", case.namespace, **yearly) for case in cases))

        def figures_are_read() -> bool:
            records = [case.operator.statuses._records.get((case.namespace, "stays")) for case in cases]
            return sum(record is not None and record.figures is not None for record in records) == len(cases) - 1

        eventually(figures_are_read, what="all but the one that may not list have read figures")
        for times in (1, 2):
            runs_die(connection, f"before-{times}")
            ill = [case for case in cases if case.missing not in (LIST, CREATE) and (case.missing, times) != (COUNT, 2)]
            eventually(
                lambda ill=ill, times=times: all(
                    look(api_server, connection).told[case.namespace, "RunDead"] == times for case in ill
                ),
                what=f"{times} dead runs are told",
            )  # fmt: skip
        for case in cases:
            lost = {case.missing, *ALSO.get(case.missing, set())}
            eventually(
                lambda case=case, lost=lost: (
                    {right for right, works in case.works(look(api_server, connection)).items() if not works} == lost
                ),
                what=f"without {case.missing} all works but {lost}",
            )
            assert case.operator.alive
        slots_fall_due(connection, dsn)
        assert one(connection, "select count(distinct owner) from slotkeeper.run") == len(cases)

        api_server.apply(*(obj for case in cases for obj in case.roles(None)))
        eventually(lambda: not any(case.operator.gateway.permissions.missing for case in cases), what="all are granted")
        runs_die(connection, "after-1")
        eventually(
            lambda: min(look(api_server, connection).told[case.namespace, "RunDead"] for case in cases) >= 1,
            what="news are told everywhere",
        )
        runs_die(connection, "after-2")
        for case in cases:
            eventually(
                lambda case=case: all(case.works(look(api_server, connection)).values()), what=f"{case.missing} works"
            )
        assert [pump.restarts for case in cases for pump in case.operator.pumps] == [0] * len(cases)


@pytest.mark.timeout(240)
def test_c119_a_role_binding_is_missing_in_one_of_three_namespaces(
    api_server: ApiServer, new_namespace: NewNamespace, dsn: str, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """The controller of the chart as a process, with its own waits; it has no right outside of two namespaces."""
    team_a, team_b, team_c = (new_namespace() for _ in range(3))
    often = {"every": {"periodSeconds": 10}}
    api_server.apply(*(manifest("report", team, **often) for team in (team_a, team_b, team_c)))
    account = new_service_account(api_server, team_a, tmp_path)
    rules = rules_of_the_chart()
    api_server.apply(*account.role(team_a, rules), *account.role(team_c, rules))

    def served(*teams: str, name: str = "report") -> bool:
        objects = [api_server.get(team, name) for team in teams]
        return all(settled(obj) and condition(obj, "Healthy") for obj in objects)

    with own_processes(tmp_path) as processes:
        controller = processes.controller(
            dsn, "--kubernetes", "--kubeconfig", str(account.kubeconfig),
            "--namespaces", ",".join((team_a, team_b, team_c)), listen="127.0.0.1:0",
        )  # fmt: skip
        eventually(lambda: served(team_a, team_c), what="two teams are served")
        slots = "select distinct namespace from slotkeeper.job order by namespace"
        eventually(lambda: [row.namespace for row in rows(connection, slots)] == sorted((team_a, team_c)), what="slots")

        def warnings() -> list[dict[str, Any]]:
            return [entry for entry in controller.log() if entry["level"] not in ("info", "debug")]

        eventually(lambda: len([entry for entry in warnings() if entry["event"] == "permission_missing"]) == 2)
        port = controller.log("listening")[0]["port"]
        shown = scrape(port)
        for verb, resource in rights_of(rules):
            labels = {"verb": verb, "resource": resource, "namespace": team_b}
            assert shown.value("slotkeeper_permission_missing", **labels) == 1
        assert shown.value("slotkeeper_resync_failed", watched=team_b) == 1
        assert [shown.value("slotkeeper_resync_failed", watched=team) for team in (team_a, team_c)] == [0, 0]
        assert (get(port, "/livez").status, get(port, "/readyz").status) == (200, 200)
        # Nothing is asked of the cluster as a whole but who it is, and that is not needed.
        assert [row.name for row in rows(connection, "select name from slotkeeper.cluster")] == []

        api_server.apply(*account.role(team_b, rules))
        eventually(lambda: served(team_b), seconds=120, what="the third team is served, too")
        api_server.apply(manifest("later", team_b, **often))
        eventually(lambda: served(team_b, name="later"), what="by a watch")
        assert scrape(port).value("slotkeeper_resync_failed", watched=team_b) == 0
        assert sorted(entry["namespace"] for entry in warnings() if entry.get("namespace")) == ["kube-system", team_b]
        [warning] = [entry for entry in warnings() if entry.get("namespace") == team_b]
        assert warning["missing"] == ", ".join(sorted(f"{verb} {resource}" for verb, resource in rights_of(rules)))
        assert controller.stop() == 0


def test_rights_that_are_taken_away_while_it_runs(
    api_server: ApiServer, namespace: str, new_operator: NewOperator, short_waits: None,
    connection: psycopg.Connection[Any], tmp_path: Path, logged: LogCapture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A watch that is open stays open; when it begins anew, it is refused."""
    monkeypatch.setattr("slotkeeper.operator.pump.ERROR_BACK_OFFS", (0.1,))
    monkeypatch.setattr("slotkeeper.operator.pump._FIRST_BACK_OFF", 0.1)
    account = new_service_account(api_server, namespace, tmp_path)
    rules = rules_of_the_chart()
    api_server.apply(*account.role(namespace, rules), manifest("before", namespace))

    def stored() -> set[str]:
        return {row.name for row in rows(connection, "select name from slotkeeper.schedule where retired_at is null")}

    with network(api_server, tmp_path, account.kubeconfig) as (between, kubeconfig):
        operator = new_operator(namespaces=[namespace], kubeconfig=kubeconfig, resync_seconds=3600)
        operator.start()
        eventually(lambda: stored() == {"before"})
        syncer = operator.syncer
        eventually(
            lambda: syncer._resync_at - time.monotonic() > 60 and syncer._rewatched_at is None, what="it has settled"
        )
        api_server.apply(*account.role(namespace, without(rules, WATCH)))
        eventually(lambda: operator.gateway.may(Permission(*WATCH, namespace)) is False)
        between.cut()
        [pump] = operator.pumps
        eventually(lambda: pump.restarts == 1, what="the watch has ended")
        [warning] = [
            entry for entry in logged.entries
            if entry["event"] == "permission_missing" and entry["namespace"] == namespace
        ]  # fmt: skip
        assert warning["missing"] == "watch jobschedules"
        api_server.apply(manifest("unseen", namespace))
        api_server.apply(*account.role(namespace, rules))
        eventually(lambda: stored() == {"before", "unseen"}, what="the watch has begun anew")
        assert (pump.restarts, operator.alive) == (1, True)


def test_a_controller_of_all_namespaces_without_any_right(
    api_server: ApiServer, namespace: str, new_operator: NewOperator, short_waits: None, tmp_path: Path,
    logged: LogCapture,
) -> None:  # fmt: skip
    """It lives, and says once what it needs; many namespaces are no reason to say it often."""
    account = new_service_account(api_server, namespace, tmp_path)
    operator = new_operator(kubeconfig=account.kubeconfig)
    operator.start()
    eventually(lambda: operator.syncer.last_resync)
    warnings = {entry["namespace"]: entry for entry in logged.entries if entry["event"] == "permission_missing"}
    assert set(warnings) == {"*", "kube-system"}
    assert warnings["*"]["missing"].split(", ") == [
        "create events", "get jobschedules", "list jobschedules", "patch events", "patch jobschedules/status",
        "watch jobschedules",
    ]  # fmt: skip
    assert operator.gateway.permissions.is_missing(Permission(*STATUS, namespace))
    assert (operator.alive, operator.pumps[0].restarts) == (True, 0)


def test_who_the_cluster_is_may_be_told_by_its_objects_alone(
    api_server: ApiServer, namespace: str, new_operator: NewOperator, connection: psycopg.Connection[Any],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Without a right on kube-system: schedules that another cluster stored under this name are not touched."""
    account = new_service_account(api_server, namespace, tmp_path)
    api_server.apply(*account.role(namespace, rules_of_the_chart()), manifest("report", namespace))
    spec = '{"cron": ["0 0 1 1 *"], "task": "t"}'
    theirs = add_schedule(connection, name="theirs", namespace=namespace, spec=spec)
    options = {"namespaces": [namespace], "kubeconfig": account.kubeconfig}
    query = "select name, unwatched, retired_at is null as kept from slotkeeper.schedule order by name"
    stranger = new_operator(**options)
    for _ in range(2):
        with pytest.raises(AnotherCluster, match="kube-system"):
            stranger.syncer.step()
    assert [tuple(row) for row in rows(connection, query)] == [("theirs", False, True)]
    stranger.stop()
    obj = api_server.get(namespace, "report")
    assert obj is not None
    uid = obj["metadata"]["uid"]
    connection.execute("update slotkeeper.schedule set uid = %s, name = 'report' where id = %s", (uid, theirs.id))
    new_operator(**options).syncer.step()
    assert [tuple(row) for row in rows(connection, query)] == [("report", False, True)]
    assert one(connection, "select count(*) from slotkeeper.schedule_version") == 2  # what the object says


def test_an_object_that_is_made_anew_is_no_other_cluster(
    api_server: ApiServer, namespace: str, new_operator: NewOperator, connection: psycopg.Connection[Any],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Without a right on kube-system, and nothing that is there is known by its UID: it is the cluster that was."""
    monkeypatch.setattr("slotkeeper.operator.syncer.REVIEW_SECONDS", 0.0)
    account = new_service_account(api_server, namespace, tmp_path)
    api_server.apply(*account.role(namespace, rules_of_the_chart()), manifest("report", namespace))
    syncer = new_operator(namespaces=[namespace], kubeconfig=account.kubeconfig).syncer
    syncer.step()
    before = one(connection, "select uid from slotkeeper.schedule")
    api_server.kubectl("-n", namespace, "delete", "jsched", "report")
    api_server.apply(manifest("report", namespace))
    again = api_server.get(namespace, "report")
    assert again is not None
    syncer.mark(namespace, "report", before, None)
    syncer.mark(namespace, "report", again["metadata"]["uid"], again)
    syncer.step()
    assert one(connection, "select uid from slotkeeper.schedule") == again["metadata"]["uid"] != before


def test_a_follower_learns_that_a_right_was_granted(
    api_server: ApiServer, namespace: str, new_operator: NewOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metric is one of those of which the highest counts."""
    monkeypatch.setattr("slotkeeper.operator.syncer.REVIEW_SECONDS", 0.0)
    account = new_service_account(api_server, namespace, tmp_path)
    leader = new_operator(namespaces=[namespace])
    leader.syncer.step()
    follower = new_operator(namespaces=[namespace], kubeconfig=account.kubeconfig)
    gateway = follower.gateway
    gateway.review(needed([namespace]))
    assert gateway.permissions.missing
    api_server.apply(*account.role(namespace, rules_of_the_chart()))

    def learnt() -> bool:
        follower.syncer.step()
        return {entry.namespace for entry in gateway.permissions.missing} == {"kube-system"}

    eventually(learnt)
    assert not follower.leadership.leads


def test_a_missing_right_is_warned_of_every_ten_minutes(logged: LogCapture) -> None:
    now = 0.0
    permissions = Permissions(lambda: now)
    told = []
    for _ in range(121):
        for verb in ("list", "watch"):
            if permissions.refused(Permission(verb, "jobschedules", "team-b")):
                permissions.tell("team-b", "no")
        told = [entry["missing"] for entry in logged.entries if entry["event"] == "permission_missing"]
        now += 10
    assert told == ["list jobschedules", "watch jobschedules"] + ["list jobschedules, watch jobschedules"] * 2
    permissions.granted(Permission(*LIST, "team-b"))
    assert permissions.missing == [Permission(*WATCH, "team-b")]
    # What is missing everywhere is missing in each namespace, and told once.
    assert permissions.refused(Permission(*LIST, None))
    assert not permissions.refused(Permission(*LIST, "team-c"))
    assert permissions.is_missing(Permission(*LIST, "team-c"))

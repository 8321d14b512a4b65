"""Who may call what: each group role through a login of its own, and what holds for every function."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

import scenario
from scenario import add_worker, enqueue, one, reap, rows
from slotkeeper.store.migrate import ROLES, migrate

Connection = psycopg.Connection[Any]

#: One harmless call of every function that a client may call.
CALLS = {
    "register_worker_v1": "('w', 'n', 'p', '{n}', '{q}', 1, '0', 1::smallint, 60)",
    "lanes_v1": "(0)",
    "beat_v1": "(0)",
    "leave_v1": "(0)",
    "work_v1": "(0, null, '{}', '{}', '{}', null, 0, 0, '{}', '{}', 0, 0, '{}', false)",
    "finish_v1": "(0, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
    "complete_v1": "(0, null)",
    "reap_v1": "(null, false)",
    "reap_v2": "(null, false)",
    "versions_v1": "('{}', '{}')",
    "enqueue_v1": "('t', '{}', null, 'q', 'n', null, 0::smallint, 1::smallint)",
    "due_v1": "(1)",
    "upcoming_v1": "(null, null, 1, 1)",
    "next_due_v1": "()",
    "materialise_v1": "(" + ", ".join(18 * ["'{}'"]) + ")",
    "fold_v1": "(null, 1)",
    "sweep_v1": "()",
    "ensure_partitions_v1": "('epoch')",
    "retain_v1": "(1)",
    "drop_history_v1": "()",
    "retain_v2": "(1, null)",
    "stale_success_due_v2": "(null, 1)",
    "schedules_v1": "('c', '{}', '{}')",
    "lock_schedules_v1": "('c', '{}', '{}')",
    "suspend_schedule_v1": "(0, true, now(), null, null)",
    "retire_schedule_v1": "(0, 'u', now())",
    "unwatch_schedule_v1": "(0, now())",
    "bind_cluster_v1": "('c', 'i', false)",
    "cancel_v1": "('{}')",
    "requeue_v1": "('{}')",
    "add_hold_v1": "('c', 'n', 'h', 'b', 'r', null)",
    "remove_hold_v1": "('c', 'n', 'h')",
    "holds_v1": "('c')",
    "holds_outstanding_v1": "()",
    "release_held_v1": "(true)",
    "lock_unheld_v1": "(1)",
    "mark_held_v1": "('{}')",
    "unserved_queues_v1": "(120)",
    "pools_v1": "(60, 30, 1)",
    "declare_pool_v1": "('n', 'p', '{}', '{}', 1)",
    "schema_version_v1": "()",
    "queues_v1": "(1)",
    "served_queues_v1": "()",
    "own_queues_v1": "(0, 1)",
    "vital_signs_v1": "()",
    "schedule_totals_v1": "('c')",
}
WORKER = {
    "register_worker_v1",
    "lanes_v1",
    "beat_v1",
    "leave_v1",
    "work_v1",
    "finish_v1",
    "complete_v1",
    "reap_v1",
    "reap_v2",
    "versions_v1",
    "enqueue_v1",
    "schema_version_v1",
    "own_queues_v1",
}
CONTROLLER = {
    "pools_v1",
    "declare_pool_v1",
    "versions_v1",
    "reap_v1",
    "reap_v2",
    "due_v1",
    "upcoming_v1",
    "next_due_v1",
    "materialise_v1",
    "fold_v1",
    "sweep_v1",
    "ensure_partitions_v1",
    "retain_v1",
    "drop_history_v1",
    "retain_v2",
    "stale_success_due_v2",
    "schedules_v1",
    "lock_schedules_v1",
    "suspend_schedule_v1",
    "retire_schedule_v1",
    "unwatch_schedule_v1",
    "bind_cluster_v1",
    "release_held_v1",
    "lock_unheld_v1",
    "mark_held_v1",
    "unserved_queues_v1",
    "schema_version_v1",
    "queues_v1",
    "served_queues_v1",
    "vital_signs_v1",
    "schedule_totals_v1",
}
MAY_CALL = {
    "controller": CONTROLLER,
    "worker": WORKER,
    "enqueuer": {"enqueue_v1", "complete_v1"},
    "reader": {"pools_v1"},
    "operator": {
        "cancel_v1",
        "requeue_v1",
        "pools_v1",
        "add_hold_v1",
        "remove_hold_v1",
        "holds_v1",
        "holds_outstanding_v1",
        "release_held_v1",
        "lock_unheld_v1",
        "mark_held_v1",
        "schedules_v1",
        "versions_v1",
        "materialise_v1",
    },
    None: set(),
}
MAY_READ = {"controller", "reader", "operator"}


@pytest.fixture(scope="module")
def logins(shared_dsn: str) -> Iterator[dict[str | None, str]]:
    """A login for every role, and one (None) without any."""
    names: dict[str | None, str] = {role: f"{role}_{uuid.uuid4().hex[:8]}" for role in ROLES if role != "owner"}
    names[None] = f"nobody_{uuid.uuid4().hex[:8]}"
    with scenario.connect(shared_dsn) as connection:
        for name in names.values():
            connection.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
        migrate(shared_dsn, [f"{name}={role}" for role, name in names.items() if role])
        yield names
        for name in names.values():
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def become(connection: Connection, login: str) -> None:
    connection.execute(sql.SQL("set session authorization {}").format(sql.Identifier(login)))


def allowed(connection: Connection, statement: str) -> bool:
    """Whether the login may execute it; its effect is rolled back, and a refusal of its values is none of its right."""
    with connection.transaction(force_rollback=True):
        try:
            connection.execute(statement)
        except psycopg.errors.InsufficientPrivilege:
            return False
        except psycopg.Error as error:
            if not (error.sqlstate or "").startswith("SK"):
                raise
    return True


@pytest.mark.parametrize("role", [*MAY_CALL])
def test_each_role_calls_its_functions_and_no_others(
    shared_dsn: str, logins: dict[str | None, str], role: str | None
) -> None:
    with scenario.connect(shared_dsn) as connection:
        become(connection, logins[role])
        may = {
            name for name, values in CALLS.items() if allowed(connection, f"select * from slotkeeper.{name}{values}")
        }
    assert may == MAY_CALL[role]


def test_triggering_and_storing_schedules(shared_dsn: str, logins: dict[str | None, str]) -> None:
    """Two functions whose call needs a schedule: by their privilege."""
    with scenario.connect(shared_dsn) as connection:
        for name, roles in (("trigger_v1", {"controller", "operator"}), ("store_schedule_v1", {"controller"})):
            function = one(connection, "select oid::regprocedure::text from pg_proc where proname = %s", name)
            may = {
                role for role, login in logins.items()
                if one(connection, "select has_function_privilege(%s, %s, 'execute')", login, function)
            }  # fmt: skip
            assert may == roles


@pytest.mark.parametrize("role", [*MAY_CALL])
def test_nobody_touches_a_table_and_some_read_the_views(
    shared_dsn: str, logins: dict[str | None, str], role: str | None
) -> None:
    with scenario.connect(shared_dsn) as connection:
        relations = rows(
            connection,
            "select relname as name from pg_class where relnamespace = 'slotkeeper'::regnamespace"
            " and relkind in ('r', 'p', 'v', 'S')",
        )  # fmt: skip
        become(connection, logins[role])
        readable = {
            row.name for row in relations if allowed(connection, f"select * from slotkeeper.{row.name} limit 0")
        }
    assert readable == ({"job", "health"} if role in MAY_READ else set())


def test_a_reader_reads_through_the_views_what_it_may_not_read_itself(
    shared_dsn: str, logins: dict[str | None, str]
) -> None:
    with scenario.connect(shared_dsn) as connection:
        run = enqueue(connection, namespace="elsewhere", key="k")
        schedule = scenario.add_schedule(connection, namespace="elsewhere")
        schedule.materialise([scenario.EPOCH])
        become(connection, logins["reader"])
        found = {row.id for row in rows(connection, "select id from slotkeeper.job where namespace = 'elsewhere'")}
        assert str(run.id) in found
        assert len(found) == 2
        assert rows(connection, "select * from slotkeeper.health where namespace = 'elsewhere'") != []


def test_a_worker_works_with_its_own_rights_only(shared_dsn: str, logins: dict[str | None, str]) -> None:
    with scenario.connect(shared_dsn) as connection:
        enqueue(connection, namespace="workshop")
        become(connection, logins["worker"])
        worker = add_worker(connection, namespaces=["workshop"])
        worker.finish_batch(worker.claim())
        enqueue(connection, namespace="workshop")
        worker.finish(worker.claim()[0], "failed")
        reap(connection)
        assert one(connection, "select slotkeeper.leave_v1(%s)", worker.id)


def test_a_worker_of_another_login_is_out_of_reach(shared_dsn: str, logins: dict[str | None, str]) -> None:
    with scenario.connect(shared_dsn) as connection:
        enqueue(connection, namespace="theirs")
        theirs = add_worker(connection, namespaces=["theirs"])
        become(connection, logins["worker"])
        assert rows(connection, "select * from slotkeeper.beat_v1(%s)", theirs.id) == []
        with pytest.raises(psycopg.DatabaseError) as caught:
            theirs.claim()
        assert caught.value.sqlstate == "SK002"


def test_a_grant_of_a_queue_binds_the_login(shared_dsn: str, logins: dict[str | None, str]) -> None:
    with scenario.connect(shared_dsn) as connection, connection.transaction(force_rollback=True):
        enqueue(connection, namespace="shop", queue="mail")
        enqueue(connection, namespace="shop", queue="slow")
        connection.execute("delete from slotkeeper.queue_grant")
        connection.execute(
            "insert into slotkeeper.queue_grant values (%s, 'shop', 'mail', true, true)", (logins["worker"],)
        )
        become(connection, logins["worker"])
        worker = add_worker(connection, namespaces=["*"], queues=["*"])
        assert len(worker.claim()) == 1
        enqueue(connection, namespace="shop", queue="mail")
        with pytest.raises(psycopg.DatabaseError) as caught, connection.transaction():
            enqueue(connection, namespace="shop", queue="slow")
        assert caught.value.sqlstate == "SK003"


def test_who_reaps_is_told_only_names_of_queues_that_it_may_claim_from(
    shared_dsn: str, logins: dict[str | None, str]
) -> None:
    """Its metrics would show them to its tenant."""
    told = {}
    for role in ("worker", "controller"):
        with scenario.connect(shared_dsn) as connection, connection.transaction(force_rollback=True):
            connection.execute("delete from slotkeeper.worker")
            connection.execute("delete from slotkeeper.queue_grant where login = '*'")
            connection.execute(
                "insert into slotkeeper.queue_grant values (%s, 'shop', 'mail', true, true)", (logins["worker"],)
            )
            connection.execute("insert into slotkeeper.queue_grant values (session_user, '*', '*', true, true)")
            add_worker(connection)  # somebody lives
            for queue in ("mail", "slow"):
                enqueue(connection, namespace="shop", queue=queue)
            theirs = add_worker(connection, namespaces=["shop"], queues=["*"], pool="theirs")
            assert len(theirs.claim()) == 2
            connection.execute("update slotkeeper.worker set lease_until = 'epoch' where id = %s", (theirs.id,))
            become(connection, logins[role])
            reaped = rows(connection, "select * from slotkeeper.reap_v2(null, false)")[0]
            assert reaped.given_back == 2
            told[role] = sorted((lost["namespace"], lost["queue"], lost["pool"], lost["ready"]) for lost in reaped.lost)
    assert told["controller"] == [("shop", "mail", "theirs", 1), ("shop", "slow", "theirs", 1)]
    assert told["worker"] == [("", "", "", 1), ("shop", "mail", "theirs", 1)]


def functions(connection: Connection) -> list[Any]:
    return rows(
        connection,
        "select proname as name, prosecdef as definer, proconfig as settings, prosrc as source,"
        " pg_get_userbyid(proowner) as owner, proacl::text[] as acl from pg_proc"
        " where pronamespace = 'slotkeeper'::regnamespace",
    )  # fmt: skip


def test_nothing_is_granted_to_public(connection: Connection) -> None:
    for function in functions(connection):
        assert function.acl is not None, f"{function.name}: never revoked, so PUBLIC executes it"
        assert not [entry for entry in function.acl if entry.startswith("=")], function.name
    assert not one(connection, "select has_schema_privilege('public', 'slotkeeper', 'usage')")


def test_every_function_is_the_owners_and_pins_its_search_path(connection: Connection) -> None:
    found = functions(connection)
    assert len(found) > 30
    for function in found:
        assert function.owner == "slotkeeper_owner", function.name
        assert "search_path=pg_catalog, slotkeeper, pg_temp" in (function.settings or []), function.name


def test_a_client_calls_only_functions_with_a_protocol_number(connection: Connection) -> None:
    for function in functions(connection):
        granted = [entry for entry in function.acl if not entry.startswith("slotkeeper_owner=")]
        assert function.definer == (re.search(r"_v\d+$", function.name) is not None) or not granted, function.name


def test_only_the_two_partition_functions_have_dynamic_sql(connection: Connection) -> None:
    dynamic = {
        function.name for function in functions(connection) if re.search(r"\bexecute\b", function.source, re.IGNORECASE)
    }
    assert dynamic == {"ensure_partitions_v1", "drop_partitions_v1"}
    assert not one(connection, "select has_function_privilege('slotkeeper_controller', oid, 'execute') from pg_proc"
                   " where proname = 'drop_partitions_v1'")  # fmt: skip

"""Who shares a database shares nothing else: no field of an object reaches a worker of another namespace, and a login
that is granted one queue learns nothing of any other.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from psycopg import sql

from applied_schedules import AppliedSchedules, jobschedule
from processes import eventually, own_processes
from scenario import add_worker, connect, enqueue, one, reap, records, rows
from slotkeeper.store.migrate import migrate
from worker_place import HANDLERS

CRD = Path(__file__).parents[2] / "crds" / "jobschedules.yaml"
#: Ways to say the other namespace, its queue, or everybody's.
ELSEWHERE = ("team-a", "team-a/default", "../team-a", "team-a.default", "*", "default,team-a", "team-a\x00", "Team-A")


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(dsn) as connection:
        yield connection


@pytest.fixture
def schedules(dsn: str, connection: psycopg.Connection[Any]) -> Iterator[AppliedSchedules]:
    schedules = AppliedSchedules(dsn, connection)
    yield schedules
    schedules.close()


def places(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every field of the spec that holds text or anything at all; ``[]`` stands for an entry of a list."""
    if schema.get("properties"):
        for name, field in schema["properties"].items():
            yield from places(field, (*path, name))
    elif schema["type"] == "array":
        yield from places(schema["items"], (*path, "[]"))
    elif schema["type"] in ("string", "object"):
        yield path


def with_value(path: tuple[str, ...], value: Any) -> Any:
    for name in reversed(path):
        value = [value] if name == "[]" else {name: value}
    return value


def hostile_specs() -> Iterator[dict[str, Any]]:
    """The smallest spec with one field that says where else it would like to run; nobody has checked it."""
    version = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]
    spec_schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    fields = [*places(spec_schema)]
    assert len(fields) > 15
    for path in fields:
        for word in ELSEWHERE:
            value: Any = word
            if path[-1] in ("payload", "template"):
                value = {"namespace": word, "metadata": {"namespace": word}, "queue": word, "spec": {"queue": word}}
            spec = {"cron": ["0 * * * *"], "task": "succeed", **with_value(path, value)}
            if path[0] in ("every", "at"):
                del spec["cron"]
            if path[0] in ("command", "http", "job"):
                del spec["task"]
            yield spec
    for word in ELSEWHERE:
        # Fields that do not exist, where others would look for them.
        for name in ("namespace", "targetNamespace", "pool", "worker", "lane", "cluster"):
            yield {"cron": ["0 * * * *"], "task": "succeed", name: word}


def test_no_field_of_an_object_reaches_a_worker_of_another_namespace(
    schedules: AppliedSchedules, connection: psycopg.Connection[Any]
) -> None:
    """Objects of team-b, without the CRD's checks before them; what is accepted falls due and is triggered, too."""
    objects = [
        {**jobschedule(f"hostile-{number}", "team-b"), "spec": spec} for number, spec in enumerate(hostile_specs())
    ]
    for obj, word in zip(objects, ELSEWHERE, strict=False):
        obj["metadata"]["labels"] = obj["metadata"]["annotations"] = {
            "slotkeeper.dev/namespace": word, "slotkeeper.dev/queue": word, "slotkeeper.dev/trigger": f"{word}#1",
        }  # fmt: skip
    outcomes = [str(applied.outcome) for applied in schedules._applier.apply(objects)]
    assert outcomes.count("stored") > 10
    assert outcomes.count("refused") > 50
    for number, obj in enumerate(objects):
        obj["metadata"]["annotations"] = {"slotkeeper.dev/trigger": f"team-a/report#{number}"}
    schedules._applier.apply(objects)
    connection.execute(
        "update slotkeeper.schedule set watermark = watermark - interval '1 hour',"
        " watermark_highest = watermark - interval '1 hour', next_due = clock_timestamp() where not suspended"
    )
    schedules._ticker.tick()
    made = rows(
        connection, "select namespace, idempotency_key from slotkeeper.job where status in ('ready', 'running')"
    )
    assert len(made) > 20
    assert {row.namespace for row in made} == {"team-b"}
    assert all(row.idempotency_key.startswith("team-b/hostile-") for row in made if row.idempotency_key)
    assert add_worker(connection, namespaces=["team-a"], queues=["*"]).claim(1000) == []
    theirs = add_worker(connection, namespaces=["team-b"], queues=["*"])
    assert len(theirs.claim(1000)) == one(connection, "select count(*) from slotkeeper.run where state <> 0") > 20


def test_a_worker_that_does_not_allow_commands_never_runs_one(
    dsn: str, schedules: AppliedSchedules, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """However the command comes: as an action, by hand, ad hoc under its name, or in a payload."""
    marker = tmp_path / "ran"
    command = ["touch", str(marker)]
    name = schedules.add(command=command)
    posing = schedules.add(task="command", payload={"command": command, "argv": command})
    with own_processes(tmp_path) as processes:
        processes.worker(dsn, HANDLERS, allow="task")
        schedules.fire(name)
        schedules.fire(posing)
        schedules.trigger(name, "by-hand", every={"periodSeconds": 3600}, command=command)
        enqueue(connection, "command", payload=f'{{"command": ["touch", "{marker}"]}}')
        tried = "select status, last_error from slotkeeper.job where attempts > 0 and status = 'ready'"
        eventually(lambda: len(rows(connection, tried)) == 4, "each was given back")
        said = sorted({row.last_error.partition(":")[0] for row in rows(connection, tried)})
        assert said == ["ActionNotAllowed", "NoHandler"]
    assert not marker.exists()


@pytest.fixture
def login(dsn: str, connection: psycopg.Connection[Any]) -> Iterator[str]:
    """A worker's login that is granted the queue `mail` of the namespace `shop`, where nobody has everything."""
    name = f"tenant_{uuid.uuid4().hex[:8]}"
    connection.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
    migrate(dsn, [f"{name}=worker"])
    connection.execute("delete from slotkeeper.queue_grant")
    connection.execute("insert into slotkeeper.queue_grant values (%s, 'shop', 'mail', true, true)", (name,))
    yield name
    connection.execute("reset session authorization")
    connection.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
    connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def test_a_login_that_is_granted_one_queue_learns_nothing_of_another(
    schedules: AppliedSchedules, connection: psycopg.Connection[Any], login: str
) -> None:
    secret = {"secret": "of somebody else"}
    own = schedules.add("shop", task="succeed", queue="mail", payload={"mine": 1}, overlapPolicy="Allow")
    others = [
        schedules.add("shop", task="succeed", queue="slow", payload=secret),
        schedules.add("bank", task="succeed", queue="mail", payload=secret),
    ]
    for name in (own, *others):
        schedules.fire(name)
    stranger = add_worker(connection, namespaces=["*"], queues=["*"])
    keys = rows(connection, "select owner, version, id from slotkeeper.schedule order by id")
    lanes = [row.id for row in rows(connection, "select id from slotkeeper.lane")]
    owners, versions = [row.owner for row in keys], [row.version for row in keys]
    read = "select namespace, name, spec, payload from slotkeeper.versions_v1(%s::bigint[], %s::int[])"
    connection.execute(sql.SQL("set session authorization {}").format(sql.Identifier(login)))

    assert rows(connection, read, owners, versions) == []  # not even its own, before it has claimed one
    worker = add_worker(connection, namespaces=["*"], queues=["*"])
    assert [tuple(row)[1:3] for row in rows(connection, "select * from slotkeeper.lanes_v1(%s)", worker.id)] == [
        ("shop", "mail")
    ]
    for asked in (worker, stranger):
        told = records(connection, "select * from slotkeeper.own_queues_v1(%s, 100)", asked.id)
        assert [(queue["namespace"], queue["queue"], queue["ready"]) for queue in told] == [("shop", "mail", 1)]
    # It asks for every lane there is, and gets its own.
    claimed = rows(
        connection,
        "select id, owner from slotkeeper.work_v1(%s, %s, %s::int[], %s::timestamptz[], %s::bigint[], null, 100, 0,"
        " '{}', '{}', 0, 0, '{}', false) where id <> 0",
        worker.id, uuid.uuid4(), lanes, [None] * len(lanes), [None] * len(lanes),
    )  # fmt: skip
    assert [row.owner for row in claimed] == [keys[0].owner]
    assert [(row.namespace, row.name) for row in rows(connection, read, owners, versions)] == [("shop", own)]
    for view in ("job", "health", "run", "schedule_version", "worker", "queue_grant"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"select * from slotkeeper.{view}")
    for queue, namespace in (("slow", "shop"), ("mail", "bank")):
        with pytest.raises(psycopg.DatabaseError) as caught:
            enqueue(connection, queue=queue, namespace=namespace)
        assert caught.value.sqlstate == "SK003"
    assert reap(connection) is not None

    connection.execute("reset session authorization")
    assert len(rows(connection, read, owners, versions)) == len(keys)

"""Everything but leadership and migrations through a real PgBouncer in transaction mode, as it comes with Debian 12:
without support for prepared statements. `pgbouncer` is taken from PATH.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from applied_schedules import jobschedule
from processes import eventually
from slotkeeper import enqueue
from slotkeeper.child_process import dies_with_parent
from slotkeeper.errors import InvalidField
from slotkeeper.operator.leadership import Leadership
from worker_place import Place


@pytest.fixture
def pooled_dsn(dsn: str, tmp_path: Path) -> Iterator[str]:
    """The database of this test through a PgBouncer with two server connections for all clients together."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    assert program is not None, "pgbouncer is not installed: apt-get install pgbouncer"
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    server = conninfo_to_dict(dsn)
    configuration = tmp_path / "pgbouncer.ini"
    lines = [
        "[databases]", f"* = host={server['host']} dbname={server['dbname']} user={server['user']}",
        "[pgbouncer]", "listen_addr = 127.0.0.1", f"listen_port = {port}", "unix_socket_dir =", "auth_type = any",
        "pool_mode = transaction", "default_pool_size = 2", "max_client_conn = 200",
    ]  # fmt: skip
    if os.geteuid() == 0:
        lines.append("user = nobody")  # it refuses to be root
    configuration.write_text("\n".join(lines) + "\n")
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    with (tmp_path / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen(
            [program, str(configuration)], stdout=log, stderr=log, preexec_fn=dies_with_parent(signal.SIGKILL)
        )
    try:
        pooled = make_conninfo("", host="127.0.0.1", port=port, dbname=server["dbname"], user=server["user"])

        def answers() -> bool:
            assert process.poll() is None, (tmp_path / "pgbouncer.log").read_text()
            try:
                psycopg.connect(pooled, connect_timeout=5).close()
            except psycopg.OperationalError:
                return False
            return True

        eventually(answers, "PgBouncer answers")
        yield pooled
    finally:
        process.terminate()
        process.wait(10)


def test_it_is_a_pooler(pooled_dsn: str) -> None:
    """Else the other tests would show nothing: a session's lock stays behind with whoever comes next."""
    with psycopg.connect(pooled_dsn, autocommit=True) as first, psycopg.connect(pooled_dsn, autocommit=True) as second:
        servers = {connection.execute("select pg_backend_pid()").fetchone() for connection in (first, second)}
    assert len(servers) == 1


def test_slots_are_made_claimed_and_finished(place: Place, pooled_dsn: str) -> None:
    """Controller and worker, with more clients than server connections; none of them leaves anything in a session."""
    place.schedules.apply(
        *[
            jobschedule(f"every-ten-{number}", every={"periodSeconds": 10}, task="note", overlapPolicy=overlap)
            for number, overlap in enumerate(["Allow", "Skip", "Queue", "Replace"])
        ]
    )
    place.connection.execute(
        "update slotkeeper.schedule set watermark = watermark - interval '10 seconds',"
        " watermark_highest = watermark - interval '10 seconds', next_due = clock_timestamp()"
    )
    controllers = [place.processes.controller(pooled_dsn) for _ in range(2)]
    workers = [place.processes.worker(pooled_dsn, place.handlers) for _ in range(2)]
    eventually(lambda: place.value("select count(*) from slotkeeper.worker") == 2, "both are there", seconds=90)
    key = uuid.uuid4().hex
    with psycopg.connect(pooled_dsn, prepare_threshold=None) as connection:
        made = []
        for number in range(30):
            made.append(enqueue(connection, "note", key=f"{key}-{number}").id)
            connection.commit()
        assert enqueue(connection, "note", key=f"{key}-0").id == made[0]
    for run in made:
        assert place.ended(run).attempts == 1
    eventually(
        lambda: place.value("select count(distinct schedule) from slotkeeper.job where status = 'done'") == 4,
        "a slot of each schedule is done",
    )  # fmt: skip
    eventually(lambda: place.value("select count(*) from slotkeeper.state_delta") == 0, "outcomes are folded")
    assert place.value("select count(*) from slotkeeper.run_error") == 0
    for process in (*controllers, *workers):
        assert process.stop() == 0, process.text()[-3000:]
        assert process.log("step_crashed") + process.log("step_failed") + process.log("database_away") == []
    assert place.value("select count(*) from slotkeeper.worker") == 0, "both have left"
    left = (
        "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database"
        " where datname = current_database())"
    )
    assert place.value(left) == 0


def test_complete_through_the_pooler_is_exactly_once(place: Place, pooled_dsn: str) -> None:
    place.connection.execute("create table effect (run bigint)")
    worker = place.processes.worker(pooled_dsn, place.handlers, EFFECT_DSN=pooled_dsn)
    eventually(lambda: place.value("select count(*) from slotkeeper.worker"), "it is there", seconds=90)
    runs = [place.enqueue("effect") for _ in range(10)]
    for run in runs:
        assert place.ended(run).attempts == 1
    assert place.value("select array_agg(run order by run) from effect") == sorted(runs)
    assert worker.stop() == 0


def test_a_lease_that_ends_is_found_through_the_pooler(place: Place, pooled_dsn: str) -> None:
    first = place.processes.worker(pooled_dsn, place.handlers, lease_seconds=2)
    eventually(lambda: place.value("select count(*) from slotkeeper.worker"), "it is there", seconds=90)
    run = place.enqueue("nap", '{"seconds": 30}')
    place.began(run)
    second = place.processes.worker(pooled_dsn, place.handlers, lease_seconds=2)
    eventually(lambda: place.value("select count(*) from slotkeeper.worker") == 2, "both are there", seconds=90)
    first.kill()
    assert place.ended(run).attempts == 2
    assert second.stop() == 0


@pytest.mark.parametrize("flag", ["--direct-dsn", "--dsn"])
def test_a_controller_that_would_lead_through_it_refuses_to_start(place: Place, pooled_dsn: str, flag: str) -> None:
    kubeconfig = place.processes.folder / "kubeconfig"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}],"
        " clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: x, user: {token: x}}]}"
    )
    direct = ("--direct-dsn", pooled_dsn) if flag == "--direct-dsn" else ()
    dsn = place.dsn if direct else pooled_dsn
    controller = place.processes.controller(dsn, "--kubernetes", "--kubeconfig", str(kubeconfig), *direct)
    assert controller.wait(240) == 2, controller.text()
    last = controller.text().splitlines()[-1]
    assert last.startswith("slotkeeper: --direct-dsn: "), controller.text()
    assert "pooler" in last
    assert place.value("select count(*) from pg_locks where locktype = 'advisory'") == 0


def test_a_direct_one_beside_a_pooled_one_is_taken(place: Place, pooled_dsn: str) -> None:
    with pytest.raises(InvalidField, match="--direct-dsn"):
        Leadership(pooled_dsn, "default").refuse_pooler()
    leadership = Leadership(place.dsn, "default")
    leadership.refuse_pooler()
    assert leadership.confirm()
    leadership.close()

"""The numbers over HTTP and as gauges: what is served, to whom, and that nothing old ever is."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import scenario
from processes import eventually, own_processes
from scenario import add_worker, enqueue, one, rows
from slotkeeper.cli.embedded_postgres import EmbeddedPostgres
from slotkeeper.cli.main import commands
from slotkeeper.database_clock import boot_seconds
from slotkeeper.metrics import scaling
from slotkeeper.metrics.scaling import PoolNumbers, StaleNumbers
from slotkeeper.metrics.scaling_collector import ScalingCollector
from slotkeeper.metrics.scaling_endpoint import add_scaling_routes
from slotkeeper.metrics.server import Address, HttpServer

POOL = "/scaling/v1/namespaces/default/pools/default"
HANDLERS = Path(__file__).parents[1] / "worker" / "handlers.py"
Ask = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with scenario.connect(dsn) as opened:
        yield opened


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """So many seconds have passed for whoever keeps numbers."""
    passed = [0.0]
    monkeypatch.setattr(scaling, "boot_seconds", lambda: boot_seconds() + passed[0])

    def pass_by(seconds: float) -> None:
        passed[0] += seconds

    return pass_by


@pytest.fixture
def numbers(dsn: str, later: object) -> Iterator[PoolNumbers]:
    numbers = PoolNumbers(dsn)
    numbers.actor.start()
    yield numbers
    numbers.actor.stop()


@pytest.fixture
def serve() -> Iterator[Callable[..., Ask]]:
    """Serves numbers; returns what asks it for a path, with a token or without."""
    servers = []

    def start(numbers: PoolNumbers, token_file: Path | None = None) -> Ask:
        server = HttpServer(Address("127.0.0.1", 0), [lambda app: add_scaling_routes(app, numbers, token_file)])
        server.start()
        servers.append(server)

        def ask(path: str = POOL, *, token: str | None = None) -> tuple[int, dict[str, Any]]:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, json.load(error)

        return ask

    yield start
    for server in servers:
        server.stop()


def cut_off(postgres: EmbeddedPostgres, dsn: str) -> None:
    """The database of ``dsn`` takes no connections any more."""
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    assert isinstance(name, str)
    with psycopg.connect(postgres.dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("alter database {} with allow_connections false").format(sql.Identifier(name)))
        admin.execute("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s", (name,))


def test_a_known_pool_is_told_with_its_parts(
    connection: psycopg.Connection[Any], numbers: PoolNumbers, serve: Callable[..., Ask]
) -> None:
    worker = add_worker(connection)
    for _ in range(45):
        enqueue(connection)
    worker.claim(3)
    assert serve(numbers)() == (
        200,
        {
            "namespace": "default", "pool": "default", "workers_wanted": 3, "claimable": 42, "running": 3,
            "due_soon": 0, "workers_holding_long_runs": 0, "workers": 1, "concurrency": 20,
        },
    )  # fmt: skip


def test_an_idle_pool_is_zero_and_an_unknown_one_an_error(
    connection: psycopg.Connection[Any], numbers: PoolNumbers, serve: Callable[..., Ask]
) -> None:
    add_worker(connection)
    ask = serve(numbers)
    status, told = ask()
    assert (status, told["workers_wanted"]) == (200, 0)
    status, told = ask("/scaling/v1/namespaces/default/pools/reports")
    assert status == 404
    assert "'reports'" in told["error"]
    assert ask("/scaling/v1/namespaces/billing/pools/default")[0] == 404


def test_a_token_is_asked_for_and_may_be_rotated(
    connection: psycopg.Connection[Any], numbers: PoolNumbers, serve: Callable[..., Ask], tmp_path: Path
) -> None:
    add_worker(connection)
    file = tmp_path / "token"
    file.write_text("first\n")
    ask = serve(numbers, file)
    assert [ask()[0], ask(token="wrong")[0], ask(token="")[0], ask(token="first")[0]] == [401, 401, 401, 200]
    file.write_text("second\n")
    assert [ask(token="first")[0], ask(token="second")[0]] == [401, 200]
    for nothing in (lambda: file.write_text("\n"), file.unlink):
        nothing()
        assert [ask()[0], ask(token="")[0], ask(token="second")[0]] == [401, 401, 401]


def test_numbers_are_kept_for_seconds(
    connection: psycopg.Connection[Any],
    numbers: PoolNumbers,
    serve: Callable[..., Ask],
    later: Callable[[float], None],
) -> None:
    add_worker(connection)
    ask = serve(numbers)
    assert ask()[1]["claimable"] == 0
    enqueue(connection)
    assert ask()[1]["claimable"] == 0
    later(5.1)
    assert ask()[1]["claimable"] == 1


def test_numbers_that_became_old_are_an_error(
    postgres: EmbeddedPostgres,
    dsn: str,
    connection: psycopg.Connection[Any],
    numbers: PoolNumbers,
    serve: Callable[..., Ask],
    later: Callable[[float], None],
) -> None:
    add_worker(connection)
    enqueue(connection)
    ask = serve(numbers)
    assert ask()[0] == 200
    connection.close()
    cut_off(postgres, dsn)
    later(20)
    assert ask()[1]["workers_wanted"] == 1
    later(11)
    status, told = ask()
    assert status == 503
    assert "old" in told["error"]
    assert gauges(numbers) == {}


def test_a_database_that_never_answered_is_an_error(dsn: str, serve: Callable[..., Ask]) -> None:
    numbers = PoolNumbers(make_conninfo(dsn, host="127.0.0.1", port="1"))
    numbers.actor.start()
    try:
        assert serve(numbers)()[0] == 503
        with pytest.raises(StaleNumbers):
            numbers.all()
        assert gauges(numbers) == {}
    finally:
        numbers.actor.stop()


def gauges(numbers: PoolNumbers) -> dict[str, float]:
    """Name to value of the pool `default` in the text that Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(ScalingCollector(numbers))
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    labels = '{namespace="default",pool="default"}'
    return {line.split(labels)[0]: float(line.split()[-1]) for line in lines if labels in line}


def test_every_part_is_a_gauge(connection: psycopg.Connection[Any], numbers: PoolNumbers) -> None:
    worker = add_worker(connection)
    for _ in range(45):
        enqueue(connection)
    worker.claim(3)
    assert gauges(numbers) == {
        "slotkeeper_pool_workers_wanted": 3, "slotkeeper_pool_claimable_runs": 42, "slotkeeper_pool_running_runs": 3,
        "slotkeeper_pool_due_soon_runs": 0, "slotkeeper_pool_workers_holding_long_runs": 0,
        "slotkeeper_pool_workers": 1, "slotkeeper_pool_concurrency_runs": 20,
    }  # fmt: skip


def test_people_see_the_same_numbers(dsn: str, connection: psycopg.Connection[Any]) -> None:
    add_worker(connection)
    enqueue(connection)
    table = CliRunner().invoke(commands, ["pools", "--dsn", dsn])
    assert table.exit_code == 0, table.output
    assert [line.split() for line in table.output.splitlines()] == [
        ["NAMESPACE", "POOL", "WANTED", "WORKERS", "CLAIMABLE", "RUNNING", "DUE", "SOON", "HOLDING", "CONCURRENCY"],
        ["default", "default", "1", "1", "1", "0", "0", "0", "20"],
    ]
    (pool,) = json.loads(CliRunner().invoke(commands, ["pools", "--dsn", dsn, "-o", "json"]).output)
    assert (pool["pool"], pool["workers_wanted"]) == ("default", 1)


def test_a_pool_is_declared_before_its_first_worker(dsn: str, connection: psycopg.Connection[Any]) -> None:
    enqueue(connection, namespace="billing", queue="reports")
    declared = CliRunner().invoke(
        commands, ["declare-pool", "billing/reports", "--dsn", dsn, "--queues", "reports", "--concurrency", "5"]
    )
    assert declared.exit_code == 0, declared.output
    (pool,) = json.loads(CliRunner().invoke(commands, ["pools", "--dsn", dsn, "-o", "json"]).output)
    assert (pool["namespace"], pool["pool"], pool["workers_wanted"], pool["concurrency"]) == (
        "billing", "reports", 1, 5,
    )  # fmt: skip
    wrong = CliRunner().invoke(commands, ["declare-pool", "reports", "--dsn", dsn])
    assert wrong.exit_code == 2
    assert "'reports' is no pool; write NAMESPACE/NAME" in wrong.output


def test_a_worker_says_which_pool_it_belongs_to(dsn: str, connection: psycopg.Connection[Any], tmp_path: Path) -> None:
    with own_processes(tmp_path) as processes:
        processes.worker(dsn, HANDLERS, pool="billing/reports", namespaces="shop", queues="mail", listen="off")
        eventually(lambda: one(connection, "select count(*) from slotkeeper.pool"), "registered")
    assert [
        tuple(row) for row in rows(connection, "select namespace, name, namespaces, queues from slotkeeper.pool")
    ] == [("billing", "reports", ["shop"], ["mail"])]

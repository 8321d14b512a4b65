"""The API external.metrics.k8s.io over TLS: as the aggregation layer asks, and how everybody else is refused."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from aiohttp import web
from psycopg.conninfo import make_conninfo

import scenario
from certificates import Authority, new_authority
from processes import OwnProcess, Processes, eventually, own_processes
from scenario import add_worker, enqueue
from slotkeeper.errors import InvalidField
from slotkeeper.metrics.external_metrics_server import TlsFiles, TlsServer

ROOT = "/apis/external.metrics.k8s.io"
METRIC = f"{ROOT}/v1beta1/namespaces/default/slotkeeper_workers_wanted?labelSelector="
ONE_POOL = METRIC + quote("pool=default")


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with scenario.connect(dsn) as opened:
        yield opened


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return new_authority(tmp_path, "front-proxy-ca")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with own_processes(tmp_path) as processes:
        yield processes


class Api:
    """One of our processes, asked over TLS."""

    def __init__(self, process: OwnProcess, authority: Authority) -> None:
        self.process = process
        self.port = eventually(lambda: process.log("serving"), "serving")[0]["port"]
        self.authority = authority
        self.proxy = authority.issue("front-proxy-client")

    def ask(self, path: str = ONE_POOL, *, certificate: tuple[Path, Path] | None = None) -> tuple[int, dict[str, Any]]:
        """Status and document, as the aggregation layer would get them; or with another certificate."""
        status, text = ask(self.port, path, self.authority, certificate or self.proxy)
        return status, json.loads(text)

    def probe(self, path: str) -> int:
        """Without a certificate."""
        return ask(self.port, path, self.authority, None)[0]


def ask(port: int, path: str, authority: Authority, certificate: tuple[Path, Path] | None) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if certificate is not None:
        context.load_cert_chain(*certificate)
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.fixture
def serve(processes: Processes, authority: Authority) -> Callable[..., Api]:
    """Starts `slotkeeper external-metrics` on a free port."""

    def start(dsn: str, *more: str) -> Api:
        certificate, key = authority.issue("server", dns="DNS:localhost")
        process = processes.start(
            "external-metrics", "--dsn", dsn, "--tls-cert-file", str(certificate), "--tls-private-key-file", str(key),
            "--requestheader-client-ca-file", str(authority.certificate), "--secure-port", "0",
            "--log-format", "json", *more,
        )  # fmt: skip
        return Api(process, authority)

    return start


def test_it_answers_what_an_hpa_asks(dsn: str, connection: psycopg.Connection[Any], serve: Callable[..., Api]) -> None:
    add_worker(connection)
    for _ in range(45):
        enqueue(connection)
    api = serve(dsn)
    status, group = api.ask(ROOT)
    assert (status, group["kind"], group["preferredVersion"]["version"]) == (200, "APIGroup", "v1beta1")
    status, resources = api.ask(f"{ROOT}/v1beta1")
    assert (status, resources["kind"]) == (200, "APIResourceList")
    assert [resource["name"] for resource in resources["resources"]] == ["slotkeeper_workers_wanted"]

    for selector in ("pool=default", "pool==default", "pool in (default)"):
        status, values = api.ask(METRIC + quote(selector))
        assert status == 200, values
        (item,) = values["items"]
        assert (values["kind"], values["apiVersion"]) == ("ExternalMetricValueList", "external.metrics.k8s.io/v1beta1")
        assert item.pop("timestamp").endswith("Z")
        assert item == {"metricName": "slotkeeper_workers_wanted", "metricLabels": {"pool": "default"}, "value": "3"}
    for selector in ("", "pool", "pool!=default", "pool in (a,b)", "pool=a,pool=b", "queue=default", "pool notin (a)"):
        status, told = api.ask(METRIC + quote(selector))
        assert (status, told["kind"], told["reason"]) == (400, "Status", "BadRequest"), selector
    for path, what in (
        (METRIC + quote("pool=reports"), "'reports'"),
        (ONE_POOL.replace("slotkeeper_workers_wanted", "queue_length"), "'queue_length'"),
        (ONE_POOL.replace("namespaces/default", "namespaces/billing"), "'billing'"),
        ("/apis/metrics.k8s.io", "Not Found"),
    ):
        status, told = api.ask(path)
        assert (status, told["kind"], told["code"], told["reason"]) == (404, "Status", 404, "NotFound")
        assert what in told["message"]


def test_only_the_aggregation_layer_is_answered(
    dsn: str, connection: psycopg.Connection[Any], serve: Callable[..., Api], authority: Authority, tmp_path: Path
) -> None:
    add_worker(connection)
    api = serve(dsn, "--requestheader-allowed-names", "front-proxy-client, aggregator")
    assert api.ask()[0] == 200
    assert api.ask(certificate=authority.issue("aggregator"))[0] == 200
    status, told = api.ask(certificate=authority.issue("somebody"))
    assert (status, told["reason"]) == (403, "Forbidden")
    for path in (ROOT, f"{ROOT}/v1beta1", ONE_POOL):
        assert api.probe(path) == 401
    assert [api.probe("/livez"), api.probe("/readyz")] == [200, 200]
    stranger = new_authority(tmp_path, "another-ca").issue("front-proxy-client")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        api.ask(certificate=stranger)


def test_without_the_database_only_the_number_is_refused(dsn: str, serve: Callable[..., Api]) -> None:
    api = serve(make_conninfo(dsn, host="127.0.0.1", port="1"))
    status, told = api.ask()
    assert (status, told["reason"]) == (503, "ServiceUnavailable")
    assert api.ask(f"{ROOT}/v1beta1")[0] == 200
    assert api.probe("/readyz") == 200


def test_it_leaves_only_after_it_has_said_so(dsn: str, serve: Callable[..., Api]) -> None:
    api = serve(dsn)
    assert api.probe("/readyz") == 200
    api.process.send(signal.SIGTERM)
    eventually(lambda: api.probe("/readyz") == 503, "not ready")
    assert api.ask(ROOT)[0] == 200
    assert api.process.wait() == 0


def test_certificates_are_followed(tmp_path: Path, authority: Authority) -> None:
    asyncio.run(_certificates_are_followed(tmp_path, authority))


async def _certificates_are_followed(tmp_path: Path, authority: Authority) -> None:
    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def answers(by: Authority, certificate: tuple[Path, Path]) -> bool:
        with suppress(ssl.SSLError, ConnectionError):
            return await asyncio.to_thread(ask, server.port, "/", by, certificate) == (200, "hello")
        return False

    app = web.Application()
    app.router.add_get("/", hello)
    serving, ca = (tmp_path / "tls.crt", tmp_path / "tls.key"), tmp_path / "ca.crt"
    ca.write_bytes(authority.certificate.read_bytes())
    authority.issue("server", dns="DNS:localhost", into=serving)
    old, new = authority.issue("client"), new_authority(tmp_path, "new-ca")
    server = TlsServer(app, TlsFiles(*serving, ca), port=0, look_seconds=0.02)
    await server.start()
    try:
        assert await answers(authority, old)
        # Half of a new pair is no pair: the former stays in use.
        former = serving[0].read_bytes()
        new.issue("server", dns="DNS:localhost", into=(serving[0], tmp_path / "new.key"))
        await server.look()
        assert await answers(authority, old)
        serving[0].write_bytes(former)
        # Serving certificate, key and the CA of clients are exchanged; connections that come then see all of it.
        new.issue("server", dns="DNS:localhost", into=serving)
        ca.write_bytes(new.certificate.read_bytes())
        follower = asyncio.create_task(server.follow_files())
        young = new.issue("client")
        while not await answers(new, young):  # noqa: ASYNC110 - what happens there sets no event
            await asyncio.sleep(0.02)
        follower.cancel()
        assert [await answers(new, young) for _ in range(10)] == 10 * [True]
        assert not await answers(new, old)
    finally:
        await server.stop()


def test_a_file_that_is_none_is_named(tmp_path: Path, authority: Authority) -> None:
    certificate, key = authority.issue("server")
    key.write_text("nothing")
    server = TlsServer(web.Application(), TlsFiles(certificate, key, authority.certificate), port=0)
    with pytest.raises(InvalidField, match="--tls-private-key-file"):
        asyncio.run(server.start())

"""From families to a response: ``/metrics`` in the format that the scraper asks for, compressed if it can be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from slotkeeper.metrics.server import Routes

#: Families of one scrape; asked anew for each.
Families = Callable[[], Awaitable[Iterable[Metric]]]

#: The own text format of Prometheus, which every version understands.
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"


class _Collected(Collector):
    """Families that were gathered before: encoders take a collector."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def metrics_routes(*sources: Families, collectors: Sequence[Collector] = ()) -> Routes:
    """``/metrics``: the families of ``sources`` and ``collectors``, and what the system says of the process."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    for collector in collectors:
        registry.register(collector)

    async def handle(request: web.Request) -> web.Response:
        families = [family for source in sources for family in await source()]
        # Whoever collects without a loop may wait for the database: probes must not wait with it.
        families += await asyncio.to_thread(lambda: list(registry.collect()))
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        text = encode(_Collected(families))
        return _response(text, content_type)

    def register(application: web.Application) -> None:
        application.router.add_get("/metrics", handle)

    return register


def _response(text: bytes, content_type: str) -> web.Response:
    response = web.Response(body=text, headers={"Content-Type": content_type})
    response.enable_compression()
    return response

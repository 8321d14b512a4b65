"""A controller's server in the process of the test: ticker and keeper do one step when they are asked to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from scraping import Scrape, get, scrape
from slotkeeper.cli.controller_http import ControllerParts, controller_http
from slotkeeper.keeper import Keeper
from slotkeeper.metrics.address import Address
from slotkeeper.operator import Operator
from slotkeeper.ticker import Ticker


@dataclass
class ControllerPlace:
    """What the server tells of, and where it listens."""

    parts: ControllerParts
    port: int

    def scrape(self, path: str = "/metrics") -> Scrape:
        return scrape(self.port, path)

    def status(self, path: str) -> int:
        return get(self.port, path).status


@contextmanager
def controller_place(
    dsn: str, *, cluster: str = "default", most_schedules: int = 10_000, operator: Operator | None = None
) -> Iterator[ControllerPlace]:
    """Its loops are not started: they begin when the test begins them."""
    parts = ControllerParts(Ticker(dsn), Keeper(dsn), threading.Event(), operator)
    served = controller_http(Address("127.0.0.1", 0), parts, dsn=dsn, cluster=cluster, most_schedules=most_schedules)
    served.start()
    try:
        yield ControllerPlace(parts, served.port)
    finally:
        parts.stopping.set()
        for actor in (parts.ticker.actor, *parts.keeper.actors):
            if actor.alive:
                actor.stop()
            else:
                actor._close()
        served.stop()

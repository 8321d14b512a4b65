"""What controller and worker both show: the build, and how things stand with the database."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from prometheus_client.core import Metric

from slotkeeper import __version__
from slotkeeper.metrics import catalogue
from slotkeeper.metrics.reading import Known
from slotkeeper.store.connection import Session
from slotkeeper.store.keeper import BECAME, LostLease
from slotkeeper.store.metrics import schema
from slotkeeper.store.worker import PROTOCOL
from slotkeeper.timetable import TZDATA_VERSION


def build_families(component: str) -> Iterable[Metric]:
    """``slotkeeper_build_info`` of a controller or a worker."""
    info = catalogue.BUILD_INFO.gauge()
    info.add_metric([component, __version__, str(PROTOCOL), TZDATA_VERSION, platform.python_version()], 1)
    yield info


class SchemaSeen(NamedTuple):
    """The schema, and how far the database's clock was ahead of ours (seconds)."""

    version: int
    clock_offset: float


def read_schema(session: Session) -> SchemaSeen:
    """Asks which schema is there. The answer is taken to be from the middle of the wait for it."""
    sent = time.time()
    found = schema(session)
    return SchemaSeen(found.version, found.moment - (sent + time.time()) / 2)


def database_families(known: Known[Any], seen: SchemaSeen | None) -> Iterable[Metric]:
    """From a reading, and what it said of the schema."""
    yield catalogue.DATABASE_UP.gauge(float(known.answered))
    if known.at is not None:
        yield catalogue.DATABASE_LAST_CONTACT.gauge(known.at)
    if seen is not None:
        yield catalogue.DATABASE_CLOCK_OFFSET.gauge(seen.clock_offset)
        yield catalogue.SCHEMA_VERSION.gauge(seen.version)


def lease_families(expirations: Mapping[LostLease, int], served: Iterable[tuple[str, str, str]]) -> Iterable[Metric]:
    """Runs taken from others. ``served``: namespace, queue and pool of what is there to be taken from; 0 is told of it
    beforehand, because a counter that begins with its first event hides it from ``increase``.
    """
    counted = {LostLease(*queue, became): 0 for queue in served for became in BECAME} | dict(expirations)
    family = catalogue.LEASE_EXPIRATIONS.counter()
    for lost in sorted(counted):
        family.add_metric(lost, counted[lost])
    yield family

"""``/metrics/schedules``: some series for each schedule, from one question to the database for all of them.

The text is written here, without families: for 10,000 schedules those would cost ten times as much. Only so many
schedules are shown; what is left out is said. A deleted schedule is gone with the next reading.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import structlog
from aiohttp import web

from slotkeeper.metrics import catalogue
from slotkeeper.metrics.catalogue import Definition
from slotkeeper.metrics.exposition import TEXT_FORMAT
from slotkeeper.metrics.reading import DatabaseReader
from slotkeeper.store.connection import Session
from slotkeeper.store.metrics import ScheduleFacts, schedules

_log = structlog.stdlib.get_logger()

#: Seconds for which one reading serves every scraper: they come once a minute, and there may be two of them.
SHARED_SECONDS = 15.0
#: The quickest level: it makes a fifteenth of the text, and the best one a twentieth for four times the work.
_COMPRESSION = 1

_GAUGES: Sequence[tuple[Definition, str]] = (
    (catalogue.LAST_SUCCESS, "last_success"),
    (catalogue.LAST_FAILURE, "last_failure"),
    (catalogue.CREATED, "created"),
    (catalogue.NEVER_SUCCEEDED, "never_succeeded"),
    (catalogue.SUCCESS_DUE, "success_due"),
    (catalogue.NEXT_SLOT, "next_slot"),
    (catalogue.OLDEST_PENDING, "oldest_pending"),
    (catalogue.DEAD_RUNS, "dead_runs"),
    (catalogue.CONSECUTIVE_DEAD, "consecutive_dead"),
    (catalogue.MISSED_SLOTS, "missed"),
    (catalogue.SUSPENDED, "suspended"),
    (catalogue.HELD, "held"),
)
_FLAGS = (catalogue.NEVER_SUCCEEDED, catalogue.SUSPENDED, catalogue.HELD)
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Written(NamedTuple):
    """The answer, plain and compressed."""

    text: bytes
    compressed: bytes


class ScheduleMetrics:
    """Of the schedules of one cluster name, at most ``limit`` of them, by namespace and name."""

    def __init__(
        self, reader: DatabaseReader, cluster: str, limit: int, *, seconds: float = SHARED_SECONDS
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._limit = limit
        self._left_out = 0
        self._written = reader.reading(self.write, seconds=seconds)

    def register(self, application: web.Application) -> None:
        """The route."""
        application.router.add_get("/metrics/schedules", self._handle)

    async def _handle(self, request: web.Request) -> web.Response:
        known = await self._written.known()
        written = known.value or Written(b"", b"")
        if not known.answered:  # what was read stands, because instants do not age; that it is old is said
            text = written.text.removeprefix(_UP) + _single(catalogue.DATABASE_UP, 0).encode()
            written = Written(text, gzip.compress(text, _COMPRESSION))
        headers = {"Content-Type": TEXT_FORMAT, "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=written.compressed, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=written.text, headers=headers)

    def write(self, session: Session) -> Written:
        """Asks and writes, in the reader's thread: the bytes, not the rows, are what is kept."""
        asked = time.time()
        rows = schedules(
            session, self._cluster, max(self._limit, 1)
        )  # one at least, because it tells how many there are
        stored, rows = rows[0].stored if rows else 0, rows[: self._limit]
        left_out = stored - len(rows)
        if left_out and not self._left_out:
            _log.warning("schedule_series_cut", shown=len(rows), left_out=left_out, flag="--max-schedule-series")
        self._left_out = left_out
        singles = _single(catalogue.LEFT_OUT, left_out) + _single(catalogue.SCHEDULES_READ, asked)
        text = _UP + "".join([*_families(rows), singles]).encode()
        return Written(text, gzip.compress(text, _COMPRESSION))


def _families(rows: Sequence[ScheduleFacts]) -> Iterable[str]:
    """Column by column: a lookup or a call for each of 100,000 values would double the cost."""
    columns = dict(zip(ScheduleFacts._fields, zip(*rows, strict=True), strict=True)) if rows else {}
    namespaces, names, queues = (_escaped(columns.get(column, ())) for column in ("namespace", "name", "queue"))
    labels = [f'{{namespace="{namespace}",schedule="{name}"' for namespace, name in zip(namespaces, names, strict=True)]
    yield _head(catalogue.SCHEDULE_INFO)
    info = catalogue.SCHEDULE_INFO.name
    yield "".join([f'{info}{label},queue="{queue}"}} 1\n' for label, queue in zip(labels, queues, strict=True)])
    labels = [f"{label}}} " for label in labels]
    for definition, column in _GAUGES:
        yield _head(definition)
        name, values = definition.name, columns.get(column, ())
        if definition in _FLAGS:
            values = tuple(map(int, values))
        yield "".join(
            [f"{name}{label}{value}\n" for label, value in zip(labels, values, strict=True) if value is not None]
        )


def _escaped(values: Sequence[str]) -> Sequence[str]:
    """Names of Kubernetes have nothing to escape; to look at all of them at once costs next to nothing."""
    together = "".join(values)
    return [value.translate(_ESCAPES) for value in values] if any(map(together.__contains__, '\\"\n')) else values


def _head(definition: Definition) -> str:
    return f"# HELP {definition.name} {definition.text}\n# TYPE {definition.name} {definition.kind}\n"


def _single(definition: Definition, value: float) -> str:
    return f"{_head(definition)}{definition.name} {value}\n"


_UP = _single(catalogue.DATABASE_UP, 1).encode()

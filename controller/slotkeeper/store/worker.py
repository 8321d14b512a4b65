"""The worker's statements: register, claim and finish in one call, beat, reap. Each is one SQL function call.

``WorkerStore`` is for the asyncio loop, ``HeartbeatStore`` for the heartbeat's own thread and connection.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.rows import namedtuple_row
from psycopg.types.numeric import Int8BinaryLoader

from slotkeeper.errors import DatabaseUnavailable
from slotkeeper.store.connection import Session, conninfo, wrapped_errors
from slotkeeper.store.keeper import Reaped
from slotkeeper.store.queries import queries
from slotkeeper.store.versions import OwnerVersion, StoredVersion, version_parameters, versions_of

#: The number that the protocol's functions carry (``work_v1``).
PROTOCOL = 1
TRIGGERS = ("Schedule", "CatchUp", "Backfill", "Manual", "Requeue", "Enqueue")


class RowAddresses(list[bytes]):
    """Where rows of ``run`` lie (Postgres' ctid), in the binary form that the driver gave: only to be sent back."""


class _RowAddressesDumper(Dumper):
    """Joins them to a ``tid[]`` at once: one element at a time costs as much as a quick handler.

    The form is that of ``array_send``: dimensions, no nulls, type of the elements, then length and lower bound of
    the one dimension, and each element with its length in front.
    """

    format = Format.BINARY
    oid = psycopg.postgres.types["tid"].array_oid

    def dump(self, obj: RowAddresses) -> bytes:
        if not obj:
            return struct.pack(">iii", 0, 0, _TID)
        return struct.pack(">iiiii", 1, 0, _TID, len(obj), 1) + _SIX_BYTES + _SIX_BYTES.join(obj)


_TID = psycopg.postgres.types["tid"].oid
_SIX_BYTES = struct.pack(">i", 6)


class ClaimedRow(NamedTuple):
    """One claimed run, in the order of ``work_v1``'s columns.

    Instants are kept as the database sends them (microseconds since 2000-01-01 UTC) until somebody asks: to make
    three datetimes of each row costs more than a quick handler.
    """

    id: int
    address: bytes
    owner: int | None
    slot_microseconds: int | None
    run_at_microseconds: int
    version: int | None
    lane: int
    attempt: int
    charged: int
    max_attempts: int
    trigger_number: int
    lost: int
    first_started_microseconds: int
    task: str | None
    payload: str | None

    @property
    def slot(self) -> datetime | None:
        """None for an ad-hoc run."""
        return None if self.slot_microseconds is None else instant(self.slot_microseconds)

    @property
    def run_at(self) -> datetime:
        """When it was due."""
        return instant(self.run_at_microseconds)

    @property
    def first_started_at(self) -> datetime:
        """When its first attempt was claimed."""
        return instant(self.first_started_microseconds)

    @property
    def trigger(self) -> str:
        """One of ``TRIGGERS``."""
        return TRIGGERS[self.trigger_number]


_POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def instant(microseconds: int) -> datetime:
    """From Postgres' binary form of a timestamptz."""
    return _POSTGRES_EPOCH + timedelta(microseconds=microseconds)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a claim says beside its rows: the database's clock, the next due time, the earliest end of another's
    lease; ``cut``: more is due, but it must not wait in a process.
    """

    moment: datetime
    next_due: datetime | None
    lease_end: datetime | None
    cut: bool = False


class Bound(NamedTuple):
    """How far a lane has been seen: rows at or below (run_at, id) are not looked at again."""

    run_at: datetime
    id: int


@dataclass(frozen=True, slots=True)
class Return:
    """What became of one attempt. ``kind`` as in ``finish_v1``; ``seconds`` is the snooze, or the least time
    until a retry.
    """

    id: int
    token: uuid.UUID
    owner: int | None
    slot: datetime | None
    kind: str
    seconds: float = 0
    reason: str = ""
    message: str = ""


class Answer(NamedTuple):
    """What the database made of a Return: recorded, already or fenced; the run's state and when it is due again."""

    id: int
    answer: str
    became: str | None
    run_at: datetime | None


@dataclass(frozen=True, slots=True)
class Successes:
    """A batch of plain successes, finished by row address; ``id_sum`` notices an address that was reused."""

    addresses: RowAddresses
    id_sum: int
    tokens: Sequence[uuid.UUID]


NO_SUCCESSES = Successes(RowAddresses(), 0, ())


class WorkerStore:
    """One connection of the supervisor's asyncio loop, opened when needed and again after it broke.

    Statements are never cancelled: psycopg would cancel them on the server too, where a commit may be under way.
    """

    def __init__(self, dsn: str, name: str) -> None:
        self._conninfo = conninfo(dsn, name)
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def register(self, **worker: object) -> int:
        """One row for this worker process; returns its id."""
        rows = await self._call("worker.register", {**worker, "protocol": PROTOCOL})
        return int(rows[0].id)

    async def lanes(self, worker: int) -> list[tuple[int, int]]:
        """The (lane, priority) pairs that this worker may claim from, the most urgent first."""
        return [(row.lane, row.priority) for row in await self._call("worker.lanes", {"worker": worker})]

    async def leave(self, worker: int) -> bool:
        """Removes the worker's row; False while it still owns runs."""
        return bool((await self._call("worker.leave", {"worker": worker}))[0].gone)

    async def versions(self, keys: Iterable[OwnerVersion]) -> dict[OwnerVersion, StoredVersion]:
        """What these versions say."""
        return versions_of(await self._call("worker.versions", version_parameters(keys)))

    async def work(
        self, worker: int, token: uuid.UUID, lanes: Sequence[int], bounds: Mapping[int, Bound], seen: datetime | None,
        *, free: int, prefetch: int, successes: Successes, drained: Sequence[uuid.UUID], resend: bool = False,
    ) -> tuple[list[ClaimedRow], Outlook]:  # fmt: skip
        """Finishes ``successes`` and claims up to ``free`` + ``prefetch`` runs in one call.

        Raises FinishRefused (nothing was changed: use ``finish``), LeaseLost, or DatabaseUnavailable (anything
        may have happened: repeat with the same token and ``resend``).
        """
        parameters: dict[str, object] = {
            "worker": worker,
            "token": token,
            "lanes": list(lanes),
            "bound_at": [bound.run_at if (bound := bounds.get(lane)) else None for lane in lanes],
            "bound_id": [bound.id if (bound := bounds.get(lane)) else None for lane in lanes],
            "seen": seen,
            "free": free,
            "prefetch": prefetch,
            "addresses": successes.addresses,
            "tokens": list(successes.tokens),
            "ended": len(successes.addresses),
            "id_sum": successes.id_sum,
            "drained": list(drained),
            "resend": resend,
        }
        with self._dropping_broken(), wrapped_errors():
            connection = await self._open()
            async with connection.cursor(binary=True, row_factory=_claimed_row) as cursor:
                cursor.adapters.register_loader("timestamptz", Int8BinaryLoader)
                await cursor.execute(queries()["worker.work"].text, parameters)
                rows = await cursor.fetchall()
        last = rows.pop()
        # The last row is the outlook: see work_v1 for what its columns mean.
        next_due = None if last.run_at_microseconds is None else last.run_at
        return rows, Outlook(last.first_started_at, next_due, last.slot, cut=bool(last.attempt))

    async def finish(self, worker: int, returns: Sequence[Return]) -> list[Answer]:
        """Records what became of runs, and answers per run."""
        rows = await self._call(
            "worker.finish",
            {
                "worker": worker,
                "ids": [back.id for back in returns],
                "tokens": [back.token for back in returns],
                "owners": [back.owner for back in returns],
                "slots": [back.slot for back in returns],
                "kinds": [back.kind for back in returns],
                "seconds": [back.seconds for back in returns],
                "reasons": [back.reason for back in returns],
                "messages": [back.message for back in returns],
            },
        )
        return [Answer(*row) for row in rows]

    async def reap(self, expected: datetime | None, *, starting: bool) -> Reaped:
        """Gives back the runs of workers whose lease has ended, as the keeper does."""
        return Reaped.of((await self._call("keeper.reap", {"expected": expected, "starting": starting}))[0])

    async def close(self) -> None:
        """Closes the connection, if there is one."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _call(self, query: str, parameters: Mapping[str, object]) -> list[Any]:
        with self._dropping_broken(), wrapped_errors():
            connection = await self._open()
            async with connection.cursor(binary=True, row_factory=namedtuple_row) as cursor:
                await cursor.execute(queries()[query].text, parameters)
                return await cursor.fetchall()

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = await psycopg.AsyncConnection.connect(
                self._conninfo, autocommit=True, prepare_threshold=None
            )
            self._connection.adapters.register_dumper(RowAddresses, _RowAddressesDumper)
        return self._connection

    def _dropping_broken(self) -> _DropBroken:
        return _DropBroken(self)

    def drop(self) -> None:
        """Forgets a broken connection; the next statement opens another."""
        if self._connection is not None:
            self._connection.pgconn.finish()
            self._connection = None


class _DropBroken:
    def __init__(self, store: WorkerStore) -> None:
        self._store = store

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DatabaseUnavailable):
            self._store.drop()


# What ClaimedRow._make does, without a Python function for each row.
_make_claimed_row = partial(tuple.__new__, ClaimedRow)


def _claimed_row(_: psycopg.AsyncCursor[Any]) -> Any:
    return _make_claimed_row


class Beat(NamedTuple):
    """A good beat: until when the lease holds by the database's clock, and the runs that are to be cancelled."""

    lease_until: datetime
    cancelled: list[int]


class HeartbeatStore:
    """The heartbeat's own connection, for a thread that must never wait behind a claim."""

    def __init__(self, dsn: str, worker: int) -> None:
        self._session = Session(dsn, "heartbeat")
        self._worker = worker

    def beat(self) -> Beat | None:
        """Moves the lease; None: this worker was reaped and owns nothing any more. Raises DatabaseUnavailable."""
        rows = self._session.call("worker.beat", worker=self._worker)
        return Beat(*rows[0]) if rows else None

    def close(self) -> None:
        """Closes the connection."""
        self._session.close()


#: What a hint says when a lane was used for the first time; others say nothing.
NEW_LANE = "lane"


async def listen(dsn: str) -> AsyncIterator[str]:
    """One item for every hint that there may be something to claim. Raises DatabaseUnavailable when the connection
    ends.

    Behind a transaction pooler hints do not arrive; nothing depends on them but how soon an idle worker looks.
    """
    with wrapped_errors():
        connection = await psycopg.AsyncConnection.connect(
            conninfo(dsn, "wake-up"), autocommit=True, prepare_threshold=None
        )
        async with connection:
            await connection.execute(queries()["worker.listen"].text)
            async for hint in connection.notifies():
                yield hint.payload

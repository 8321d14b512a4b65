"""What autoscaling asks of the database: per pool, how many workers it wants and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slotkeeper.store.connection import Session


@dataclass(frozen=True, slots=True)
class PoolNumber:
    """The number of one pool with its parts, as ``pools_v1`` counted them (sql/functions/scaling.sql).

    ``claimable``, ``running`` and ``due_soon`` are runs; ``holding``, ``workers`` (those with a lease) and ``wanted``
    are workers; ``concurrency`` is runs per worker.
    """

    namespace: str
    pool: str
    concurrency: int
    claimable: int
    running: int
    due_soon: int
    holding: int
    workers: int
    wanted: int


def pool_numbers(
    session: Session, *, horizon_seconds: float, drain_seconds: float, most_workers: int
) -> list[PoolNumber]:
    """The number of every pool that the database knows, by namespace and name; 0 wanted for one that is idle."""
    rows = session.call(
        "scaling.pools", horizon_seconds=horizon_seconds, drain_seconds=drain_seconds, most_workers=most_workers
    )
    return [PoolNumber(*row) for row in rows]


def declare_pool(
    session: Session, *, namespace: str, name: str, namespaces: Sequence[str], queues: Sequence[str], concurrency: int
) -> None:
    """Declares a pool by configuration: known before its first worker, and what workers say changes nothing about it.

    ``namespaces`` and ``queues`` are what its workers claim from, ``*`` stands for all.
    """
    session.call(
        "scaling.declare_pool", namespace=namespace, name=name, namespaces=list(namespaces), queues=list(queues),
        concurrency=concurrency,
    )  # fmt: skip

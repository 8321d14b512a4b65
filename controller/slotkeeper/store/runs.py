"""What people do to runs: cancel and requeue, and finding them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from slotkeeper.store.connection import Session


def cancel(session: Session, ids: Sequence[int]) -> dict[int, str]:
    """Cancels live runs; per id: cancelled, running (its worker is told at the next beat) or gone."""
    return {row.id: row.became for row in session.call("runs.cancel", ids=list(ids))}


def requeue(session: Session, ids: Sequence[int]) -> dict[int, str]:
    """Makes dead runs live again; per id: ready, live (refused: it is live already) or gone."""
    return {row.id: row.became for row in session.call("runs.requeue", ids=list(ids))}


def find(
    session: Session, namespace: str, schedule: str, statuses: Sequence[str], slot: datetime | None = None
) -> list[int]:
    """The ids of the runs of one schedule that have one of ``statuses``, by slot."""
    rows = session.call("runs.find", namespace=namespace, schedule=schedule, statuses=list(statuses), slot=slot)
    return [row.id for row in rows]

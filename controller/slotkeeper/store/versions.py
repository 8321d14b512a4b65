"""What versions of schedules say, as stored: read by the ticker to know the slots, by workers to know what to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

OwnerVersion = tuple[int, int]


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """One version of a schedule, and which owner's rows carry it.

    ``spec`` is canonical JSON without the payload; ``payload`` is the JSON text of the payload. ``label`` is
    the part of an idempotency key that a manual trigger or a re-run adds; ``kind`` 0 the schedule's slots, 1 a
    manual run, 2 a re-run.
    """

    owner: int
    version: int
    cluster: str
    namespace: str
    name: str
    label: str
    kind: int
    spec: Mapping[str, Any]
    payload: str
    generation: int


def version_parameters(keys: Iterable[OwnerVersion]) -> dict[str, list[int]]:
    """The parameters of ``ticker.versions`` and ``worker.versions``."""
    pairs = list(keys)
    return {"owners": [owner for owner, _ in pairs], "versions": [version for _, version in pairs]}


def versions_of(rows: Iterable[Any]) -> dict[OwnerVersion, StoredVersion]:
    """The rows of those queries by (owner, version)."""
    return {(row.owner, row.version): StoredVersion(*row) for row in rows}

"""Schedules whose clock the test sets: edits, ticks and deletions at instants of its choice, on a real Postgres.

The operator's own code and the ticker's own decisions; only the instant that the database would tell is replaced. Not
for what compares stored times with the database's clock in SQL: claims, leases, `start_by`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import psycopg
import pytest

from applied_schedules import jobschedule
from scenario import one, rows
from slotkeeper.operator.applied import Applied
from slotkeeper.operator.apply import Applier
from slotkeeper.store import schedules
from slotkeeper.store.connection import Session
from slotkeeper.store.ticker import DueSchedule, materialise
from slotkeeper.ticker import DecisionMaker

_lock = schedules.lock


def next_generation(obj: dict[str, Any], *, uid: str | None = None, **spec: Any) -> dict[str, Any]:
    """``obj`` after an edit of these fields (None takes one away), or as another object of the same name."""
    fields = {name: value for name, value in {**obj["spec"], **spec}.items() if value is not None}
    new = jobschedule(obj["metadata"]["name"], obj["metadata"]["namespace"], **fields)
    new["metadata"]["uid"] = uid or obj["metadata"]["uid"]
    return new


class Timeline:
    """One database, an operator, any number of tickers, and one clock."""

    def __init__(self, dsn: str, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self.connection = connection
        self.session = Session(dsn, "timeline")
        self.moment: datetime | None = None
        self.names: set[str] = set()
        monkeypatch.setattr(schedules, "lock", self._locked)
        monkeypatch.setattr(schedules, "now", lambda _: self.moment)
        self.restart()

    def close(self) -> None:
        self.session.close()

    def restart(self) -> None:
        """Operator and ticker begin anew: they know nothing but what is stored."""
        self._applier = Applier(self.session, "default", lambda *_: True)
        self._decisions = DecisionMaker(self.session)

    def _locked(self, *arguments: Any) -> dict[schedules.Key, schedules.StoredSchedule]:
        assert self.moment is not None
        return {key: replace(row, moment=self.moment) for key, row in _lock(*arguments).items()}

    def apply(self, obj: dict[str, Any], at: datetime) -> Applied:
        self.moment = at
        self.names.add(obj["metadata"]["name"])
        [applied] = self._applier.apply([obj])
        return applied

    def retire(self, obj: dict[str, Any], at: datetime) -> bool:
        self.moment = at
        metadata = obj["metadata"]
        return self._applier.retire(metadata["namespace"], metadata["name"], metadata["uid"])

    def due(self, at: datetime) -> list[DueSchedule]:
        """What a ticker finds at that instant, of the schedules that were applied here."""
        query = "select id, owner, version, watermark from slotkeeper.schedule where next_due <= %s and name = any (%s)"
        return [DueSchedule(*row, at) for row in rows(self.connection, query, at, list(self.names))]

    def store(self, due: list[DueSchedule]) -> set[int]:
        """Decides and stores these; the ids of those that were left for the next pass."""
        decided = self._decisions.decide(due)
        if not decided:
            return set()
        with self.session.transaction() as connection:
            return materialise(connection, decided)

    def tick(self, at: datetime) -> int:
        """One pass of a ticker; how many schedules were due."""
        due = self.due(at)
        assert self.store(due) == set()
        return len(due)

    def slots(self, name: str) -> list[tuple[datetime, str, str | None, int]]:
        """(slot, status, reason, slots) of all that is on record about a schedule, by slot."""
        query = "select slot, status, reason, slots from slotkeeper.job where schedule = %s order by slot, status"
        return [tuple(row) for row in rows(self.connection, query, name)]

    def health(self, name: str) -> Any:
        (row,) = rows(self.connection, "select * from slotkeeper.health where name = %s", name)
        return row

    def watermark(self, name: str) -> datetime:
        watermark: datetime = one(self.connection, "select watermark from slotkeeper.schedule where name = %s", name)
        return watermark

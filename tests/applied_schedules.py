"""JobSchedules stored through the operator's own code, and their slots made due by moving watermarks back.

For tests that need real specs but no API server; the ticker is the real one, called once.
"""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any

import psycopg

from scenario import one, rows
from slotkeeper.operator.applied import Outcome
from slotkeeper.operator.apply import Applier
from slotkeeper.store.connection import Session
from slotkeeper.ticker import Ticker

_names = itertools.count(1)
_generations = itertools.count(1)


def jobschedule(name: str, namespace: str = "default", *, trigger: str | None = None, **spec: Any) -> dict[str, Any]:
    """An object as the API server would hand it out: each call is a newer generation."""
    annotations = {} if trigger is None else {"slotkeeper.dev/trigger": trigger}
    generation = next(_generations)
    return {
        "apiVersion": "slotkeeper.dev/v1beta1",
        "kind": "JobSchedule",
        "metadata": {
            "name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "generation": generation,
            "resourceVersion": str(generation), "annotations": annotations,
        },
        "spec": spec,
    }  # fmt: skip


class AppliedSchedules:
    """Schedules of one database."""

    def __init__(self, dsn: str, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._session = Session(dsn, "test applier")
        self._applier = Applier(self._session, "default", lambda *_: True)
        self._ticker = Ticker(dsn)

    def close(self) -> None:
        self._session.close()
        self._ticker._session.close()

    def apply(self, *objects: dict[str, Any]) -> None:
        for applied in self._applier.apply(list(objects)):
            assert applied.outcome is Outcome.STORED, applied

    def retire(self, name: str, namespace: str = "default") -> bool:
        """The object is gone."""
        return self._applier.retire(namespace, name)

    def add(self, namespace: str = "default", **spec: Any) -> str:
        """A new schedule; returns its name. Hourly, unless ``spec`` says something else."""
        if not {"cron", "every", "at"} & spec.keys():
            spec["every"] = {"periodSeconds": 3600}
        name = f"schedule-{next(_names)}"
        self.apply(jobschedule(name, namespace, **spec))
        return name

    def fire(self, name: str, *, back: timedelta = timedelta(hours=1)) -> datetime:
        """The newest slot in the last ``back`` falls due now; returns the newest slot on record afterwards."""
        self.rewind(name, back)
        self._ticker.tick()
        slot: datetime = one(
            self._connection,
            "select max(slot) from slotkeeper.job where schedule = %s and slot is not null",
            name,
        )
        return slot

    def rewind(self, name: str, back: timedelta) -> None:
        """As if nobody had ticked this schedule for so long."""
        self._connection.execute(
            "update slotkeeper.schedule set watermark = date_trunc('second', clock_timestamp() - %s),"
            " watermark_highest = date_trunc('second', clock_timestamp() - %s),"
            " next_slot = clock_timestamp() - %s, next_due = clock_timestamp() - %s where name = %s",
            (back, back, back, back, name),
        )

    def trigger(self, name: str, key: str, namespace: str = "default", **spec: Any) -> None:
        """One manual run."""
        self.apply(jobschedule(name, namespace, trigger=key, **spec))

    def jobs(self, name: str) -> list[Any]:
        """Everything on record about it, by slot."""
        return rows(
            self._connection, "select * from slotkeeper.job where schedule = %s order by slot, created_at", name
        )

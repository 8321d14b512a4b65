"""A database with what acts on it: workers as processes, schedules, and questions about runs. For tests of workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

import scenario
from applied_schedules import AppliedSchedules
from processes import OwnProcess, Processes, eventually
from scenario import one, rows

HANDLERS = Path(__file__).parent / "worker" / "handlers.py"


@dataclass
class Place:
    """A database with what acts on it."""

    dsn: str
    connection: psycopg.Connection[Any]
    processes: Processes
    schedules: AppliedSchedules
    handlers: Path = HANDLERS

    def worker(self, *more: str, **settings: object) -> OwnProcess:
        return self.processes.worker(self.dsn, self.handlers, *more, **settings)  # type: ignore[arg-type]

    def enqueue(self, task: str, payload: str = "{}", **more: Any) -> int:
        return int(scenario.enqueue(self.connection, task, payload=payload, **more).id)

    def job(self, run: int) -> Any:
        (row,) = rows(self.connection, "select * from slotkeeper.job where id = %s", str(run))
        return row

    def ended(self, run: int, status: str = "done") -> Any:
        """The job once it has this status."""
        return eventually(lambda: (row := self.job(run)).status == status and row, f"run {run} {status}")

    def returned(self, run: int, *, attempts: int = 1) -> Any:
        """The job once it waits for its next attempt."""
        return eventually(
            lambda: (row := self.job(run)).status == "ready" and row.attempts >= attempts and row, f"run {run} back"
        )

    def errors(self, run: int) -> list[tuple[int, str, str]]:
        """(attempt, kind, message) of every failed attempt."""
        found = rows(
            self.connection, "select attempt, kind, message from slotkeeper.run_error where run = %s order by at", run
        )
        return [tuple(row) for row in found]

    def hurry(self, run: int) -> None:
        """Its back-off is over."""
        self.connection.execute(
            "update slotkeeper.run set run_at = clock_timestamp()"
            " where id = %s and state = 0 and run_at > clock_timestamp()",
            (run,),
        )

    def noted(self, run: int, what: str = "began") -> list[dict[str, Any]]:
        """What handlers wrote about a run."""
        return [line for line in self.processes.handled_runs() if line["run"] == run and line["what"] == what]

    def began(self, run: int) -> dict[str, Any]:
        return eventually(lambda: self.noted(run), f"run {run} begun")[0]

    def value(self, query: str, *parameters: object) -> Any:
        return one(self.connection, query, *parameters)

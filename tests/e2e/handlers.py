"""Handlers that note in the database when each attempt began and ended, and in which pod. They run in worker pods."""

from __future__ import annotations

import os
import time

import psycopg

from slotkeeper import NonRetryable, Run, task


def _note(query: str, *parameters: object) -> None:
    with psycopg.connect(os.environ["E2E_DSN"]) as connection:
        connection.execute(query, parameters)


@task("noted")
def noted(run: Run) -> None:
    """Takes ``seconds`` of its payload; the first attempt ``first_seconds``, where that is given."""
    _note(
        "insert into e2e.attempt (run, attempt, key, schedule, slot, pod) values (%s, %s, %s, %s, %s, %s)",
        run.id, run.attempt, run.idempotency_key, run.schedule, run.slot, os.environ["HOSTNAME"],
    )  # fmt: skip
    seconds = run.payload.get("seconds", 0)
    if run.attempt == 1:
        seconds = run.payload.get("first_seconds", seconds)
    time.sleep(float(str(seconds)))
    _note("update e2e.attempt set ended_at = clock_timestamp() where run = %s and attempt = %s", run.id, run.attempt)


@task("unless_broken")
def unless_broken(run: Run) -> None:
    """Fails for good while ``e2e.broken`` has its schedule."""
    with psycopg.connect(os.environ["E2E_DSN"]) as connection:
        if connection.execute("select 1 from e2e.broken where schedule = %s", [run.schedule]).fetchone():
            raise NonRetryable("told to fail")

"""Handlers of a billing team: what ``--app billing`` imports from the image's /app."""

from __future__ import annotations

import os

import psycopg

from slotkeeper import Run, task


@task("billing.close-period")
def close_period(run: Run) -> None:
    """Closes the time between the slot before and this one: exactly once.

    The row and the run's success are committed together or not at all, so a worker that dies in between does no harm.
    """
    with psycopg.connect(os.environ["BILLING_DSN"]) as connection:
        connection.execute(
            "insert into billing.closed_period (starts_at, ends_at) values (%s, %s)", (run.previous_slot, run.slot)
        )
        run.complete(connection)
    print(f"closed {run.previous_slot} to {run.slot}: {run.idempotency_key}, attempt {run.attempt}", flush=True)

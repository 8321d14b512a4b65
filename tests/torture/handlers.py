"""Handlers that write down each start, so that a checker can compare it with what the tables say."""

from __future__ import annotations

import asyncio
import json
import os
import time

import psycopg

from slotkeeper import Run, task


def note(run: Run, what: str) -> None:
    """One line in HANDLED_FILE, in one write."""
    line = {
        "what": what, "task": run.task, "run": run.id, "schedule": run.schedule, "attempt": run.attempt,
        "slot": run.slot and run.slot.isoformat(), "token": run.token, "pid": os.getpid(), "lost": run.lost,
    }  # fmt: skip
    handle = os.open(os.environ["HANDLED_FILE"], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, json.dumps(line).encode() + b"\n")
    finally:
        os.close(handle)


@task("note")
async def note_it(run: Run) -> None:
    note(run, "began")
    await asyncio.sleep(0.2)


@task("note.in_thread")
def note_in_thread(run: Run) -> None:
    note(run, "began")
    time.sleep(0.2)


@task("effect")
def effect(run: Run) -> None:
    """An effect and the run's end in one transaction, through EFFECT_DSN."""
    with psycopg.connect(os.environ["EFFECT_DSN"], prepare_threshold=None) as connection:
        connection.execute("insert into effect values (%s)", (run.id,))
        run.complete(connection)


@task("nap")
def nap(run: Run) -> None:
    """Long enough for its process to be killed or frozen in it; a second attempt is quick unless told."""
    note(run, "began")
    seconds = run.payload["seconds"] if run.attempt == 1 else run.payload.get("second_seconds", 0)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.01)
    if run.attempt == 1 and run.payload.get("wait_until_lost"):
        until = time.monotonic() + 10
        while not run.lost and time.monotonic() < until:
            time.sleep(0.01)
    note(run, "ended")

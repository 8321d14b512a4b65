"""Handlers that real workers of the tests run: each does one thing that can go wrong, or right."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from slotkeeper import InfrastructureError, NonRetryable, Run, Snooze, task


def note(run: Run, what: str = "began", **more: object) -> None:
    """One line in HANDLED_FILE: one write, so that processes do not mix theirs."""
    line = {
        "task": run.task, "run": run.id, "slot": run.slot and run.slot.isoformat(), "schedule": run.schedule,
        "attempt": run.attempt, "token": run.token, "pid": os.getpid(), "what": what, **more,
    }  # fmt: skip
    handle = os.open(os.environ["HANDLED_FILE"], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, json.dumps(line).encode() + b"\n")
    finally:
        os.close(handle)


@task("succeed")
async def succeed(run: Run) -> None:
    note(run)


@task("succeed.in_thread")
def succeed_in_thread(run: Run) -> None:
    note(run)


@task("fail")
async def fail(run: Run) -> None:
    raise ValueError(run.payload.get("message", "no"))


@task("fail.in_thread")
def fail_in_thread(run: Run) -> None:
    raise ValueError(run.payload.get("message", "no"))


@task("fail.once")
async def fail_once(run: Run) -> None:
    if run.attempt == 1:
        raise ConnectionError("not yet")


@task("give_up")
async def give_up(run: Run) -> None:
    raise NonRetryable("this cannot work")


@task("snooze")
async def snooze(run: Run) -> None:
    if run.attempt == 1:
        raise Snooze(1.5)


@task("not_my_fault")
async def not_my_fault(run: Run) -> None:
    if run.attempt == 1:
        raise InfrastructureError("the disk is away")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


TEXTS = {
    "nul": lambda: ValueError("a\0b"),
    "surrogate": lambda: ValueError("caf\udce9"),
    "unspeakable": Unspeakable,
    "enormous": lambda: ValueError("é" * (3 * 1024 * 1024)),
    "system_exit": lambda: SystemExit(3),
    "keyboard": KeyboardInterrupt,
    "cancelled": asyncio.CancelledError,
}


@task("text")
async def text(run: Run) -> None:
    error = TEXTS[run.payload["text"]]()
    raise error


@task("text.in_thread")
def text_in_thread(run: Run) -> None:
    error = TEXTS[run.payload["text"]]()
    raise error


@task("for_ever")
async def for_ever(run: Run) -> None:
    note(run)
    try:
        await asyncio.sleep(3600)
    finally:
        note(run, "stopped", lost=run.lost, cancelled=run.cancelled)


@task("for_ever.in_thread")
def for_ever_in_thread(run: Run) -> None:
    note(run)
    while not run.cancelled:
        time.sleep(0.02)
    note(run, "stopped", lost=run.lost)
    raise RuntimeError("stopped as asked")


@task("deaf")
def deaf(run: Run) -> None:
    """Ignores that it is asked to stop, once."""
    note(run)
    if run.attempt == 1:
        time.sleep(3600)


@task("swallow")
async def swallow(run: Run) -> None:
    """Takes its cancellation for a hint and ends well."""
    note(run)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(3600)


@task("sleep")
async def sleep(run: Run) -> None:
    note(run)
    await asyncio.sleep(run.payload["seconds"])
    note(run, "ended", lost=run.lost)


@task("sleep.in_thread")
def sleep_in_thread(run: Run) -> None:
    note(run)
    time.sleep(run.payload["seconds"])
    note(run, "ended", lost=run.lost)


async def fail_soon() -> None:
    await asyncio.sleep(0)
    raise ValueError("one of the group")


@task("group")
async def group(run: Run) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(fail_soon())
        tasks.create_task(asyncio.sleep(3600))


@task("block_the_loop")
async def block_the_loop(run: Run) -> None:
    note(run)
    time.sleep(run.payload["seconds"])  # noqa: ASYNC251 - the point


@task("burn")
def burn(run: Run) -> None:
    """Computes in Python and gives the interpreter away only when that takes it."""
    note(run)
    until = time.monotonic() + run.payload["seconds"]
    while time.monotonic() < until:
        sum(range(1000))


@task("poison")
def poison(run: Run) -> None:
    note(run)
    os._exit(137)


def undone(handler: Callable[[Run], Any]) -> Callable[[Run], Any]:
    """A decorator that hides that its function is async."""

    @functools.wraps(handler)
    def wrapped(run: Run) -> Any:
        return handler(run)

    del wrapped.__wrapped__  # type: ignore[attr-defined]
    return wrapped


@task("hidden_async")
@undone
async def hidden_async(run: Run) -> None:
    note(run)


@task("generator")
def generator(run: Run) -> Iterator[None]:
    note(run)
    yield


@task("tell")
async def tell(run: Run) -> None:
    note(
        run, "told",
        told={
            "namespace": run.namespace, "idempotency_key": run.idempotency_key, "late_seconds": run.late_seconds,
            "payload": run.payload, "slot_local": run.slot_local and run.slot_local.isoformat(),
            "previous_slot": run.previous_slot and run.previous_slot.isoformat(),
            "next_slot": run.next_slot and run.next_slot.isoformat(), "trigger": run.trigger,
            "charged": run.charged, "max_attempts": run.max_attempts, "run_at": run.run_at.isoformat(),
        },
    )  # fmt: skip


@task("exactly_once")
def exactly_once(run: Run) -> None:
    """Writes its effect and its success in one transaction; as told, that rolls back or its process dies around it."""
    payload = run.payload
    with psycopg.connect(os.environ["EFFECTS_DSN"]) as connection:
        connection.execute("insert into effect (run, attempt) values (%s, %s)", (run.id, run.attempt))
        run.complete(connection)
        if run.attempt == 1 and payload["first"] == "rolls back":
            raise ConnectionError("the transaction rolls back")
        if run.attempt == 1 and payload["first"] == "dies before commit":
            os.kill(os.getpid(), signal.SIGKILL)
    if run.attempt == 1 and payload["first"] == "dies after commit":
        os.kill(os.getpid(), signal.SIGKILL)
    if run.attempt == 1 and payload["first"] == "raises after commit":
        raise RuntimeError("after the commit nothing counts any more")


@task("exactly_once.async")
async def exactly_once_async(run: Run) -> None:
    async with await psycopg.AsyncConnection.connect(os.environ["EFFECTS_DSN"]) as connection:
        await connection.execute("insert into effect (run, attempt) values (%s, %s)", (run.id, run.attempt))
        await run.complete_async(connection)


@task("print")
def print_it(run: Run) -> None:
    sys.stdout.write("a line without its end")

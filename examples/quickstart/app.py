"""Handlers of the quick start. Edit this file while `make demo` runs: the worker picks the change up."""

from __future__ import annotations

import asyncio
import random

from slotkeeper import Run, task


@task("hello")
async def hello(run: Run) -> None:
    """Says which slot it is; a real one would use ``run.idempotency_key`` to do its work once."""
    print(f"hello {run.payload['name']}: {run.idempotency_key}, attempt {run.attempt}", flush=True)
    await asyncio.sleep(0.1)


@task("flaky")
def flaky(run: Run) -> None:
    """Fails now and then: the run comes back after a back-off, as the same slot with the next attempt."""
    if run.attempt == 1 and random.random() < 0.5:  # noqa: S311
        raise ConnectionError("the upstream did not answer")

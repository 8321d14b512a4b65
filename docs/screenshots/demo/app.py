"""Handlers of the instance that the screenshots are made from: some succeed, some fail, some take long."""

from __future__ import annotations

import asyncio

from slotkeeper import NonRetryable, Run, task


@task("billing.invoices")
@task("billing.report")
@task("shop.sync_stock")
@task("ops.backup")
async def work(_: Run) -> None:
    await asyncio.sleep(0.02)


@task("shop.import_feed")
async def import_feed(run: Run) -> None:
    """The feed of every seventh hour is beyond repair."""
    if run.slot is not None and run.slot.hour % 7 == 3:
        raise NonRetryable("the feed has no header")
    await asyncio.sleep(0.02)


@task("ops.rebuild_index")
async def rebuild_index(_: Run) -> None:
    await asyncio.sleep(600)

"""Handlers that do nothing, for benchmarks."""

from __future__ import annotations

from slotkeeper import Run, task


@task("noop")
async def noop(_: Run) -> None:
    """Ends at once."""

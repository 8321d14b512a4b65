"""Scheduled and background jobs for Kubernetes, with Postgres as the one source of truth.

What applications import; everything else is reached through the ``slotkeeper`` command.
"""

from slotkeeper.errors import SlotkeeperError
from slotkeeper.sdk import (
    Enqueued,
    InfrastructureError,
    NonRetryable,
    Run,
    RunLost,
    Snooze,
    enqueue,
    enqueue_async,
    task,
)

__all__ = [
    "Enqueued",
    "InfrastructureError",
    "NonRetryable",
    "Run",
    "RunLost",
    "SlotkeeperError",
    "Snooze",
    "enqueue",
    "enqueue_async",
    "task",
]
__version__ = "0.1.0"

"""A worker that waits for handlers that do not stop only so many seconds: not a flag, because nobody else should.

Usage: impatient_worker.py DSN STUCK_SECONDS
"""

from __future__ import annotations

import asyncio
import sys

import handlers  # noqa: F401 - registers them

from slotkeeper.cli.logs import set_up_logs
from slotkeeper.worker import Supervisor, WorkerSettings
from slotkeeper.worker.supervisor import exit_process

if __name__ == "__main__":
    dsn, stuck_seconds = sys.argv[1:]
    set_up_logs("json", "info")
    settings = WorkerSettings(
        dsn=dsn, name="impatient", namespaces=("*",), queues=("*",), lease_seconds=3, poll_seconds=0.2, drain_seconds=10
    )
    exit_process(asyncio.run(Supervisor(settings, "test", stuck_seconds=float(stuck_seconds)).run()))

"""A worker that waits for handlers that do not stop only so many seconds: not a flag, because nobody else should.

Usage: impatient_worker.py DSN STUCK_SECONDS [MODULE]: with a module, its handlers run in processes of their own.
"""

from __future__ import annotations

import asyncio
import importlib
import sys

import handlers  # noqa: F401 - registers them

from slotkeeper.cli.handler_process import program
from slotkeeper.cli.logs import set_up_logs
from slotkeeper.worker import Supervisor, WorkerSettings
from slotkeeper.worker.supervisor import exit_process

if __name__ == "__main__":
    dsn, stuck_seconds, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    set_up_logs("json", "info")
    settings = WorkerSettings(
        dsn=dsn, name="impatient", namespaces=("*",), queues=("*",), lease_seconds=3, poll_seconds=0.2,
        drain_seconds=10, handler_process=program("json", "info", modules) if modules else (),
    )  # fmt: skip
    exit_process(asyncio.run(Supervisor(settings, "test", stuck_seconds=float(stuck_seconds)).run()))

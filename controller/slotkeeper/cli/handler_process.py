"""The program of a handler process (``--isolation process``). The worker starts it; nobody types it.

Arguments: log format, log level, modules that register handlers, and the number of the socket to the worker.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence

from slotkeeper.cli.app_modules import import_app
from slotkeeper.cli.logs import set_up_logs
from slotkeeper.sdk import registered_tasks
from slotkeeper.worker.handler_child import HandlerChild


def program(log_format: str, log_level: str, modules: Sequence[str]) -> tuple[str, ...]:
    """Its argv, but for the number of the socket."""
    return (sys.executable, "-m", __name__, log_format, log_level, *modules)


def main(log_format: str, log_level: str, *rest: str) -> None:
    """Until the worker closes the socket."""
    *modules, descriptor = rest
    with socket.socket(fileno=int(descriptor)) as connection:
        connection.set_inheritable(False)  # what handlers start must not hold it open
        set_up_logs(log_format, log_level)
        import_app(modules)
        HandlerChild(connection, registered_tasks).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])

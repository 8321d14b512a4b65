"""Claims runs under a lease, runs them, and leaves one outcome each.

The supervisor (`supervisor.py`) is small and never runs user code: three claim loops, and a heartbeat in a thread
with a connection of its own. Handlers run elsewhere (`async_handlers.py`, `thread_handlers.py`, `command.py`).
"""

from slotkeeper.worker.settings import WorkerSettings
from slotkeeper.worker.supervisor import Supervisor

__all__ = ["Supervisor", "WorkerSettings"]

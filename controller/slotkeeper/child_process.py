"""Child processes that do not outlive us, even when we are killed with ``kill -9``.

Used by `slotkeeper dev` for its Postgres and by the worker for commands, handler processes and their guard. Nothing
else starts processes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
# Loaded before any fork: between fork and exec a child must not load libraries.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def dies_with_parent(with_signal: signal.Signals) -> Callable[[], None]:
    """A ``preexec_fn``: the kernel sends ``with_signal`` to the child when the thread that forked it ends (prctl(2)).

    So fork from a thread that lives as long as the child may. Outside Linux it does nothing.
    """
    parent = os.getpid()

    def arm() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, int(with_signal), 0, 0, 0)
            if os.getppid() != parent:  # it died before the line above
                os._exit(1)

    return arm

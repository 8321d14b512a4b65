"""Process groups that do not outlive the worker, even when it is killed with ``kill -9``.

The kernel kills a worker's children, but not theirs. So a small process of its own (`guard_process.py`), one per worker
and started with its first group, is told of each group, and kills those that are left when the worker is gone. What
leaves its group is out of its reach. Ends no group while the worker lives.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from slotkeeper.child_process import dies_with_parent

_PROGRAM = Path(__file__).with_name("guard_process.py")
_END_SECONDS = 2.0


class Guard:
    """Used by the supervisor's thread alone."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1

    def new_group(self) -> Callable[[], None]:
        """A ``preexec_fn`` for a process that leads a new group: the child itself tells the guard, before it becomes
        another program, so that there is no moment at which a group is there and the guard does not know.
        """
        self._start()
        arm, pipe = dies_with_parent(signal.SIGKILL), self._pipe

        def tell() -> None:
            arm()
            os.write(pipe, b"+%d\n" % os.getpid())

        return tell

    def started(self, group: int) -> None:
        """A group of ``new_group`` has begun: a guard that has to be replaced is told of it again."""
        self._groups.add(group)

    def ended(self, group: int) -> None:
        """Kills what is left of a group whose leader has ended, and forgets it."""
        signal_group(group, signal.SIGKILL)
        self._groups.discard(group)
        with contextlib.suppress(OSError):  # a guard that has died is replaced with the next group
            os.write(self._pipe, b"-%d\n" % group)

    def close(self) -> None:
        """Ends the guard, and with it whatever groups are left."""
        if self._process is None:
            return
        os.close(self._pipe)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self._process = None

    def _start(self) -> None:
        """Starts it, or another one in the place of one that somebody has killed."""
        if self._process is not None:
            if self._process.poll() is None:
                return
            os.close(self._pipe)
        reading, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)  # a guard that hangs must not stall the worker
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM), str(os.getpid())],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(reading)
        for group in self._groups:
            os.write(self._pipe, b"+%d\n" % group)


def signal_group(group: int, with_signal: signal.Signals) -> None:
    """To every process of a group, if there is one left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, with_signal)

"""The program of the guard: kills process groups when the worker that told it of them is gone.

Run as a file by `guard.py`, with the standard library alone (``python -I -S``), so that it is small and starts at once.
Standard input carries lines: ``+GROUP`` for a group that has begun, ``-GROUP`` for one that has ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

#: How often it looks whether its parent and the groups still live (seconds). The end of the pipe tells of the parent
#: at once, unless a handler has forked a process that holds the pipe open.
_LOOK_SECONDS = 1.0


class Groups:
    """The groups that are to die with the worker."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """What came through the pipe: whole lines, but for the last."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"+"):
                self._groups.add(int(line[1:]))
            else:
                self._groups.discard(int(line[1:]))

    def forget_ended(self) -> None:
        """Groups that nobody took back, such as those of programs that could not be started: ids are used again."""
        for group in tuple(self._groups):
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                self._groups.discard(group)
            except PermissionError:
                pass

    def kill(self) -> None:
        """SIGKILL: there is nobody left who could wait for a polite end."""
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)


def main(parent: int) -> None:
    """Until the process ``parent`` is gone, however that came about; then the groups that it started are gone too."""
    # Whoever ends it politely means the worker, which lets its groups drain first.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = Groups()
    looked = time.monotonic()
    while True:
        readable, _, _ = select.select([0], [], [], _LOOK_SECONDS)
        if readable:
            chunk = os.read(0, 65536)
            if not chunk:
                break
            groups.feed(chunk)
        elif os.getppid() != parent:
            break
        if time.monotonic() - looked >= _LOOK_SECONDS:
            groups.forget_ended()
            looked = time.monotonic()
    groups.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""Handlers that do to their process what only a process of their own survives; and those of `handlers.py`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

from handlers import note

from slotkeeper import Run, task

#: Ignores everything that can be ignored.
STUBBORN = (
    "import signal, time\n"
    "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)\n"
    "print('ready', flush=True)\n"
    "while True: time.sleep(3600)\n"
)

if os.environ.get("BROKEN_CHILDREN") and "handler_process" in sys.argv[0]:
    raise RuntimeError("this module can be imported by the worker alone")


@task("segfault")
def segfault(run: Run) -> None:
    note(run)
    if run.attempt == 1:
        ctypes.string_at(0)


@task("exit")
async def exit_at_once(run: Run) -> None:
    note(run)
    if run.attempt == 1:
        os._exit(run.payload["status"])


@task("spin")
def spin(run: Run) -> None:
    """Computes for ever and looks at nothing; SIGTERM breaks into it."""
    note(run)
    try:
        while True:
            pass
    finally:
        note(run, "cleaned up")


@task("spin.deaf")
def spin_deaf(run: Run) -> None:
    """Computes for ever, whatever is raised in it."""
    note(run)
    while True:
        with contextlib.suppress(BaseException):
            while True:
                pass


@task("spin.async")
async def spin_async(run: Run) -> None:
    note(run)
    while True:
        pass


class Unpicklable(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


@task("unpicklable")
async def unpicklable(run: Run) -> None:
    raise Unpicklable("it holds a lock")


@task("parent")
def parent(run: Run) -> None:
    """Starts a process that ignores signals, and waits."""
    child = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    note(run, child=child.pid)
    if run.payload.get("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(3600)


@task("fork")
def fork(run: Run) -> None:
    """Leaves a copy of its process behind, which holds every descriptor open, and dies."""
    child = os.fork()
    if child == 0:
        os.setsid()
        time.sleep(20)
        os._exit(0)
    note(run, child=child)
    os._exit(5)


@task("say")
def say(run: Run) -> None:
    sys.stdout.write("said on stdout without its end")
    sys.stderr.write("said on stderr\n")
    note(run, environment=dict(os.environ), command=sys.orig_argv)


@task("close_everything")
def close_everything(run: Run) -> None:
    note(run)
    if run.attempt == 1:
        os.closerange(3, 1024)


@task("outlive_sigterm")
def outlive_sigterm(run: Run) -> None:
    """Succeeds after SIGTERM, and leaves a thread behind that keeps its process from ending."""
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    note(run)
    while not told:
        time.sleep(0.01)
    signal.signal(signal.SIGTERM, before)
    threading.Thread(target=threading.Event().wait).start()


@task("lie")
def lie(run: Run) -> None:
    """Tells the worker an outcome of its own making, in the name of its process."""
    frame = sys._getframe()
    while "begin" not in frame.f_locals:
        assert frame.f_back is not None
        frame = frame.f_back
    number = frame.f_locals["begin"].number
    line = f'{{"number": {number}, "lost": false, "outcome": {run.payload["outcome"]}}}\n'
    os.write(int(sys.argv[-1]), line.encode())
    if run.payload.get("ends"):
        os._exit(0)
    time.sleep(3600)


@task("babble")
def babble(run: Run) -> None:
    """Writes into the connection of its own process to the worker."""
    note(run)
    if run.attempt == 1:
        os.write(int(sys.argv[-1]), b'{"number": 1, "outcome": []}\n')
        time.sleep(3600)

"""Real processes of ours under test: started, waited for, signalled, and gone when the test is over.

Their log (JSON lines on stderr) goes to a file, so that a full pipe never stalls them. Not for processes of others.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from slotkeeper.child_process import dies_with_parent

_T = TypeVar("_T")
#: Facts are waited for this long (seconds): far more than any of them takes, for machines that are busy.
PATIENCE = 30.0
_LOOK = 0.02


def eventually(fact: Callable[[], _T], what: str, *, seconds: float = PATIENCE, look: float = _LOOK) -> _T:
    """What ``fact`` returns once that is true; fails with ``what`` when it does not become so."""
    deadline = time.monotonic() + seconds
    while True:
        found = fact()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:.0f} s still not: {what} ({found!r})")
        time.sleep(look)


class OwnProcess:
    """One process; its output is in ``log_file``."""

    def __init__(self, command: Sequence[str], log_file: Path, *, cwd: Path, environment: Mapping[str, str]) -> None:
        self.log_file = log_file
        self._output = log_file.open("ab")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            cwd=cwd,
            env={**os.environ, **environment},
            process_group=0,
            preexec_fn=dies_with_parent(signal.SIGKILL),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def freeze(self) -> None:
        """SIGSTOP, until the kernel says that it took."""
        self.send(signal.SIGSTOP)
        eventually(lambda: self._state() == "T", "frozen")

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait(10)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Its exit status."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"it does not end; its log:\n{self.text()[-4000:]}") from error

    def stop(self, seconds: float = PATIENCE) -> int:
        """SIGTERM; its exit status."""
        self.send(signal.SIGTERM)
        return self.wait(seconds)

    def end(self) -> None:
        """Whatever it does, it is gone."""
        if self.running:
            self.kill()
        self._output.close()

    def text(self) -> str:
        return self.log_file.read_text(errors="replace")

    def log(self, event: str | None = None) -> list[dict[str, Any]]:
        """Its JSON lines, or those of one event."""
        found = []
        for line in self.text().splitlines():
            if line.startswith("{"):
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # the last line may be half written
                if event is None or entry.get("event") == event:
                    found.append(entry)
        return found

    def _state(self) -> str:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]


class Processes:
    """Starts our commands against one database, in ``folder``, where their logs lie."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.handled = folder / "handled.jsonl"
        self.handled.touch()
        self.started: list[OwnProcess] = []

    def start(
        self, *arguments: str, name: str = "", cwd: Path | None = None, python: Sequence[str] = (), **environment: str
    ) -> OwnProcess:
        """``slotkeeper`` with these arguments; handlers find HANDLED_FILE in their environment."""
        log_file = self.folder / f"{len(self.started)}-{name or arguments[0]}.log"
        process = OwnProcess(
            [sys.executable, *python, "-m", "slotkeeper.cli", *arguments],
            log_file,
            cwd=cwd or self.folder,
            environment={"HANDLED_FILE": str(self.handled), "PYTHONUNBUFFERED": "1", **environment},
        )
        self.started.append(process)
        return process

    def script(self, file: Path, *arguments: str, **environment: str) -> OwnProcess:
        """A Python file of the tests as a process."""
        log_file = self.folder / f"{len(self.started)}-{file.stem}.log"
        process = OwnProcess(
            [sys.executable, str(file), *arguments],
            log_file,
            cwd=file.parent,
            environment={"HANDLED_FILE": str(self.handled), **environment},
        )
        self.started.append(process)
        return process

    def worker(self, dsn: str, app: Path, *more: str, python: Sequence[str] = (), **settings: object) -> OwnProcess:
        """A worker of every namespace and queue with the handlers of ``app``; short lease and poll unless told.

        Lower-case settings are flags, UPPER_CASE ones variables of its environment.
        """
        environment = {name: str(value) for name, value in settings.items() if name.isupper()}
        settings = {name: value for name, value in settings.items() if not name.isupper()}
        flags = {
            "namespaces": "*", "queues": "*", "allow": "task,command", "lease_seconds": 3, "poll_seconds": 0.2,
            "concurrency": 20, "name": f"worker-{len(self.started)}", "log_format": "json", "listen": "off",
            **settings,
        }  # fmt: skip
        words = [word for flag, value in flags.items() for word in (f"--{flag.replace('_', '-')}", str(value))]
        return self.start(
            "worker", "--dsn", dsn, "--app", app.stem, *words, *more,
            name=str(flags["name"]), cwd=app.parent, python=python, **environment,
        )  # fmt: skip

    def controller(self, dsn: str, *more: str, listen: str = "off") -> OwnProcess:
        """A controller without Kubernetes: ticker and keeper."""
        words = ("--no-kubernetes", "--log-format", "json", "--listen", listen, "--dashboard-listen", "off")
        return self.start("controller", "--dsn", dsn, *words, *more)

    def handled_runs(self) -> list[dict[str, Any]]:
        """What handlers wrote to HANDLED_FILE, in order."""
        return [json.loads(line) for line in self.handled.read_text().splitlines()]

    def end(self) -> None:
        for process in self.started:
            process.end()


@contextmanager
def own_processes(folder: Path) -> Iterator[Processes]:
    """Every process started in the block is gone after it."""
    processes = Processes(folder)
    try:
        yield processes
    finally:
        processes.end()

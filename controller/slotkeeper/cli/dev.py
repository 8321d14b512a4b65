"""`slotkeeper dev`: everything on one machine without a cluster: Postgres, ticker, keeper and a worker.

The quickest way to try a schedule. Not for production: its Postgres is a throw-away.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from slotkeeper.child_process import dies_with_parent
from slotkeeper.cli import options
from slotkeeper.cli.dev_files import DevFiles
from slotkeeper.cli.embedded_postgres import EmbeddedPostgres
from slotkeeper.cli.logs import set_up_logs
from slotkeeper.keeper import Keeper
from slotkeeper.metrics.address import Address
from slotkeeper.operator.apply import Applier
from slotkeeper.store.connection import Session
from slotkeeper.store.migrate import migrate
from slotkeeper.store.schedules import bind_cluster, stored_schedules
from slotkeeper.ticker import Ticker
from slotkeeper.web.listen import ListenAddress
from slotkeeper.web.server import Dashboard

CLUSTER = "dev"
_FOLDER_PREFIX = "slotkeeper-dev-"
#: How often files are looked at (seconds).
_LOOK_SECONDS = 0.5
#: A worker that ends sooner than this has a fault that a restart will not mend; the longest wait until the next try.
_SOON_SECONDS, _LONGEST_WAIT = 10.0, 30.0
#: A worker that dies with its machine is replaced sooner here than in production.
_LEASE_SECONDS, _POLL_SECONDS = "10", "1"


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="FILE|DIR...")
@options.option("--app", multiple=True, help="A module that registers handlers. Default: app.py of a DIR that has one.")
@options.option(
    "--data", type=click.Path(path_type=Path), help="Keep the database here. Default: a folder removed at the end."
)
@options.option("--concurrency", type=click.IntRange(1, 1000), default=20, show_default=True, help="Runs at a time.")
@options.option("--drain-seconds", type=click.FloatRange(0), default=30.0, show_default=True,
                help="After Ctrl-C: how long running handlers may go on.")  # fmt: skip
@options.listen("off")
@options.dashboard_listen
@options.log_format
@options.log_level
def dev(
    paths: tuple[Path, ...], app: tuple[str, ...], data: Path | None, concurrency: int, drain_seconds: float,
    listen: Address | None, dashboard_listen: ListenAddress | None, log_format: str, log_level: str,
) -> None:  # fmt: skip
    """Runs the JobSchedules of FILEs and DIRs on this machine: Postgres, ticker, keeper and a worker, without a
    cluster.

    Edits of the files are picked up: a changed schedule is applied, a removed one retires, changed Python
    restarts the worker. Ctrl-C drains.
    """
    set_up_logs(log_format, log_level)
    stop = threading.Event()
    _stop_on_signals(stop, lambda: None)
    with _database(data) as dsn:
        click.echo(f"database: {dsn}", err=True)
        migrate(dsn)
        dashboard = None if dashboard_listen is None else Dashboard(dsn, dashboard_listen, any_port=True)
        if dashboard is not None:
            click.echo(f"dashboard: {dashboard.start() or 'not listening yet'}", err=True)
        session = Session(dsn, "dev")
        bind_cluster(session, CLUSTER, "files", adopt=True)
        known = [schedule.key for schedule in stored_schedules(session, CLUSTER)]  # of an earlier run with --data
        files = DevFiles(paths, Applier(session, CLUSTER, lambda *_: True), known)
        failed = _load(files)
        modules = list(app) or [path.name for path in (folder / "app.py" for folder in paths) if path.exists()]
        worker = DevWorker(dsn, modules, paths, concurrency, drain_seconds, log_format, log_level)
        click.echo(f"handlers: {', '.join(modules) or 'none (no app.py beside the schedules)'}", err=True)
        if not failed or modules:
            _serve(dsn, files, worker, stop, listen)
        session.close()
        if dashboard is not None:
            dashboard.stop()
    sys.exit(1 if failed else 0)


def _stop_on_signals(stop: threading.Event, hurry: Callable[[], None]) -> None:
    """The first Ctrl-C or SIGTERM stops; another one hurries."""

    def heard(*_: object) -> None:
        if stop.is_set():
            hurry()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, heard)


def _serve(dsn: str, files: DevFiles, worker: DevWorker, stop: threading.Event, listen: Address | None) -> None:
    ticker, keeper = Ticker(dsn), Keeper(dsn)
    served = None
    if listen is not None:
        from slotkeeper.cli.controller_http import ControllerParts, controller_http

        served = controller_http(
            listen, ControllerParts(ticker, keeper, stop), dsn=dsn, cluster=CLUSTER, most_schedules=10_000
        )
    actors = [ticker.actor, *keeper.actors]
    for actor in actors:
        actor.start()
    if served is not None:
        served.start()
    _stop_on_signals(stop, worker.hurry)
    worker.start()
    try:
        while not stop.wait(_LOOK_SECONDS):
            if files.changed():
                _load(files)
                ticker.actor.wake()
            worker.look()
        click.echo("draining", err=True)
    finally:
        # Slots that fall due during the drain are stored, not run: so the ticker stops first.
        for actor in actors:
            actor.stop()
        worker.stop()
        if served is not None:
            served.stop()


def _load(files: DevFiles) -> bool:
    """Applies the files and says what came of it; True when something is wrong."""
    loaded = files.load()
    for line in loaded.lines:
        click.echo(line, err=True)
    for error in loaded.errors:
        click.echo(f"refused: {error}", err=True)
    return bool(loaded.errors)


@contextmanager
def _database(data: Path | None) -> Iterator[str]:
    folder = data.resolve() if data is not None else Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-"))
    if data is None:
        _remove_abandoned(folder.parent)
    server = EmbeddedPostgres(folder, settings={"max_connections": "50", "shared_buffers": "64MB"})
    try:
        yield server.start()
    finally:
        server.stop()
        if data is None:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """Folders of processes that were killed: their names carry the process id."""
    for folder in parent.glob(f"{_FOLDER_PREFIX}*-*"):
        process_id = folder.name.removeprefix(_FOLDER_PREFIX).partition("-")[0]
        if process_id.isdecimal() and not Path(f"/proc/{process_id}").exists() and folder.stat().st_uid in _own_uids():
            shutil.rmtree(folder, ignore_errors=True)


def _own_uids() -> set[int]:
    # Root's servers run as another user, who owns their folders.
    return {os.getuid(), 65534} if os.getuid() == 0 else {os.getuid()}


class DevWorker:
    """The worker as a child process, so that a handler that ends its process ends only that, and an edit restarts
    it.
    """

    def __init__(
        self, dsn: str, modules: list[str], paths: tuple[Path, ...], concurrency: int, drain_seconds: float,
        log_format: str, log_level: str,
    ) -> None:  # fmt: skip
        self._folders = [path.resolve() if path.is_dir() else path.resolve().parent for path in paths]
        self._command = [
            sys.executable, "-m", "slotkeeper.cli", "worker", "--dsn", dsn, "--namespaces", "*", "--queues", "*",
            "--allow", "task,command", "--listen", "off", "--name", "dev-worker", "--concurrency", str(concurrency),
            "--lease-seconds", _LEASE_SECONDS, "--poll-seconds", _POLL_SECONDS, "--drain-seconds", str(drain_seconds),
            "--log-format", log_format, "--log-level", log_level,
            *(word for module in modules for word in ("--app", module.removesuffix(".py"))),
        ]  # fmt: skip
        self._drain_seconds = drain_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._stamps: dict[Path, int] = {}
        self._started_at = 0.0
        self._ended_at: float | None = None
        self._wait = 0.0
        self._hurried = False

    def start(self) -> None:
        """Starts the process; its lines go to our stderr."""
        self._stamps = self._python_stamps()
        self._started_at, self._ended_at = time.monotonic(), None
        search = os.pathsep.join([*map(str, self._folders), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLOTKEEPER_")}
        self._process = subprocess.Popen(
            self._command,
            env={**environment, "PYTHONPATH": search},
            stdin=subprocess.DEVNULL,
            preexec_fn=dies_with_parent(signal.SIGKILL),
            process_group=0,  # Ctrl-C on the terminal is for us, who then let it drain
        )

    def look(self) -> None:
        """Starts it again when it has ended, or when a Python file beside the schedules has changed."""
        changed = self._python_stamps() != self._stamps
        if self._process is None or self._process.poll() is not None:
            if changed or time.monotonic() >= self._again_at():
                self.start()
        elif changed:
            click.echo("code has changed: the worker drains, and another starts", err=True)
            self.stop()
            self.start()

    def _again_at(self) -> float:
        """When a worker that has ended is started again: ever later while it ends soon, as code with a fault does."""
        if self._ended_at is None:
            self._ended_at = time.monotonic()
            soon = self._ended_at - self._started_at < _SOON_SECONDS
            self._wait = min(max(2 * self._wait, 1.0), _LONGEST_WAIT) if soon else 0.0
            status = None if self._process is None else self._process.returncode
            when = f"in {self._wait:.0f} s, or when code changes" if soon else "now"
            click.echo(f"the worker has ended (exit status {status}); another starts {when}", err=True)
        return self._ended_at + self._wait

    def hurry(self) -> None:
        """A second signal: the worker gives its runs back at once. May be called by a signal handler."""
        self._hurried = True  # `stop` sends it: right after the first, the kernel would make one signal of two

    def stop(self) -> None:
        """Lets it drain."""
        if self._process is None:
            return
        self._process.terminate()
        deadline = time.monotonic() + self._drain_seconds + 20
        while self._process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_LOOK_SECONDS)
            if time.monotonic() > deadline:
                self._process.kill()
            elif self._hurried:
                self._process.terminate()
        self._process = None

    def _python_stamps(self) -> dict[Path, int]:
        stamps: dict[Path, int] = {}
        for folder in self._folders:
            for file in folder.glob("*.py"):
                with contextlib.suppress(OSError):  # editors replace and remove files while we look
                    stamps[file] = file.stat().st_mtime_ns
        return stamps

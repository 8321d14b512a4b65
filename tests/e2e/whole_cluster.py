"""The cluster of one node, what is typed at it (kubectl, helm), and a Postgres outside it that its pods reach."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import psycopg
from psycopg.conninfo import make_conninfo

from scenario import connect
from slotkeeper.cli.embedded_postgres import EmbeddedPostgres

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "cluster"
#: The host as pods see it, and where pods come from: tests/cluster/node.
HOST, PODS = "10.250.0.1", "10.244.0.0/24"
_PASSWORD = "p@ss:/ word%"  # characters that mean something in a URL: they must survive the way to the pods
_log = logging.getLogger(__name__)


def eventually(look: Callable[[], T], what: str, *, seconds: float = 90) -> T:
    """The first true answer of ``look``; fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (answer := look()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}; the last answer: {answer!r}"
        time.sleep(0.2)
    return answer


def script(name: str, *arguments: str, seconds: float = 900) -> str:
    """Runs one of tests/cluster; its standard output. What it says goes to the test's own output."""
    _log.info("%s %s", name, " ".join(arguments))
    done = subprocess.run([str(SCRIPTS / name), *arguments], stdout=subprocess.PIPE, text=True, timeout=seconds)
    assert done.returncode == 0, f"{name} ended with {done.returncode}: {done.stdout[-2000:]}"
    return done.stdout.strip()


@dataclass(frozen=True)
class WholeCluster:
    """``folder`` holds kubeconfig and programs."""

    folder: Path

    def kubectl(self, *arguments: str, given: str | None = None, check: bool = True) -> str:
        """Runs kubectl; its standard output. With ``check`` a failure is an error that shows what it said."""
        return self._run(["kubectl", *arguments], given, check)

    def helm(self, *arguments: str) -> str:
        _log.info("helm %s", " ".join(arguments))
        return self._run(["helm", *arguments], None, True)

    def get(self, namespace: str, *what: str) -> Any:
        """Objects as kubectl's JSON."""
        return json.loads(self.kubectl("-n", namespace, "get", *what, "-o", "json"))

    def pods(self, namespace: str, selector: str) -> list[str]:
        """Names of pods that run and are not being deleted."""
        return [
            pod["metadata"]["name"]
            for pod in self.get(namespace, "pods", "-l", selector)["items"]
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def settled(self, namespace: str) -> None:
        """Every Deployment of the namespace has rolled out."""
        for deployment in self.get(namespace, "deployments")["items"]:
            name = deployment["metadata"]["name"]
            self.kubectl("-n", namespace, "rollout", "status", f"deployment/{name}", "--timeout=120s")

    def new_namespace(self, name: str) -> None:
        """With Pod Security "restricted" enforced: a pod that wants more is refused."""
        self.kubectl("create", "namespace", name)
        self.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")

    def clean(self) -> None:
        """Removes what an earlier session left in a node that was kept."""
        for release in json.loads(self.helm("list", "-A", "-o", "json")):
            self.helm("uninstall", release["name"], "-n", release["namespace"], "--wait")
        self.kubectl("delete", "crd", "jobschedules.slotkeeper.dev", "--ignore-not-found")
        if self.kubectl("get", "namespace", "keda", "--ignore-not-found"):
            script("add-keda", "--remove")
        kept = {"default", "kube-system", "kube-public", "kube-node-lease"}
        names = {item["metadata"]["name"] for item in json.loads(self.kubectl("get", "ns", "-o", "json"))["items"]}
        if names - kept:
            self.kubectl("delete", "namespace", *sorted(names - kept), "--timeout=120s")

    def _run(self, command: Sequence[str], given: str | None, check: bool) -> str:
        done = subprocess.run(
            [str(self.folder / "bin" / command[0]), *command[1:]], input=given, capture_output=True, text=True,
            timeout=600,
            # Nothing of the user's own configuration is read or written.
            env={"PATH": os.defpath, "HOME": str(self.folder), "KUBECONFIG": str(self.folder / "admin.kubeconfig")},
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}: {done.stderr}{done.stdout[-2000:]}")
        return done.stdout


class Database:
    """A Postgres on the host. ``connection`` is the superuser's, over the socket; pods log in with passwords."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self._port = probe.getsockname()[1]
        settings = {"listen_addresses": HOST, "port": str(self._port), "max_connections": "200", "fsync": "off"}
        self._server = EmbeddedPostgres(folder, settings=settings)
        self._server.start()
        with (folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {PODS} scram-sha-256\n")
        self._rules = folder / "data" / "pg_hba.conf"
        self.connection: psycopg.Connection[Any] = self.connect()
        self.connection.execute("select pg_reload_conf()")

    def connect(self) -> psycopg.Connection[Any]:
        return connect(make_conninfo(self._server.dsn, port=str(self._port)))

    def add_login(self, name: str, options: str = "") -> str:
        """Makes a login; its DSN for pods."""
        self.connection.execute(f"create role {name} login password '{_PASSWORD}' {options}")
        return f"postgresql://{name}:{quote(_PASSWORD, safe='')}@{HOST}:{self._port}/postgres"

    @contextmanager
    def away(self) -> Iterator[None]:
        """Pods lose their connections and get no new ones."""
        usual = self._rules.read_text()
        self._rules.write_text(f"host all all {PODS} reject\n{usual}")
        try:
            self.connection.execute("select pg_reload_conf()")
            # Again and again: one that was being made meanwhile is ended too.
            eventually(lambda: not self._end_connections_of_pods(), "no connection of a pod is left")
            yield
        finally:
            self._rules.write_text(usual)
            self.connection.execute("select pg_reload_conf()")

    def _end_connections_of_pods(self) -> int:
        """How many there were."""
        (count,) = self.connection.execute(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where client_addr << %s::inet", [PODS]
        ).fetchone() or (0,)
        return int(count)

    def stop(self) -> None:
        self.connection.close()
        self._server.stop(immediately=True)


def new_folder(prefix: str) -> Path:
    """One that the unprivileged Postgres may enter."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o755)
    return folder

"""A real API server for tests: kubectl, and waiting for facts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, TypeVar

import yaml

T = TypeVar("T")
CLUSTER = Path(__file__).parents[1] / "cluster"
CRDS = Path(__file__).parents[2] / "crds"


@dataclass(frozen=True)
class ApiServer:
    """``state`` is the folder of a control plane that is the tests' own; None where it belongs to somebody."""

    kubeconfig: Path
    program: Path
    state: Path | None

    def kubectl(
        self, *arguments: str, given: str | None = None, check: bool = True, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl; with ``check`` a failure is an error that shows what it said."""
        done = subprocess.run(
            [str(self.program), "--kubeconfig", str(self.kubeconfig), *arguments],
            input=given, capture_output=True, text=True, timeout=60,
            # kubectl warns of what a schema ignores; nothing of the user's own configuration is read.
            env={"PATH": os.defpath, "HOME": str(self.kubeconfig.parent), "TZ": "UTC", **environment},
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(objects))

    def get(self, namespace: str, name: str) -> dict[str, Any] | None:
        done = self.kubectl("-n", namespace, "get", "jsched", name, "-o", "json", "--ignore-not-found")
        return json.loads(done.stdout) if done.stdout else None

    def list(self, namespace: str) -> dict[str, dict[str, Any]]:
        """The objects of a namespace by name."""
        found = json.loads(self.kubectl("-n", namespace, "get", "jsched", "-o", "json").stdout)
        return {obj["metadata"]["name"]: obj for obj in found["items"]}

    def restart(self, while_away: Callable[[], None]) -> None:
        """Kills the API server, does something, and starts it again."""
        assert self.state is not None
        process_id = int((self.state / "pid" / "kube-apiserver").read_text())
        os.kill(process_id, signal.SIGKILL)
        while_away()
        start(self.state)

    def etcd(self, call: str, **values: str | bool) -> dict[str, Any]:
        """One call of etcd's own API, behind the API server's back; keys and values as text."""
        assert self.state is not None
        port = (self.state / "ports").read_text().split()[1]
        encoded = {
            name: b64encode(value.encode()).decode() if name in ("key", "value") and isinstance(value, str) else value
            for name, value in values.items()
        }
        connection = HTTPConnection("127.0.0.1", int(port), timeout=10)
        with closing(connection):
            connection.request("POST", f"/v3/kv/{call}", json.dumps(encoded))
            answer = connection.getresponse()
            found: dict[str, Any] = json.load(answer)
            assert answer.status == 200, found
            return found


@contextmanager
def own_api_server() -> Iterator[ApiServer]:
    """A control plane of our own that knows JobSchedules, gone when the block ends."""
    state = Path(tempfile.mkdtemp(prefix="slotkeeper-cluster-"))
    try:
        server = ApiServer(start(state), state / "bin" / "kubectl", state)
        install_crd(server)
        yield server
    finally:
        stop(state)
        shutil.rmtree(state, ignore_errors=True)


def install_crd(server: ApiServer) -> None:
    server.kubectl("apply", "--server-side", "-f", str(CRDS))
    server.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/jobschedules.slotkeeper.dev")


def start(state: Path) -> Path:
    """Starts the control plane of that folder, or what of it does not run; returns its kubeconfig."""
    done = subprocess.run(
        [str(CLUSTER / "up")], env={**os.environ, "SLOTKEEPER_CLUSTER_STATE": str(state)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def stop(state: Path) -> None:
    """Ends it and removes the folder."""
    subprocess.run(
        [str(CLUSTER / "down")], env={**os.environ, "SLOTKEEPER_CLUSTER_STATE": str(state)}, check=True, timeout=60
    )


def eventually(look: Callable[[], T], *, seconds: float = 40, what: str = "") -> T:
    """The first true answer of ``look``; fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    answer = look()
    while not answer:
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or look}; the last answer: {answer!r}"
        time.sleep(0.1)
        answer = look()
    return answer


def condition(obj: dict[str, Any] | None, type_: str) -> dict[str, Any] | None:
    """A condition of the object, or None."""
    conditions = (obj or {}).get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == type_), None)


def settled(obj: dict[str, Any] | None) -> bool:
    """Whether the controller has looked at this generation."""
    return obj is not None and obj["status"]["observedGeneration"] == obj["metadata"]["generation"]

"""10,000 JobSchedules in a real API server: how long a controller takes to sync them, its memory, its calls.

Three controllers one after another on one database: one that has never seen the objects, one that is idle beside them,
and one that is restarted. Calls are counted by the API server itself (`apiserver_request_total`), less what it counts
in as long a time without any controller. Needs `make cluster-programs`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import yaml
from idle import cpu_seconds, resident_megabytes
from server import Server, benchmark_server

from slotkeeper.child_process import dies_with_parent

OBJECTS = int(os.environ.get("BENCH_OBJECTS", "10000"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "60"))
CLUSTER = Path(__file__).parents[1] / "tests" / "cluster"
CRDS = Path(__file__).parents[1] / "crds"
#: Objects of one `kubectl create`, and how many of these run at once.
_PART, _AT_ONCE = 500, 2
_NAMESPACES = 10
#: What our controller asks for; the cluster's own controllers ask for other things.
_OURS = re.compile(
    r'apiserver_request_total\{.*?resource="(jobschedules|events|selfsubjectaccessreviews)"'
    r',.*?subresource="(\w*)",.*?verb="(\w+)",.*?\} (\S+)'
)


class ControlPlane:
    """etcd and an API server of the benchmark's own."""

    def __init__(self, state: Path) -> None:
        self._environment = {**os.environ, "SLOTKEEPER_CLUSTER_STATE": str(state)}
        done = subprocess.run([CLUSTER / "up"], env=self._environment, capture_output=True, text=True, check=True)
        self.kubeconfig = Path(done.stdout.strip())
        self._program = state / "bin" / "kubectl"

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """Its output."""
        command = [str(self._program), "--kubeconfig", str(self.kubeconfig), *arguments]
        return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout

    def create(self, count: int) -> None:
        """Namespaces with ``count`` JobSchedules, no two in one minute of the year."""
        for number in range(_NAMESPACES):
            self.kubectl("create", "namespace", f"team-{number}")
        parts = [range(start, min(start + _PART, count)) for start in range(0, count, _PART)]
        for start in range(0, len(parts), _AT_ONCE):
            makers = [
                subprocess.Popen(
                    [str(self._program), "--kubeconfig", str(self.kubeconfig), "create", "-f", "-"],
                    stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                )
                for _ in parts[start : start + _AT_ONCE]
            ]  # fmt: skip
            for maker, part in zip(makers, parts[start:], strict=False):
                maker.communicate(yaml.dump_all(map(jobschedule, part), Dumper=yaml.CSafeDumper))
                assert maker.returncode == 0

    def calls(self) -> Counter[str]:
        """Requests answered so far, by verb and resource."""
        found: Counter[str] = Counter()
        for resource, subresource, verb, count in _OURS.findall(self.kubectl("get", "--raw", "/metrics")):
            found[f"{verb} {resource}{'/' if subresource else ''}{subresource}"] += int(float(count))
        return found

    def stop(self) -> None:
        subprocess.run([CLUSTER / "down"], env=self._environment, check=True, capture_output=True)


def jobschedule(number: int) -> dict[str, object]:
    """One of many: a nightly one with a payload."""
    spec = {
        "cron": [f"{number % 60} {number // 60 % 24} {number // 1440 % 28 + 1} 1 *"], "timeZone": "Europe/Berlin",
        "task": "billing.report", "payload": {"customer": f"customer-{number}", "format": "pdf"},
    }  # fmt: skip
    return {
        "apiVersion": "slotkeeper.dev/v1beta1",
        "kind": "JobSchedule",
        "metadata": {"name": f"report-{number}", "namespace": f"team-{number % _NAMESPACES}"},
        "spec": spec,
    }


@contextmanager
def controller(server: Server, plane: ControlPlane) -> Iterator[subprocess.Popen[bytes]]:
    """A running one."""
    process = subprocess.Popen(
        [
            sys.executable, "-m", "slotkeeper.cli", "controller", "--dsn", server.dsn, "--kubeconfig",
            str(plane.kubeconfig), "--listen", "127.0.0.1:0", "--dashboard-listen", "off", "--log-format", "json",
        ],
        stderr=subprocess.DEVNULL, preexec_fn=dies_with_parent(signal.SIGKILL),
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def wait_for(fact: Callable[[], object], seconds: float = 1200) -> float:
    """Seconds until ``fact`` is true."""
    began = time.monotonic()
    while not fact():
        assert time.monotonic() - began < seconds, "it takes too long"
        time.sleep(0.25)
    return time.monotonic() - began


def report(what: str, process: subprocess.Popen[bytes], **figures: object) -> None:
    line = {"benchmark": "objects", "what": what, "objects": OBJECTS, **figures}
    print(json.dumps({**line, "megabytes": round(resident_megabytes(process.pid))}), flush=True)


def shown(calls: Counter[str], minutes: float = 1) -> dict[str, float]:
    return {what: round(count / minutes, 1) for what, count in sorted(calls.items()) if count}


def main() -> None:
    """Prints one JSON line per measurement."""
    with benchmark_server() as server, tempfile.TemporaryDirectory(prefix="slotkeeper-bench-") as folder:
        server.recreate()
        plane = ControlPlane(Path(folder))
        try:
            plane.kubectl("apply", "--server-side", "-f", str(CRDS))
            plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/jobschedules.slotkeeper.dev")
            plane.create(OBJECTS)
            measure(server, plane)
        finally:
            plane.stop()


def measure(server: Server, plane: ControlPlane) -> None:
    """From empty, idle, and restarted."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:

        def stored() -> bool:
            return bool(connection.execute("select count(*) = %s from slotkeeper.schedule", [OBJECTS]).fetchone()[0])

        def written() -> bool:
            return plane.calls()["PATCH jobschedules/status"] - before["PATCH jobschedules/status"] >= OBJECTS

        before = plane.calls()
        time.sleep(SECONDS)
        silence = plane.calls() - before
        before = plane.calls()
        with controller(server, plane) as process:
            seconds = wait_for(stored)
            report("synced from empty", process, seconds=round(seconds, 1))
            seconds += wait_for(written)
            busy = cpu_seconds(process.pid)
            report("statuses written", process, seconds=round(seconds, 1), cpu_seconds=round(busy, 1),
                   calls=shown(plane.calls() - before))  # fmt: skip
            wait_for(lambda: quiet(plane))
            before, busy = plane.calls(), cpu_seconds(process.pid)
            time.sleep(SECONDS)
            busy = (cpu_seconds(process.pid) - busy) * 60 / SECONDS
            calls = plane.calls() - before - silence
            report("idle", process, calls_per_minute=shown(calls, SECONDS / 60), cpu_seconds_per_minute=round(busy, 1))
        before = plane.calls()
        with controller(server, plane) as process:
            time.sleep(10)
            wait_for(lambda: quiet(plane))
            report("restarted", process, calls=shown(plane.calls() - before),
                   cpu_seconds=round(cpu_seconds(process.pid), 1))  # fmt: skip


def quiet(plane: ControlPlane) -> bool:
    """Whether nothing was asked for ten seconds."""
    before = plane.calls()
    time.sleep(10)
    return plane.calls() == before


if __name__ == "__main__":
    main()

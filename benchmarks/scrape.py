"""What a scrape costs at 10,000 schedules and a million rows of history: CPU of the controller, and size."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time

import psycopg
from idle import cpu_seconds
from server import benchmark_server

from slotkeeper.child_process import dies_with_parent
from slotkeeper.operator.apply import Applier
from slotkeeper.spec import apply_defaults
from slotkeeper.store.connection import Session

SCHEDULES = int(os.environ.get("BENCH_SCHEDULES", "10000"))
HISTORY = int(os.environ.get("BENCH_ROWS", "1000000"))
SCRAPES = 3
PORT = int(os.environ.get("BENCH_PORT", "18990"))


def fill(dsn: str) -> None:
    """Schedules with a history each, and a live run of every tenth."""
    objects = [
        apply_defaults(
            {
                "apiVersion": "slotkeeper.dev/v1beta1",
                "kind": "JobSchedule",
                "metadata": {"namespace": f"team-{n % 50}", "name": f"bench-{n}", "uid": str(n), "generation": 1},
                "spec": {"every": {"periodSeconds": 86400}, "task": "noop"},
            }
        )
        for n in range(SCHEDULES)
    ]
    session = Session(dsn, "bench")
    Applier(session, "default", lambda *_: True).apply(objects)
    session.close()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "insert into slotkeeper.run_done (id, owner, slot, created_at, run_at, version, lane, max_attempts,"
            " trigger, outcome, attempt, charged, first_started_at, finished_at)"
            " select g, s.owner, x.at, x.at, x.at, 1, v.lane, 6, 0, 0, 1, 1, x.at, x.at"
            " from generate_series(1, %s) g"
            " cross join lateral (select clock_timestamp() - g * interval '1 second' as at) x"
            " join slotkeeper.schedule s on s.id = 1 + g %% %s"
            " join slotkeeper.schedule_version v on v.schedule = s.id",
            (HISTORY, SCHEDULES),
        )
        connection.execute(
            "update slotkeeper.schedule_state set last_success_at = clock_timestamp(),"
            " last_success_slot = clock_timestamp(), last_failure_at = clock_timestamp() - interval '1 day'"
        )
        connection.execute(
            "insert into slotkeeper.run (owner, slot, run_at, version, lane, max_attempts, trigger)"
            " select s.owner, clock_timestamp(), clock_timestamp(), 1, v.lane, 6, 0 from slotkeeper.schedule s"
            " join slotkeeper.schedule_version v on v.schedule = s.id where s.id % 10 = 0"
        )
        connection.execute("vacuum analyze")


def scrape(path: str) -> int:
    """One scrape as Prometheus does it; returns the bytes on the wire."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
    size = len(connection.getresponse().read())
    connection.close()
    return size


def wait_for_port() -> None:
    """Until the controller serves."""
    while True:
        try:
            scrape("/livez")
            return
        except ConnectionRefusedError:
            time.sleep(0.5)


def main() -> None:
    """Prints one JSON line per endpoint; every scrape asks the database, because it comes after what was kept."""
    with benchmark_server() as server:
        server.recreate()
        fill(server.dsn)
        controller = subprocess.Popen(
            [sys.executable, "-m", "slotkeeper.cli", "controller", "--no-kubernetes", "--dsn", server.dsn,
             "--listen", f"127.0.0.1:{PORT}", "--dashboard-listen", "off", "--log-level", "warning"],
            preexec_fn=dies_with_parent(signal.SIGKILL),
        )  # fmt: skip
        try:
            wait_for_port()
            for path, kept in (("/metrics", 5.5), ("/metrics/schedules", 16)):
                scrape(path)
                began, before = time.monotonic(), cpu_seconds(controller.pid)
                time.sleep(kept)
                idle = (cpu_seconds(controller.pid) - before) / (time.monotonic() - began)
                spent = size = 0.0
                for _ in range(SCRAPES):
                    began, before = time.monotonic(), cpu_seconds(controller.pid)
                    size = scrape(path)
                    spent += cpu_seconds(controller.pid) - before - idle * (time.monotonic() - began)
                    time.sleep(kept)
                line = {"cpu_seconds": round(spent / SCRAPES, 3), "bytes": size}
                print(json.dumps({"benchmark": "scrape", "path": path, "schedules": SCHEDULES, **line}))
        finally:
            controller.terminate()
            controller.wait(60)


if __name__ == "__main__":
    main()

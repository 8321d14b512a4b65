"""10,000 schedules due at one instant: how long until all their rows are there, by the database's clock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import psycopg
from server import benchmark_server

from slotkeeper.child_process import dies_with_parent
from slotkeeper.operator.apply import Applier
from slotkeeper.spec import apply_defaults
from slotkeeper.store.connection import Session

SCHEDULES = int(os.environ.get("BENCH_SCHEDULES", "10000"))


def main() -> None:
    """Prints one JSON line."""
    with benchmark_server() as server:
        server.recreate()
        began = time.monotonic()
        slot = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=30 + SCHEDULES // 500)
        objects = [
            apply_defaults(
                {
                    "apiVersion": "slotkeeper.dev/v1beta1",
                    "kind": "JobSchedule",
                    "metadata": {"namespace": "default", "name": f"bench-{n}", "uid": str(n), "generation": 1},
                    "spec": {
                        "every": {"periodSeconds": 86400, "anchorTime": slot.strftime("%Y-%m-%dT%H:%M:%SZ")},
                        "task": "noop",
                    },
                }
            )
            for n in range(SCHEDULES)
        ]
        Applier(Session(server.dsn, "bench"), "default", lambda *_: True).apply(objects)
        stored = time.monotonic() - began
        controller = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "slotkeeper.cli",
                "controller",
                "--no-kubernetes",
                "--listen",
                "off",
                "--dashboard-listen",
                "off",
                "--dsn",
                server.dsn,
            ],
            preexec_fn=dies_with_parent(signal.SIGKILL),
        )
        try:
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                while (datetime.now(UTC) - slot).total_seconds() < 60:
                    time.sleep(0.5)
                    rows, seconds = connection.execute(
                        "select count(*), extract(epoch from max(created_at) - %s)::float8 from slotkeeper.run", (slot,)
                    ).fetchone() or (0, 0.0)
                    if rows == SCHEDULES:
                        break
                line = {
                    "schedules": SCHEDULES,
                    "rows": rows,
                    "seconds_after_slot": seconds,
                    "stored_in": round(stored, 1),
                }
                print(json.dumps({"benchmark": "materialise", **line, "load": os.getloadavg()[0]}))
        finally:
            controller.terminate()
            controller.wait(30)


if __name__ == "__main__":
    main()

"""No-op runs drained by one worker process: fenced, history kept, synchronous commit on; as a ratio to the yardstick.

Three kinds: ad-hoc rows, scheduled rows of ``Allow`` schedules, and exclusive rows (one per owner at a time). Counts
are
checked: every run has exactly one outcome.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from server import Server, benchmark_server
from yardstick import yardstick

ROWS = int(os.environ.get("BENCH_ROWS", "300000"))
REPETITIONS = int(os.environ.get("BENCH_REPETITIONS", "3"))
OWNERS = 5_000

_AD_HOC = """
insert into slotkeeper.run (run_at, lane, max_attempts, trigger, task, payload)
select clock_timestamp(), slotkeeper.lane_of('default', 'default', 0::smallint), 6, 5, 'noop', '{}'
  from generate_series(1, %(rows)s)
"""
_SCHEDULED = """
insert into slotkeeper.run (owner, slot, run_at, version, lane, max_attempts, trigger, exclusive)
select s.owner, '2020-01-01'::timestamptz + k.n * interval '1 minute', clock_timestamp(), s.version,
       slotkeeper.lane_of('default', 'default', 0::smallint), 6, 0, %(exclusive)s
  from slotkeeper.schedule s cross join generate_series(1, greatest(%(rows)s / %(owners)s, 1)) k(n)
 where s.id <= %(owners)s
"""


def add_schedules(connection: psycopg.Connection[Any], count: int, *, overlap: int) -> None:
    """``count`` schedules of the task ``noop`` that never fall due by themselves."""
    connection.execute(
        "select slotkeeper.store_schedule_v1('default', 'default', 'bench-' || n, 'uid', 1, '1', false, null,"
        " '{\"cron\": [\"0 0 31 2 *\"], \"task\": \"noop\"}', '{}', 'hash', 'noop', 'default', 0::smallint,
        %s::smallint,"
        " 1::smallint, 100, null, 0, 60, 6::smallint, 30, 900, null, null, clock_timestamp(), null, null, true)"
        " from generate_series(1, %s) n",
        (overlap, count),
    )


def fill(kind: str) -> Callable[[psycopg.Connection[Any]], int]:
    """How to fill the table with due rows of one kind; returns how many there are."""

    def ad_hoc(connection: psycopg.Connection[Any]) -> int:
        return connection.execute(_AD_HOC, {"rows": ROWS}).rowcount

    def scheduled(connection: psycopg.Connection[Any]) -> int:
        add_schedules(connection, 100, overlap=3)
        return connection.execute(_SCHEDULED, {"rows": ROWS, "owners": 100, "exclusive": False}).rowcount

    def exclusive(connection: psycopg.Connection[Any]) -> int:
        """One row for each of many owners: the exclusive index and the promotion probe at every finish."""
        add_schedules(connection, ROWS // 3, overlap=0)
        return connection.execute(_SCHEDULED, {"rows": ROWS // 3, "owners": ROWS // 3, "exclusive": True}).rowcount

    return {"ad-hoc": ad_hoc, "scheduled": scheduled, "exclusive": exclusive}[kind]


def drain(server: Server, rows: int) -> float:
    """Runs per second of one worker process, from its first to its last outcome, by the database's clock."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "slotkeeper.cli", "worker", "--dsn", server.dsn, "--app", "noop_app", "--log-level", "warning"],
        cwd=Path(__file__).parent,
    )
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            while True:
                time.sleep(0.1)
                done, seconds, distinct = connection.execute(
                    "select count(*), extract(epoch from max(finished_at) - min(first_started_at))::float8,"
                    " count(distinct id) from slotkeeper.run_done where outcome = 0"
                ).fetchone() or (0, 0.0, 0)
                if done >= rows:
                    if (done, distinct) != (rows, rows):
                        raise RuntimeError(f"{rows} runs, {done} outcomes of {distinct} runs")
                    return float(rows / seconds)
                if worker.poll() is not None:
                    raise RuntimeError(f"the worker ended with {worker.returncode} after {done} of {rows} runs")
    finally:
        worker.terminate()
        worker.wait(60)


def main() -> None:
    """Prints one JSON line per repetition and one summary per kind."""
    kinds = sys.argv[1:] or ["ad-hoc", "scheduled", "exclusive"]
    with benchmark_server() as server:
        for kind in kinds:
            ratios = []
            for _ in range(REPETITIONS):
                server.recreate()
                with psycopg.connect(server.dsn, autocommit=True) as connection:
                    connection.execute("set synchronous_commit = off")
                    rows = fill(kind)(connection)
                    connection.execute("vacuum analyze slotkeeper.run")
                before = yardstick(server.other_dsn, server.programs)
                rate = drain(server, rows)
                after = yardstick(server.other_dsn, server.programs)
                ratio = rate / ((before + after) / 2)
                ratios.append(ratio)
                print(json.dumps({"benchmark": "drain", "kind": kind, "runs_per_second": round(rate), "before": round(before),
                                  "after": round(after), "ratio": round(ratio, 2), "load": os.getloadavg()[0]}),
                                  flush=True)  # fmt: skip
            print(f"drain {kind}: {statistics.median(ratios):.2f} R (of {', '.join(f'{r:.2f}' for r in ratios)})", flush=True)


if __name__ == "__main__":
    main()

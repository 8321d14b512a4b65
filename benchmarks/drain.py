"""No-op runs drained by one worker process: fenced, history kept, synchronous commit on; as a ratio to the yardstick.

Three kinds: ad-hoc rows, scheduled rows of ``Allow`` schedules, and exclusive rows (one per owner). Counts are
checked: every run has exactly one outcome. Then scheduled rows again, in pairs without and with a snapshot that is
held open in the same database while all of them pass, as a ratio of the two.

    drain.py [ad-hoc] [scheduled] [exclusive] [held]
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from server import Server, benchmark_server
from yardstick import yardstick

from slotkeeper.child_process import dies_with_parent

ROWS = int(os.environ.get("BENCH_ROWS", "200000"))
REPETITIONS = int(os.environ.get("BENCH_REPETITIONS", "3"))
#: Schedules of an ``Allow`` kind share this many owners; an exclusive row needs one of its own.
_OWNERS = 100

_AD_HOC = """
insert into slotkeeper.run (run_at, lane, max_attempts, trigger, task, payload)
select clock_timestamp(), slotkeeper.lane_of('default', 'default', 0::smallint), 6, 5, 'noop', '{}'
  from generate_series(1, %(rows)s)
"""
_SCHEDULED = """
insert into slotkeeper.run (owner, slot, run_at, version, lane, max_attempts, trigger, exclusive)
select s.owner, '2020-01-01'::timestamptz + k.n * interval '1 minute', clock_timestamp(), s.version,
       slotkeeper.lane_of('default', 'default', 0::smallint), 6, 0, %(exclusive)s
  from slotkeeper.schedule s cross join generate_series(1, %(slots)s) k(n)
"""
_ADD_SCHEDULES = """
select slotkeeper.store_schedule_v1(
  'default', 'default', 'bench-' || n, 'uid', 1, '1', false, null, '{"cron": ["0 0 31 2 *"], "task": "noop"}', '{}',
  'hash', 'noop', 'default', 0::smallint, %(overlap)s::smallint, 1::smallint, 100, null, 0, 60, 6::smallint, 30, 900,
  null, null, clock_timestamp(), null, null, true)
  from generate_series(1, %(count)s) n
"""


def fill_ad_hoc(connection: psycopg.Connection[Any]) -> int:
    """Due ad-hoc rows."""
    return connection.execute(_AD_HOC, {"rows": ROWS}).rowcount


def fill_scheduled(connection: psycopg.Connection[Any]) -> int:
    """Due rows of schedules whose runs may overlap."""
    connection.execute(_ADD_SCHEDULES, {"overlap": 3, "count": _OWNERS})
    return connection.execute(_SCHEDULED, {"slots": ROWS // _OWNERS, "exclusive": False}).rowcount


def fill_exclusive(connection: psycopg.Connection[Any]) -> int:
    """One row for each of many owners: the exclusive index, and the promotion probe at every finish."""
    if connection.execute("select exists (select from slotkeeper.schedule)").fetchone() != (True,):
        connection.execute(_ADD_SCHEDULES, {"overlap": 0, "count": ROWS // 5})
    return connection.execute(_SCHEDULED, {"slots": 1, "exclusive": True}).rowcount


KINDS: dict[str, Callable[[psycopg.Connection[Any]], int]] = {
    "ad-hoc": fill_ad_hoc,
    "scheduled": fill_scheduled,
    "exclusive": fill_exclusive,
}


def drain(server: Server, fill: Callable[[psycopg.Connection[Any]], int], *, hold: bool = False) -> float:
    """Runs per second of one worker process, from its first claim to its last outcome, by the database's clock.

    Two rounds, of which the second counts: by then the worker knows the schedules, as one that has run for a while.
    """
    server.recreate()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        fill(connection)
        with _worker(server) as worker:
            _wait_until_drained(connection, worker)
            connection.execute("truncate slotkeeper.run_done")
            # In one transaction, so that all of it becomes due at once.
            with connection.transaction():
                rows = fill(connection)
            with _held_snapshot(server.dsn) if hold else contextlib.nullcontext():
                _wait_until_drained(connection, worker)
            return _checked_rate(connection, rows)


@contextlib.contextmanager
def _held_snapshot(dsn: str) -> Iterator[None]:
    with psycopg.connect(dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select count(*) from slotkeeper.lane")
        yield


@contextlib.contextmanager
def _worker(server: Server) -> Iterator[subprocess.Popen[bytes]]:
    worker = subprocess.Popen(
        [sys.executable, "-m", "slotkeeper.cli", "worker", "--dsn", server.dsn, "--app", "noop_app"],
        env={**os.environ, "SLOTKEEPER_LOG_LEVEL": "warning", "SLOTKEEPER_LISTEN": "off"},
        cwd=Path(__file__).parent,
        preexec_fn=dies_with_parent(signal.SIGKILL),
    )
    try:
        yield worker
    finally:
        worker.terminate()
        worker.wait(60)


def _wait_until_drained(connection: psycopg.Connection[Any], worker: subprocess.Popen[bytes]) -> None:
    while connection.execute("select exists (select from slotkeeper.run)").fetchone() == (True,):
        time.sleep(0.25)
        if worker.poll() is not None:
            raise RuntimeError(f"the worker ended with {worker.returncode} before all was done")


def _checked_rate(connection: psycopg.Connection[Any], rows: int) -> float:
    done, distinct, seconds = connection.execute(
        "select count(*), count(distinct id), extract(epoch from max(finished_at) - min(first_started_at))::float8"
        " from slotkeeper.run_done where outcome = 0"
    ).fetchone() or (0, 0, 1.0)
    if (done, distinct) != (rows, rows):
        raise RuntimeError(f"{rows} runs, but {done} outcomes of {distinct} runs")
    return float(rows / seconds)


def _say(**figures: object) -> None:
    print(json.dumps({**figures, "load": os.getloadavg()[0]}), flush=True)


def ratio_to_yardstick(server: Server, kind: str) -> float:
    """One drain between two yardsticks."""
    before = yardstick(server.other_dsn, server.programs)
    rate = drain(server, KINDS[kind])
    after = yardstick(server.other_dsn, server.programs)
    ratio = rate / ((before + after) / 2)
    _say(drain=kind, runs_per_second=round(rate), before=round(before), after=round(after), ratio=round(ratio, 2))
    return ratio


def ratio_of_held(server: Server) -> float:
    """One drain without and one with a snapshot held open."""
    free = drain(server, fill_scheduled)
    held = drain(server, fill_scheduled, hold=True)
    _say(drain="held", free=round(free), held=round(held), ratio=round(held / free, 2))
    return held / free


def main() -> None:
    """Prints one JSON line per repetition and one summary per kind."""
    with benchmark_server() as server:
        for kind in sys.argv[1:] or [*KINDS, "held"]:
            ratios = sorted(
                ratio_of_held(server) if kind == "held" else ratio_to_yardstick(server, kind)
                for _ in range(REPETITIONS)
            )
            unit = "of unheld" if kind == "held" else "R"
            spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
            print(f"drain {kind}: {statistics.median(ratios):.2f} {unit} ({spread})", flush=True)


if __name__ == "__main__":
    main()

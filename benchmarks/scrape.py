"""What a scrape costs at 10,000 schedules and a million rows of history: CPU of the exporting process, and size."""

from __future__ import annotations

import asyncio
import json
import os
import time

import psycopg
from server import benchmark_server

from slotkeeper.metrics.controller import ControllerFacts, ControllerMetrics
from slotkeeper.metrics.reading import DatabaseReader
from slotkeeper.metrics.schedules import ScheduleMetrics
from slotkeeper.operator.apply import Applier
from slotkeeper.spec import apply_defaults
from slotkeeper.store.connection import Session

SCHEDULES = int(os.environ.get("BENCH_SCHEDULES", "10000"))
HISTORY = int(os.environ.get("BENCH_ROWS", "1000000"))
REPETITIONS = 10


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


def schedules_cost(dsn: str) -> dict[str, float]:
    """CPU of one reading for /metrics/schedules in this process: the question, the text and its compression."""
    reader, session = DatabaseReader(dsn, "bench"), Session(dsn, "bench")
    metrics = ScheduleMetrics(reader, "default", SCHEDULES)
    metrics.write(session)
    began = time.process_time()
    for _ in range(REPETITIONS):
        written = metrics.write(session)
    spent = (time.process_time() - began) / REPETITIONS
    session.close()
    reader.close()
    return {"cpu_seconds": round(spent, 3), "bytes": len(written.text), "compressed": len(written.compressed)}


async def fleet_cost(dsn: str) -> dict[str, float]:
    """The same of /metrics."""
    probe_reader, reader = DatabaseReader(dsn, "bench"), DatabaseReader(dsn, "bench")
    facts = ControllerFacts(slots_materialised=0, lease_expirations={}, actor_failures={})
    spent = 0.0
    for _ in range(REPETITIONS):
        metrics = ControllerMetrics(lambda: facts, probe_reader, reader, "default")
        began = time.process_time()
        await metrics.families()
        spent += time.process_time() - began
    probe_reader.close()
    reader.close()
    return {"cpu_seconds": round(spent / REPETITIONS, 3)}


def main() -> None:
    """Prints one JSON line per endpoint. In this process, because a controller has other things to do meanwhile."""
    with benchmark_server() as server:
        server.recreate()
        fill(server.dsn)
        for path, cost in (
            ("/metrics", asyncio.run(fleet_cost(server.dsn))),
            ("/metrics/schedules", schedules_cost(server.dsn)),
        ):
            print(json.dumps({"benchmark": "scrape", "path": path, "schedules": SCHEDULES, **cost}))


if __name__ == "__main__":
    main()

"""The yardstick R: what a plain, good queue table reaches on this machine at this moment.

pgbench, two clients, batches of 100: claim with SKIP LOCKED and UPDATE, finish with UPDATE, the row kept, a
partial index on ready rows, two commits a batch. Every figure of these benchmarks is a ratio to R, taken just
before and just after it, because the machine changes from minute to minute.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import psycopg

_TABLE = """
drop table if exists yardstick;
create table yardstick (
  id bigint generated always as identity primary key,
  queue text not null default 'default',
  priority smallint not null default 0,
  state smallint not null default 0,
  attempts smallint not null default 0,
  run_at timestamptz not null default now(),
  locked_at timestamptz,
  finished_at timestamptz,
  payload jsonb not null default '{}');
create index yardstick_ready on yardstick (priority, id) where state = 0;
"""
_ROWS = 200_000
_BATCH = 100
_SCRIPT = f"""
with claimed as materialized (
  select id from yardstick where state = 0 and run_at <= now()
   order by priority, id limit {_BATCH} for update skip locked),
taken as (
  update yardstick y set state = 1, locked_at = now(), attempts = attempts + 1
    from claimed c where y.id = c.id returning y.id)
select array_agg(id) as ids from taken \\gset
update yardstick y set state = 2, finished_at = now() from unnest(:ids::bigint[]) u(id) where y.id = u.id;
"""


def yardstick(dsn: str, programs: Path, seconds: int = 2) -> float:
    """R in runs per second."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_TABLE)
        connection.execute("set synchronous_commit = off")
        connection.execute(
            f"insert into yardstick (payload) select jsonb_build_object('n', g) from generate_series(1, {_ROWS}) g"
        )
        connection.execute("vacuum analyze yardstick")
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(_SCRIPT)
        script.flush()
        pgbench = [str(programs / "pgbench"), "-n", "-M", "prepared", "-c", "2", "-j", "1", "-T", str(seconds)]
        result = subprocess.run([*pgbench, "-f", script.name, dsn], capture_output=True, text=True, check=True)
    found = re.search(r"tps = ([\d.]+) \(without", result.stdout)
    if found is None:
        raise RuntimeError(f"pgbench said: {result.stdout[-500:]} {result.stderr[-500:]}")
    return float(found[1]) * _BATCH

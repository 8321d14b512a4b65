-- What handlers of the tests note: each attempt that began, and when it ended.
create schema e2e;
create table e2e.attempt (
  run bigint not null,
  attempt integer not null,
  key text not null,
  schedule text,
  slot timestamptz,
  pod text not null,
  began_at timestamptz not null default clock_timestamp(),
  ended_at timestamptz,
  primary key (run, attempt)
);
-- Schedules, as namespace/name, whose runs are to fail.
create table e2e.broken (schedule text primary key);
grant usage on schema e2e to e2e_worker;
grant select, insert, update on e2e.attempt to e2e_worker;
grant select on e2e.broken to e2e_worker;

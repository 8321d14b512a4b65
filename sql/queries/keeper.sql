-- name: keeper.reap
-- Gives back the runs of workers whose lease has ended, and records slots that are past their start_by.
select * from slotkeeper.reap_v2(%(expected)s::timestamptz, %(starting)s::boolean) r, clock_timestamp() as moment;

-- name: keeper.fold
-- Moves outcomes into schedule_state.
select * from slotkeeper.fold_v1(%(after)s::bigint, %(limit)s::integer);

-- name: keeper.sweep
-- Stragglers, promotions that were missed, and orphans; nulls when it is not yet time.
select * from slotkeeper.sweep_v1();

-- name: keeper.partitions
-- Partitions for the days ahead.
select slotkeeper.ensure_partitions_v1((clock_timestamp() at time zone 'UTC')::date + %(days)s::integer) as made;

-- name: keeper.drop_history
-- Drops the partitions that are older than what is kept; null: ask again.
select slotkeeper.drop_history_v1() as dropped;

-- name: keeper.retain
-- One step of retention: whether there is more to do (null: ask again), how far it looked at keys, when it was last complete.
select r.*, extract(epoch from clock_timestamp() - r.retained_at)::double precision as age
  from slotkeeper.retain_v2(%(limit)s::integer, %(keys_after)s::bigint) r;

-- name: keeper.stale_success_due
-- Schedules after an id whose success_due was computed from something that has moved on.
select * from slotkeeper.stale_success_due_v2(%(after)s::bigint, %(limit)s::integer);

-- name: keeper.store_success_due
-- By when each of these schedules should have succeeded again; null where no success is expected.
select slotkeeper.store_success_due_v1(%(ids)s::bigint[], %(versions)s::integer[], %(since)s::timestamptz[], %(due)s::timestamptz[]);

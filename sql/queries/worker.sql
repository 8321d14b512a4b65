-- name: worker.register
-- One row for this worker process; returns its id.
select slotkeeper.register_worker_v1(
  %(name)s::text, %(namespace)s::text, %(pool)s::text, %(namespaces)s::text[], %(queues)s::text[], %(concurrency)s::integer,
  %(version)s::text, %(protocol)s::smallint, %(lease_seconds)s::integer) as id;

-- name: worker.lanes
-- The lanes that this worker may claim from, the most urgent first.
select lane, priority from slotkeeper.lanes_v1(%(worker)s::bigint);

-- name: worker.beat
-- Moves the lease; no row: this worker was reaped. Also the runs that are to be cancelled.
select * from slotkeeper.beat_v1(%(worker)s::bigint);

-- name: worker.leave
-- Removes the worker's row once it owns nothing; false while it does.
select slotkeeper.leave_v1(%(worker)s::bigint) as gone;

-- name: worker.work
-- Finishes the last batch's successes and claims the next batch, in one call.
select * from slotkeeper.work_v1(
  %(worker)s::bigint, %(token)s::uuid, %(lanes)s::integer[], %(bound_at)s::timestamptz[], %(bound_id)s::bigint[],
  %(seen)s::timestamptz, %(free)s::integer, %(prefetch)s::integer, %(addresses)b::tid[], %(tokens)s::uuid[],
  %(ended)s::integer, %(id_sum)s::bigint, %(drained)s::uuid[], %(resend)s::boolean);

-- name: worker.finish
-- Records what became of runs, one by one, and answers per run.
select * from slotkeeper.finish_v1(
  %(worker)s::bigint, %(ids)s::bigint[], %(tokens)s::uuid[], %(owners)s::bigint[], %(slots)s::timestamptz[],
  %(kinds)s::text[], %(seconds)s::double precision[], %(reasons)s::text[], %(messages)s::text[]);

-- name: worker.versions
-- What these versions of schedules say.
select * from slotkeeper.versions_v1(%(owners)s::bigint[], %(versions)s::integer[]);

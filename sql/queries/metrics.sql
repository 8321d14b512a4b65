-- name: metrics.schema
-- The number of the newest applied migration, and the database's clock (Unix seconds).
select slotkeeper.schema_version_v1() as version, extract(epoch from clock_timestamp())::double precision as moment;

-- name: metrics.queues
-- What waits, runs and is dead per lane.
select * from slotkeeper.queues_v1(%(limit)s::integer);

-- name: metrics.own_queues
-- What is ready or dead in the lanes of one worker.
select * from slotkeeper.own_queues_v1(%(worker)s::bigint, %(limit)s::integer);

-- name: metrics.vital_signs
-- How late the ticker is, watermarks ahead of the clock, and whether reaping is paused.
select * from slotkeeper.vital_signs_v1();

-- name: metrics.schedule_totals
-- Schedules by state and slots by outcome, per namespace.
select * from slotkeeper.schedule_totals_v1(%(cluster)s::text);

-- name: metrics.schedules
-- What each schedule of a cluster exports, as `health` says it; instants in Unix seconds.
select h.namespace, h.name, h.queue, h.suspended, h.held, h.dead_runs, h.consecutive_dead, h.missed,
       extract(epoch from h.last_success_at)::double precision as last_success,
       extract(epoch from h.last_failure_at)::double precision as last_failure,
       extract(epoch from h.success_due)::double precision as success_due,
       extract(epoch from h.next_slot)::double precision as next_slot,
       round(extract(epoch from clock_timestamp() - h.oldest_pending_age), 1)::double precision as oldest_pending,
       count(*) over () as stored
  from slotkeeper.health h where h.cluster = %(cluster)s::text
 order by h.namespace, h.name limit %(limit)s::integer;

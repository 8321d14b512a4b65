-- name: metrics.schema
-- The number of the newest applied migration, and the database's clock (Unix seconds).
select slotkeeper.schema_version_v1() as version, extract(epoch from clock_timestamp())::double precision as moment;

-- name: metrics.queues
-- What waits, runs and is dead per lane.
select * from slotkeeper.queues_v1(%(limit)s::integer);

-- name: metrics.own_queues
-- What is ready or dead in the lanes of one worker.
select * from slotkeeper.own_queues_v1(%(worker)s::bigint, %(limit)s::integer);

-- name: metrics.served_queues
-- Which pools serve which queues.
select * from slotkeeper.served_queues_v1();

-- name: metrics.vital_signs
-- How late the ticker is, watermarks ahead of the clock, and whether reaping is paused.
select * from slotkeeper.vital_signs_v1();

-- name: metrics.schedule_totals
-- Schedules by state and slots by outcome, per namespace.
select * from slotkeeper.schedule_totals_v1(%(cluster)s::text);

-- name: metrics.schedules
-- What each schedule of a cluster exports, as `health` says it; instants in whole Unix seconds.
select h.namespace, h.name, h.queue, h.suspended, h.held, h.dead_runs, h.consecutive_dead, h.missed,
       floor(extract(epoch from h.last_success_at))::bigint as last_success,
       floor(extract(epoch from h.last_failure_at))::bigint as last_failure,
       floor(extract(epoch from h.created_at))::bigint as created,
       coalesce(h.last_success_at < h.created_at, true) as never_succeeded,
       floor(extract(epoch from h.success_due))::bigint as success_due,
       floor(extract(epoch from h.next_slot))::bigint as next_slot,
       floor(extract(epoch from clock_timestamp() - h.oldest_pending_age))::bigint as oldest_pending,
       count(*) over () as stored
  from slotkeeper.health h where h.cluster = %(cluster)s::text
 order by h.namespace, h.name limit %(limit)s::integer;

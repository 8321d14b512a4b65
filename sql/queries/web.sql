-- name: web.begin
-- The rest of this transaction only reads, and no statement of it takes longer; returns the database's clock.
select set_config('transaction_read_only', 'on', true) as reads,
       set_config('statement_timeout', %(milliseconds)s::integer::text, true) as bounded, clock_timestamp() as moment;

-- name: web.schedules
-- Schedules by cluster, namespace and name.
select * from slotkeeper.web_schedules_v1(
  %(namespace)s::text, %(name)s::text, %(state)s::text, %(health)s::text,
  %(after_cluster)s::text, %(after_namespace)s::text, %(after_name)s::text, %(limit)s::integer);

-- name: web.schedule
-- One schedule.
select * from slotkeeper.web_schedule_v1(%(cluster)s::text, %(namespace)s::text, %(name)s::text);

-- name: web.schedule_counts
-- How many schedules are in which state and health.
select * from slotkeeper.web_schedule_counts_v1();

-- name: web.live
-- Live runs by id, the oldest first.
select * from slotkeeper.web_live_v1(
  %(after)s::bigint, %(until)s::bigint, %(status)s::text, %(namespace)s::text, %(limit)s::integer);

-- name: web.live_until
-- Up to which id a number of live runs follow.
select slotkeeper.web_live_until_v1(%(after)s::bigint, %(window)s::integer) as id;

-- name: web.ended
-- What ended in a range of time, the latest first.
select * from slotkeeper.web_ended_v1(
  %(after)s::timestamptz, %(until)s::timestamptz, %(before_id)s::text, %(status)s::text, %(namespace)s::text, %(limit)s::integer);

-- name: web.ended_count
-- How many ended in it, at most so many.
select slotkeeper.web_ended_count_v1(%(after)s::timestamptz, %(until)s::timestamptz, %(most)s::integer) as found;

-- name: web.runs
-- The runs of one schedule with a slot in a range, the latest first.
select * from slotkeeper.web_runs_v1(
  %(schedule)s::bigint, %(after)s::timestamptz, %(until)s::timestamptz, %(before_id)s::text, %(status)s::text, %(limit)s::integer);

-- name: web.runs_count
-- How many there are in it, at most so many.
select slotkeeper.web_runs_count_v1(
  %(schedule)s::bigint, %(after)s::timestamptz, %(until)s::timestamptz, %(most)s::integer) as found;

-- name: web.slots
-- The slots of one schedule by the hour.
select * from slotkeeper.web_slots_v1(%(schedule)s::bigint, %(after)s::timestamptz);

-- name: web.queues
-- Lanes, with what waits and runs in them.
select * from slotkeeper.web_queues_v1(%(most)s::integer);

-- name: web.workers
-- Worker processes.
select * from slotkeeper.web_workers_v1(%(limit)s::integer);

-- name: web.first_slot
-- The oldest slot of one schedule that is on record.
select slotkeeper.web_first_slot_v1(%(schedule)s::bigint) as moment;

-- name: web.kept_since
-- No history is older than this.
select slotkeeper.web_kept_since_v1() as moment;

-- name: ticker.due
-- Schedules that have a slot due, the most overdue first, with the database's clock.
select * from slotkeeper.due_v1(%(limit)s::integer);

-- name: ticker.upcoming
-- Schedules whose slots fall due soon, the next ones first, from where the caller stopped looking.
select id, owner, version, next_due from slotkeeper.upcoming_v1(
  %(after)s::timestamptz, %(after_id)s::bigint, %(horizon_seconds)s::double precision, %(limit)s::integer);

-- name: ticker.versions
-- What these versions of schedules say.
select * from slotkeeper.versions_v1(%(owners)s::bigint[], %(versions)s::integer[]);

-- name: ticker.materialise
-- Decides the slots of many schedules; returns the ids that are left for the next pass.
select slotkeeper.materialise_v1(
  %(ids)s::bigint[], %(versions)s::integer[], %(watermarks)s::timestamptz[], %(until)s::timestamptz[],
  %(next_slots)s::timestamptz[], %(next_dues)s::timestamptz[],
  %(run_ids)s::bigint[], %(run_slots)s::timestamptz[], %(run_ats)s::timestamptz[], %(run_start_bys)s::timestamptz[],
  %(run_triggers)s::smallint[], %(run_places)s::integer[], %(run_exempt)s::boolean[],
  %(skip_ids)s::bigint[], %(skip_firsts)s::timestamptz[], %(skip_lasts)s::timestamptz[], %(skip_counts)s::bigint[],
  %(skip_reasons)s::text[]) as left_over;

-- name: ticker.next_due
-- Seconds until the next slot falls due, by the database's clock; null when none will.
select slotkeeper.next_due_v1() as seconds;

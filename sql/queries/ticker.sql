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
-- Decides the slots of many schedules; returns the ids that are left for the next pass. (%b: the driver writes a thousand
-- instants in binary ten times as fast as in text, which it would choose.)
select slotkeeper.materialise_v1(
  %(ids)b::bigint[], %(versions)b::integer[], %(watermarks)b::timestamptz[], %(until)b::timestamptz[],
  %(next_slots)b::timestamptz[], %(next_dues)b::timestamptz[],
  %(run_ids)b::bigint[], %(run_slots)b::timestamptz[], %(run_ats)b::timestamptz[], %(run_start_bys)b::timestamptz[],
  %(run_triggers)b::smallint[], %(run_places)b::integer[], %(run_exempt)b::boolean[],
  %(skip_ids)b::bigint[], %(skip_firsts)b::timestamptz[], %(skip_lasts)b::timestamptz[], %(skip_counts)b::bigint[],
  %(skip_reasons)b::text[]) as left_over;

-- name: ticker.next_due
-- Seconds until the next slot falls due, by the database's clock, and that clock; null when none will.
select slotkeeper.next_due_v1() as seconds, clock_timestamp() as moment;

-- What metrics and probes read. Nothing here changes anything, and nothing reads history: what has ended is counted in
-- schedule_state. Called at most every few seconds per process, and only while somebody scrapes.

-- schema_version_v1: the number of the newest migration that was applied.
create or replace function slotkeeper.schema_version_v1() returns integer
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select coalesce(max(left(m.name, 4)::integer), 0) from migration m where m.name ~ '^\d{4}_';
$$;

-- queues_v1: what waits, runs and is dead, per lane.
--
--   ready      due, and could start now: what a claim would find (of an exclusive owner at most one row)
--   scheduled  due later, never attempted; retrying: due later, after an attempt
--   waiting    behind another run of its owner
--   running    running, or asked to stop and not yet stopped
create or replace function slotkeeper.queues_v1(p_limit integer)
returns table (lane integer, namespace text, queue text, scheduled bigint, ready bigint, waiting bigint, retrying bigint,
               running bigint, dead bigint, oldest_ready_age double precision)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off
as $$
  select l.id, l.namespace, l.queue, d.scheduled, d.ready, coalesce(b.waiting, 0), d.retrying, d.running, d.dead, d.oldest_ready_age
    from lane l
    cross join lateral slotkeeper.lane_depth(l.id, 'infinity', p_limit) d
    left join (select r.lane, count(*) as waiting from (select x.lane from run x where x.behind limit p_limit) r
                group by r.lane) b on b.lane = l.id;
$$;

-- own_queues_v1: what is ready or dead in the lanes that a worker serves and its login may claim from. A hundred workers may
-- ask; none sees another tenant's queue.
create or replace function slotkeeper.own_queues_v1(p_worker bigint, p_limit integer)
returns table (lane integer, namespace text, queue text, ready bigint, dead bigint, oldest_ready_age double precision)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select l.lane, l.namespace, l.queue, d.ready, d.dead, d.oldest_ready_age
    from slotkeeper.lanes_v1(p_worker) l cross join lateral slotkeeper.lane_depth(l.lane, statement_timestamp(), p_limit) d;
$$;

-- served_queues_v1: which pools serve which queues: where runs may be taken from a worker. Lanes are few, pools fewer.
create or replace function slotkeeper.served_queues_v1() returns table (namespace text, queue text, pool text)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select distinct l.namespace, l.queue, p.name
    from pool p join lane l
      on (l.namespace = any (p.namespaces) or '*' = any (p.namespaces)) and (l.queue = any (p.queues) or '*' = any (p.queues));
$$;

-- lane_depth: one lane. At most p_limit live rows that are due by p_due are looked at, in the order of their due time, and at
-- most p_limit dead ones: counts stop there, and a deep backlog costs no more than a moderate one.
create or replace function slotkeeper.lane_depth(p_lane integer, p_due timestamptz, p_limit integer)
returns table (scheduled bigint, ready bigint, retrying bigint, running bigint, dead bigint, oldest_ready_age double precision)
language sql stable
set search_path = pg_catalog, slotkeeper, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
  select s.scheduled, s.ready, s.retrying, s.running, d.dead,
         coalesce(greatest(extract(epoch from clock_timestamp() - s.oldest), 0), 0)::double precision
    from (
      select count(*) filter (where r.state = 0 and r.run_at > statement_timestamp() and r.attempt = 0) as scheduled,
             count(*) filter (where r.ready) as ready, min(r.run_at) filter (where r.ready) as oldest,
             count(*) filter (where r.state = 0 and r.run_at > statement_timestamp() and r.attempt > 0) as retrying,
             count(*) filter (where r.state <> 0) as running
        from (select x.run_at, x.state, x.attempt,
                     x.state = 0 and x.run_at <= statement_timestamp()
                     and (x.start_by is null or x.start_by >= statement_timestamp() or x.first_started_at is not null) as ready
                from run x where x.lane = p_lane and not x.behind and x.run_at <= p_due
               order by x.run_at, x.id limit p_limit) r) s
    cross join (select count(*) as dead from (select from run_dead x where x.lane = p_lane limit p_limit) r) d;
$$;

-- vital_signs_v1: how late the ticker is (seconds; 0 when nothing is overdue), how far a watermark is ahead of the clock
-- (seconds; 0 when none is), and whether reaping is paused.
create or replace function slotkeeper.vital_signs_v1(
  out ticker_lag double precision, out watermark_ahead double precision, out reaping_paused boolean)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select greatest(extract(epoch from clock_timestamp() - (select min(s.next_due) from schedule s where s.next_due < clock_timestamp())), 0),
         greatest(extract(epoch from (select max(s.watermark) from schedule s where s.retired_at is null) - clock_timestamp()), 0),
         (select f.reap_paused_until > clock_timestamp() from fleet f);
$$;

-- schedule_totals_v1: per namespace, how many schedules a cluster has in each state, and how many slots have ended in each
-- way. Deleted schedules still count in the latter, so that no total ever falls.
create or replace function slotkeeper.schedule_totals_v1(p_cluster text)
returns table (namespace text, active bigint, suspended bigint, held bigint, unwatched bigint,
               done bigint, dead bigint, skipped bigint)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select s.namespace,
         count(*) filter (where s.retired_at is null and not (s.suspended or s.held or s.unwatched)),
         count(*) filter (where s.retired_at is null and not s.unwatched and s.suspended),
         count(*) filter (where s.retired_at is null and not s.unwatched and s.held and not s.suspended),
         count(*) filter (where s.retired_at is null and s.unwatched),
         sum(t.done_count)::bigint, sum(t.dead_count)::bigint, sum(t.skipped_count)::bigint
    from schedule s join schedule_state t on t.schedule = s.id
   where s.cluster = p_cluster
   group by s.namespace;
$$;

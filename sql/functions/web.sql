-- What the dashboard reads. No payload, no text of an error and no argument of an action leaves these functions. History is
-- read in ranges that the caller has counted first, so that no page ever reads all of it. join_collapse_limit: the rows of the
-- range come first, then their names; else the planner may begin at a lane and read all that it ever held.

-- dashboard_run: a run as the dashboard shows it. Of ours alone.
create or replace view slotkeeper.dashboard_run as
select id, cluster, namespace, schedule, slot, last_slot, slots, type, queue, priority, trigger, status, reason, idempotency_key,
       run_at, attempts, charged, max_attempts, locked_by, locked_until, created_at, started_at, finished_at, generation,
       case when trigger = 'Schedule' and started_at > slot + make_interval(secs => start_within)
            then extract(epoch from started_at - slot)::double precision end as late_seconds,
       run, owner, live
  from slotkeeper.run_record;

-- dashboard_schedule: a schedule that is not retired, what it says of time, and how it does. Of ours alone.
create or replace view slotkeeper.dashboard_schedule as
select h.cluster, h.namespace, h.name, h.queue, l.priority::integer as priority, v.action as type,
       v.spec - '{payload,command,http,job}'::text[] as spec, v.generation, s.created_at, s.timing_since,
       case when h.suspended then 'Suspended' when h.held then 'Held' when s.unwatched then 'Unwatched'
            when h.next_slot is null then 'NoNextSlot' else 'Active' end as state,
       case when h.consecutive_dead > 0 then 'DeadRuns'
            when l.unserved_since < clock_timestamp() - interval '120 seconds' and not (h.suspended or h.held)
                 and h.next_slot is not null
                 -- As unserved_queues_v1 says it, of one lane.
                 and (exists (select from slotkeeper.run r where r.lane = l.id and not r.behind and r.state = 0
                                 and r.run_at <= clock_timestamp() - interval '120 seconds')
                      or not exists (select from slotkeeper.pool p
                                      where (l.namespace = any (p.namespaces) or '*' = any (p.namespaces))
                                        and (l.queue = any (p.queues) or '*' = any (p.queues)))) then 'NoWorker'
            when h.success_due < clock_timestamp()
            then case when h.last_success_at is null then 'NeverSucceeded' else 'SuccessOverdue' end
            when h.last_success_at is null then 'NotYetDue' else 'Succeeding' end as health,
       h.next_slot, s.next_due, h.watermark, h.last_slot, h.last_success_slot, h.last_success_at, h.last_failure_at, h.success_due,
       h.dead_runs, h.consecutive_dead, h.missed, h.last_skip_slot, h.last_skip_reason, h.last_skip_at,
       s.id as schedule_id, s.owner
  from slotkeeper.health h
  join slotkeeper.schedule s on s.cluster = h.cluster and s.namespace = h.namespace and s.name = h.name
  join slotkeeper.schedule_version v on v.schedule = s.id and v.version = s.version
  join slotkeeper.lane l on l.id = v.lane;

-- web_schedules_v1: schedules by cluster, namespace and name, after the one that is named. p_name: a part of the name. Health is
-- worked out for the page alone, unless it is what is asked for.
create or replace function slotkeeper.web_schedules_v1(
  p_namespace text, p_name text, p_state text, p_health text,
  p_after_cluster text, p_after_namespace text, p_after_name text, p_limit integer)
returns setof slotkeeper.dashboard_schedule
language plpgsql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set jit = off
as $$
declare
  v_ids bigint[];
  v_clusters text[];
  v_namespaces text[];
  v_names text[];
begin
  if p_state is null and p_health is null then
    select array_agg(k.id), array_agg(distinct k.cluster), array_agg(distinct k.namespace), array_agg(distinct k.name)
      into v_ids, v_clusters, v_namespaces, v_names
      from (select s.id, s.cluster, s.namespace, s.name from schedule s
             where s.retired_at is null and (s.cluster, s.namespace, s.name) > (p_after_cluster, p_after_namespace, p_after_name)
               and (p_namespace is null or s.namespace = p_namespace)
               and (p_name is null or position(lower(p_name) in lower(s.name)) > 0)
             order by s.cluster, s.namespace, s.name limit p_limit) k;
    return query
      select d.* from dashboard_schedule d
       where d.cluster = any (v_clusters) and d.namespace = any (v_namespaces) and d.name = any (v_names)
         and d.schedule_id = any (v_ids)
       order by d.cluster, d.namespace, d.name;
  else
    return query
      select d.* from dashboard_schedule d
       where (d.cluster, d.namespace, d.name) > (p_after_cluster, p_after_namespace, p_after_name)
         and (p_namespace is null or d.namespace = p_namespace)
         and (p_name is null or position(lower(p_name) in lower(d.name)) > 0)
         and (p_state is null or d.state = p_state) and (p_health is null or d.health = p_health)
       order by d.cluster, d.namespace, d.name limit p_limit;
  end if;
end $$;

-- web_schedule_v1: one schedule.
create or replace function slotkeeper.web_schedule_v1(p_cluster text, p_namespace text, p_name text)
returns setof slotkeeper.dashboard_schedule
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set jit = off
as $$
  select d.* from dashboard_schedule d where d.cluster = p_cluster and d.namespace = p_namespace and d.name = p_name;
$$;

-- web_schedule_counts_v1: how many schedules are in which state and health.
create or replace function slotkeeper.web_schedule_counts_v1() returns table (state text, health text, schedules bigint)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set jit = off
as $$
  select d.state, d.health, count(*) from dashboard_schedule d group by 1, 2;
$$;

-- web_live_v1: the live runs with an id in (p_after, p_until], the oldest first.
create or replace function slotkeeper.web_live_v1(p_after bigint, p_until bigint, p_status text, p_namespace text, p_limit integer)
returns setof slotkeeper.dashboard_run
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
set join_collapse_limit = 1
set jit = off
as $$
  select d.* from dashboard_run d
   where d.live and d.run > p_after and d.run <= p_until
     and (p_status is null or d.status = p_status) and (p_namespace is null or d.namespace = p_namespace)
   order by d.run limit p_limit;
$$;

-- web_live_until_v1: the id up to which p_window live runs follow p_after; null when none follows.
create or replace function slotkeeper.web_live_until_v1(p_after bigint, p_window integer) returns bigint
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_seqscan = off set enable_bitmapscan = off
set jit = off
as $$
  select max(k.id) from (select r.id from run r where r.id > p_after order by r.id limit p_window) k;
$$;

-- web_ended_v1: what ended in (p_after, p_until], the latest first; with p_before_id only what comes after that row in this
-- order.
create or replace function slotkeeper.web_ended_v1(
  p_after timestamptz, p_until timestamptz, p_before_id text, p_status text, p_namespace text, p_limit integer)
returns setof slotkeeper.dashboard_run
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
set join_collapse_limit = 1
set jit = off
as $$
  select d.* from dashboard_run d
   where d.finished_at > p_after and d.finished_at <= p_until
     and (p_before_id is null or (d.finished_at, d.id) < (p_until, p_before_id))
     and (p_status is null or d.status = p_status) and (p_namespace is null or d.namespace = p_namespace)
   order by d.finished_at desc, d.id desc limit p_limit;
$$;

-- web_ended_count_v1: how many ended in (p_after, p_until], at most p_most.
create or replace function slotkeeper.web_ended_count_v1(p_after timestamptz, p_until timestamptz, p_most integer) returns bigint
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_seqscan = off
set jit = off
as $$
  select count(*) from (
    select from run_done d where d.finished_at > p_after and d.finished_at <= p_until
    union all select from run_dead d where d.died_at > p_after and d.died_at <= p_until
    union all select from slot_skip k where k.at > p_after and k.at <= p_until
    limit p_most) k;
$$;

-- web_runs_v1: the runs of one schedule, manual ones too, with a slot in (p_after, p_until], the latest slot first; with
-- p_before_id only what comes after that row in this order.
create or replace function slotkeeper.web_runs_v1(
  p_schedule bigint, p_after timestamptz, p_until timestamptz, p_before_id text, p_status text, p_limit integer)
returns setof slotkeeper.dashboard_run
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
set enable_bitmapscan = off
set join_collapse_limit = 1
set jit = off
as $$
  select d.* from dashboard_run d
   where d.owner = any (slotkeeper.owners_of(p_schedule)) and d.slot > p_after and d.slot <= p_until
     and (p_before_id is null or (d.slot, d.id) < (p_until, p_before_id))
     and (p_status is null or d.status = p_status)
   order by d.slot desc, d.id desc limit p_limit;
$$;

-- web_runs_count_v1: how many runs and records of one schedule have a slot in (p_after, p_until], at most p_most.
create or replace function slotkeeper.web_runs_count_v1(
  p_schedule bigint, p_after timestamptz, p_until timestamptz, p_most integer) returns bigint
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
set enable_bitmapscan = off
set join_collapse_limit = 1
set jit = off
as $$
  select count(*) from (
    select from run_every e
     where e.owner = any (slotkeeper.owners_of(p_schedule)) and e.slot > p_after and e.slot <= p_until limit p_most) k;
$$;

-- owners_of: the owners whose runs are a schedule's: of its slots, of its manual triggers and of its re-runs.
create or replace function slotkeeper.owners_of(p_schedule bigint) returns bigint[]
language sql stable
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select array(select s.owner from schedule s where s.id = p_schedule
               union all select o.id from owner o where o.schedule = p_schedule and o.kind <> 0);
$$;

-- web_slots_v1: the slots of a schedule in (p_after, now] by the hour, without manual runs. late: how many of them started
-- after slot + spread + grace. A range of slots that did not run is one row, from its first to its last slot, also one that
-- began before p_after and ends after it: ranges are of slots in a row, so it is among the last records before p_after.
create or replace function slotkeeper.web_slots_v1(p_schedule bigint, p_after timestamptz)
returns table (first_slot timestamptz, last_slot timestamptz, status text, reason text, slots bigint, late bigint,
               latest_seconds double precision)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
set enable_bitmapscan = off
set join_collapse_limit = 1
set jit = off
as $$
  select min(k.slot), max(k.last_slot), k.status, k.reason, sum(k.slots)::bigint, count(k.late), max(k.late)
    from (select e.slot, e.last_slot, e.status, e.reason, e.slots,
                 case when e.trigger = 0 and e.started_at > e.slot + make_interval(secs => v.spread_seconds + v.grace_seconds)
                      then extract(epoch from e.started_at - e.slot)::double precision end as late
            from run_every e left join schedule_version v on v.schedule = p_schedule and v.version = e.version
           where e.owner = (select s.owner from schedule s where s.id = p_schedule) and e.slot > p_after) k
   group by date_trunc('hour', k.slot, 'UTC'), k.status, k.reason, case when k.slots > 1 then k.slot end
  union all
  select b.first_slot, b.last_slot, case b.outcome when 1 then 'superseded' else 'skipped' end, b.reason, b.slots, 0, null
    from (select n.first_slot, n.last_slot, n.outcome, n.reason, n.slots from slot_skip n
           where n.schedule = p_schedule and n.first_slot <= p_after order by n.first_slot desc limit 1000) b
   where b.last_slot > p_after;
$$;

-- web_queues_v1: what waits and runs in each lane. Of a lane at most p_most rows are looked at, the oldest first; more: there
-- are more. behind: rows that wait until another run of their schedule has ended.
create or replace function slotkeeper.web_queues_v1(p_most integer)
returns table (namespace text, queue text, priority integer, ready bigint, later bigint, behind bigint, running bigint,
               more boolean, oldest timestamptz, workers bigint)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
  with waiting as materialized (
    select k.lane, count(*) as behind from (select r.lane from run r where r.behind limit p_most) k group by k.lane)
  select l.namespace, l.queue, l.priority::integer, c.ready, c.later, coalesce(b.behind, 0), c.running, c.looked = p_most, c.oldest,
         (select count(*) from worker w
           where w.lease_until > clock_timestamp() and (l.namespace = any (w.namespaces) or '*' = any (w.namespaces))
             and (l.queue = any (w.queues) or '*' = any (w.queues)))
    from lane l
   cross join lateral (
     select count(*) filter (where k.state = 0 and k.run_at <= statement_timestamp()) as ready,
            count(*) filter (where k.state = 0 and k.run_at > statement_timestamp()) as later,
            count(*) filter (where k.state <> 0) as running, count(*) as looked,
            min(k.run_at) filter (where k.state = 0 and k.run_at <= statement_timestamp()) as oldest
       from (select r.state, r.run_at from run r where r.lane = l.id and not r.behind
              order by r.run_at, r.id limit p_most) k) c
    left join waiting b on b.lane = l.id
   order by l.namespace, l.queue, l.priority desc;
$$;

-- web_workers_v1: worker processes and what they hold.
create or replace function slotkeeper.web_workers_v1(p_limit integer)
returns table (name text, pool text, namespaces text[], queues text[], concurrency integer, running bigint, version text,
               protocol integer, started_at timestamptz, beat_at timestamptz, lease_until timestamptz, alive boolean)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
set jit = off
as $$
  select w.name, w.pool, w.namespaces, w.queues, w.concurrency,
         (select count(*) from claim_batch b
            join run r on r.lane = b.lane and not r.behind and r.run_at between b.lo and b.hi and r.token = b.token and r.state <> 0
           where b.worker = w.id),
         w.version, w.protocol::integer, w.started_at, w.beat_at, w.lease_until, w.lease_until > clock_timestamp()
    from worker w order by w.pool, w.name, w.id limit p_limit;
$$;

-- web_first_slot_v1: the oldest slot of a schedule that is on record.
create or replace function slotkeeper.web_first_slot_v1(p_schedule bigint) returns timestamptz
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off
set jit = off
as $$
  select least(
    (select min(k.slot) from unnest(slotkeeper.owners_of(p_schedule)) o(id)
      cross join lateral (select r.slot from run r where r.owner = o.id order by r.slot limit 1) k),
    (select min(k.slot) from unnest(slotkeeper.owners_of(p_schedule)) o(id)
      cross join lateral (select d.slot from run_done d where d.owner = o.id order by d.slot limit 1) k),
    (select min(k.slot) from unnest(slotkeeper.owners_of(p_schedule)) o(id)
      cross join lateral (select d.slot from run_dead d where d.owner = o.id order by d.slot limit 1) k),
    (select k.first_slot from slot_skip k where k.schedule = p_schedule order by k.first_slot limit 1));
$$;

-- web_kept_since_v1: no history is older than this.
create or replace function slotkeeper.web_kept_since_v1() returns timestamptz
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select clock_timestamp() - make_interval(days => greatest(f.done_days, f.dead_days, 7) + 32) from fleet f;
$$;

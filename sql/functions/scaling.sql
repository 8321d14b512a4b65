-- The number to scale worker pools on, and its parts.

-- declare_pool_v1: a pool of the installation's configuration. Known before its first worker, so that it may begin with
-- none; what workers register changes nothing about it.
create or replace function slotkeeper.declare_pool_v1(
  p_namespace text, p_name text, p_namespaces text[], p_queues text[], p_concurrency integer)
returns void language sql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  insert into pool (namespace, name, namespaces, queues, concurrency, declared_by, login)
  values (p_namespace, p_name, p_namespaces, p_queues, p_concurrency, 'configuration', null)
  on conflict (namespace, name) do update
    set namespaces = excluded.namespaces, queues = excluded.queues, concurrency = excluded.concurrency,
        declared_by = excluded.declared_by, login = null;
$$;

-- pools_v1: per pool how many workers it wants, and why. Reads live rows only, never history, and writes nothing.
--
--   p_horizon_seconds  how far it looks ahead
--   p_drain_seconds    a run that has been going for longer would not end while its worker drains
--   p_most_workers     counts of a lane end at so many workers' worth of runs (and at 100,000): nobody scales further
--
--   claimable   due rows that could start now: what a claim would take. Of an exclusive owner that is at most one row,
--               because its others are behind, and none while that one is running or being cancelled
--   running     rows that its workers hold, whatever lane they are of
--   due_soon    claimable within the horizon: rows whose time comes, and slots that would become rows. A slot of an
--               exclusive schedule adds nothing while a row of it lives: that row is counted already, or holds its place
--   holding     workers that hold a run which is older than the drain time
--   wanted      max(ceil((claimable + running + due_soon) / concurrency), holding)
create or replace function slotkeeper.pools_v1(
  p_horizon_seconds double precision, p_drain_seconds double precision, p_most_workers integer)
returns table (namespace text, pool text, concurrency integer, claimable bigint, running bigint, due_soon bigint,
               holding bigint, workers bigint, wanted bigint)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
-- Statistics taken while the tables were empty must not choose a plan that reads all of `run`.
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
  with serves as materialized (
    select p.namespace, p.name, p.concurrency, l.id as lane
      from pool p join lane l
        on (l.namespace = any (p.namespaces) or '*' = any (p.namespaces)) and (l.queue = any (p.queues) or '*' = any (p.queues))
     where p.login is null
        or exists (select from queue_grant g
                    where g.may_claim and g.login in ('*', p.login)
                      and g.namespace in ('*', l.namespace) and g.queue in ('*', l.queue))),
  -- Each lane once, however many pools share it. From the keeper's note of its lowest ready row on, where that is fresh:
  -- under a snapshot held open the index is full of rows that have left.
  lanes as materialized (
    select s.lane, least(max(s.concurrency)::bigint * p_most_workers, 100000) as most,
           coalesce((select l.straggler_run_at from lane l
                      where l.id = s.lane and l.noted_at > statement_timestamp() - interval '30 seconds'), '-infinity') as lowest
      from serves s group by s.lane),
  rows_of_lanes as materialized (
    select k.lane, now.runs as claimable, soon.runs as due_soon
      from lanes k
     cross join lateral (
       select count(*) as runs from (
         select from run r
          where r.lane = k.lane and not r.behind and r.state = 0 and r.run_at >= k.lowest and r.run_at <= statement_timestamp()
            and (r.start_by is null or r.start_by >= statement_timestamp() or r.first_started_at is not null)
          order by r.run_at, r.id limit k.most) c) now
     cross join lateral (
       select count(*) as runs from (
         select from run r
          where r.lane = k.lane and not r.behind and r.state = 0 and r.run_at > statement_timestamp()
            and r.run_at <= statement_timestamp() + make_interval(secs => p_horizon_seconds)
            and (r.start_by is null or r.start_by >= r.run_at or r.first_started_at is not null)
          order by r.run_at, r.id limit k.most) c) soon),
  -- One slot per schedule, the next one: further ones only its calendar knows. Under Allow with RunOnce a slot takes the
  -- place of a row that has not started.
  slots_of_lanes as materialized (
    select v.lane, count(*) as due_soon
      from (select s.id, s.owner, s.version from schedule s
             where s.next_due <= statement_timestamp() + make_interval(secs => p_horizon_seconds)
               and not s.held  -- then next_due is when the hold ends
             order by s.next_due limit 100000) s
     cross join lateral (select n.lane, n.overlap <> 3 as exclusive, n.catch_up = 0 as newest_only from schedule_version n
                          where n.schedule = s.id and n.version = s.version limit 1) v
     -- (Not `exists`: that may become a hash of the whole table.)
     where case when v.exclusive then (select true from run r where r.owner = s.owner limit 1)
                when v.newest_only then (select true from run r where r.owner = s.owner and r.first_started_at is null
                                            and r.trigger in (0, 1) limit 1) end is null
     group by v.lane),
  -- What is held lies within the claims; claims that overlap are read once.
  claims as materialized (
    select b.lane, unnest(range_agg(tstzrange(b.lo, b.hi, '[]'))) as span from claim_batch b group by b.lane),
  held as materialized (
    select r.worker, count(*) as runs, min(b.claimed_at) as oldest
      from claims c
     cross join lateral (select h.worker, h.token from run h
                          where h.lane = c.lane and not h.behind and h.state <> 0 and h.run_at between lower(c.span) and upper(c.span)
                          order by h.run_at, h.id limit 100000) r
     cross join lateral (select n.claimed_at from claim_batch n where n.token = r.token and n.lane = c.lane limit 1) b
     group by r.worker),
  by_lanes as materialized (
    select s.namespace, s.name, sum(r.claimable) as claimable, sum(r.due_soon + coalesce(l.due_soon, 0)) as due_soon
      from serves s join rows_of_lanes r on r.lane = s.lane left join slots_of_lanes l on l.lane = s.lane
     group by s.namespace, s.name),
  by_workers as materialized (
    select w.namespace, w.pool as name, count(*) filter (where w.lease_until > statement_timestamp()) as workers,
           sum(h.runs) as running,
           count(*) filter (where h.oldest < statement_timestamp() - make_interval(secs => p_drain_seconds)) as holding
      from worker w
      -- Another login's workers say nothing about a pool that they may not change.
      join pool p on p.namespace = w.namespace and p.name = w.pool and (p.login is null or p.login = w.login)
      left join held h on h.worker = w.id
     group by w.namespace, w.pool),
  parts as (
    select p.namespace, p.name, p.concurrency, coalesce(l.claimable, 0) as claimable, coalesce(w.running, 0) as running,
           coalesce(l.due_soon, 0) as due_soon, coalesce(w.holding, 0) as holding, coalesce(w.workers, 0) as workers
      from pool p
      left join by_lanes l on l.namespace = p.namespace and l.name = p.name
      left join by_workers w on w.namespace = p.namespace and w.name = p.name)
  select k.namespace, k.name, k.concurrency, k.claimable::bigint, k.running::bigint, k.due_soon::bigint, k.holding, k.workers,
         greatest(ceil((k.claimable + k.running + k.due_soon) / k.concurrency)::bigint, k.holding)
    from parts k order by k.namespace, k.name;
$$;

-- reap_v2: gives back the runs of workers whose lease has ended, and records the slots whose start_by has passed.
-- Every worker and every controller calls it; they cannot collide (SKIP LOCKED).
--
--   p_expected  the database time that the caller expects by its own monotonic clock, or null at its first call:
--               a forward step of the database's clock must not expire living leases
--   p_starting  true at a process's first call: a silent fleet seen then is a fleet that was cut off
--   returns     how many runs were given back, ended dead, or skipped as too late; until when reaping is paused; and from
--               where leases were lost: an array of {namespace, queue, pool, ready, dead, cancelled}, whose last three are
--               what became of how many runs, and whose pool is that of the worker that lost them. A login that may not
--               claim from a queue is not told its name: then the first three are empty
create or replace function slotkeeper.reap_v2(p_expected timestamptz, p_starting boolean,
  out given_back integer, out dead integer, out skipped integer, out paused_until timestamptz, out lost jsonb)
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set jit = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
as $$
declare
  w slotkeeper.worker;
  v_taken record;
begin
  given_back := 0;
  dead := 0;
  lost := '[]';
  paused_until := slotkeeper.pause_reaping(p_expected, p_starting);
  skipped := 0;
  if paused_until > clock_timestamp() then
    return;  -- a clock that was set forward must not make slots late either
  end if;
  skipped := slotkeeper.skip_late();
  for w in select e.* from worker e where e.lease_until < statement_timestamp() order by e.id limit 20 for update skip locked
  loop
    v_taken := slotkeeper.take_from_worker(w);
    lost := lost || v_taken.lost;
    if v_taken.left_over = 0 then
      delete from worker e where e.id = w.id;
    end if;
  end loop;
  if lost <> '[]' then
    select l.given_back, l.dead, l.by_queue into given_back, dead, lost from slotkeeper.lost_by_queue(lost) l;
  end if;
end $$;

-- reap_v1: the same for clients of the version before, which do not ask from where.
create or replace function slotkeeper.reap_v1(p_expected timestamptz, p_starting boolean,
  out given_back integer, out dead integer, out skipped integer, out paused_until timestamptz)
language sql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select r.given_back, r.dead, r.skipped, r.paused_until from slotkeeper.reap_v2(p_expected, p_starting) r;
$$;

-- lost_by_queue: what take_from_worker told of each claim, together, with the names that the caller may know.
create or replace function slotkeeper.lost_by_queue(p_lost jsonb, out given_back integer, out dead integer, out by_queue jsonb)
language sql stable
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  with of_claims as (
    select case when k.told then l.namespace else '' end as namespace, case when k.told then l.queue else '' end as queue,
           case when k.told then c.pool else '' end as pool, c.ready, c.dead, c.cancelled
      from jsonb_to_recordset(p_lost) as c(lane integer, pool text, ready integer, dead integer, cancelled integer)
      join lane l on l.id = c.lane
     cross join lateral (
       select pg_has_role(session_user, 'slotkeeper_controller', 'member')
              or exists (select from queue_grant g
                          where g.may_claim and g.login in ('*', session_user)
                            and g.namespace in ('*', l.namespace) and g.queue in ('*', l.queue)) as told) k),
  of_queues as (
    select c.namespace, c.queue, c.pool, sum(c.ready) as ready, sum(c.dead) as dead, sum(c.cancelled) as cancelled
      from of_claims c group by c.namespace, c.queue, c.pool)
  select sum(q.ready)::integer, sum(q.dead)::integer, jsonb_agg(to_jsonb(q)) from of_queues q;
$$;

-- pause_reaping: the rules of the pause, which is a row that every process obeys. It lasts long enough for every
-- living worker to reconnect and renew: a beat and min(10 s, lease / 6), always less than a lease.
create or replace function slotkeeper.pause_reaping(p_expected timestamptz, p_starting boolean) returns timestamptz
language plpgsql
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  f record;
  v_reason text;
  v_pause interval;
begin
  select l.*, left(pg_walfile_name(pg_current_wal_lsn()), 8) as timeline_now into f from fleet l;
  if f.postmaster_start is distinct from pg_postmaster_start_time() then
    v_reason := 'PostmasterStart';
  elsif f.timeline <> f.timeline_now and f.timeline <> '' then
    v_reason := 'Failover';
  elsif clock_timestamp() > p_expected + interval '2 seconds' then
    v_reason := 'ClockStep';
  elsif p_starting and not exists (select from worker w where w.beat_at > clock_timestamp() - make_interval(secs => w.lease_seconds))
        and exists (select from worker) then
    v_reason := 'SilentFleet';
  elsif f.timeline = f.timeline_now then
    return f.reap_paused_until;
  end if;
  select make_interval(secs => max(w.lease_seconds / 3.0 + least(10, w.lease_seconds / 6.0))) into v_pause
    from worker w;
  update fleet l set postmaster_start = pg_postmaster_start_time(), timeline = f.timeline_now,
      reap_pause_reason = coalesce(v_reason, l.reap_pause_reason),
      reap_paused_until = case when v_reason is null then l.reap_paused_until
                               else greatest(l.reap_paused_until, clock_timestamp() + coalesce(v_pause, interval '0')) end,
      -- A step counts beside any other reason: a new primary may have both.
      tick_paused_until = case when clock_timestamp() > p_expected + interval '2 seconds'
                               then greatest(l.tick_paused_until, clock_timestamp() + coalesce(v_pause, interval '30 seconds'))
                               else l.tick_paused_until end
   returning l.reap_paused_until into f.reap_paused_until;
  return f.reap_paused_until;
end $$;

-- take_from_worker: the runs of one worker that has lost its lease and whose row the caller holds. How many it could not have
-- (others hold them at this moment), and for each claim what became of how many: {lane, pool, ready, dead, cancelled}.
drop function if exists slotkeeper.take_from_worker(slotkeeper.worker);  -- its answer has changed since 0001
create function slotkeeper.take_from_worker(w slotkeeper.worker, out left_over integer, out lost jsonb)
language plpgsql
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  b record;
  r slotkeeper.run;
  v_seen integer;
  v_all integer;
  v_owners bigint[];
  v_became text;
  v_became_of_all jsonb;
begin
  left_over := 0;
  lost := '[]';
  for b in select c.* from claim_batch c where c.worker = w.id order by c.lane, c.token loop
    v_seen := 0;
    v_became_of_all := '{"ready": 0, "dead": 0, "cancelled": 0}';
    select count(*) into v_all from run l
     where l.lane = b.lane and not l.behind and l.run_at between b.lo and b.hi and l.token = b.token and l.state <> 0;
    for r in select l.* from run l
              where l.lane = b.lane and not l.behind and l.run_at between b.lo and b.hi and l.token = b.token and l.state <> 0
              order by l.id for update skip locked
    loop
      v_seen := v_seen + 1;
      v_became := slotkeeper.lose_lease(r, w.name);
      v_became_of_all := jsonb_set(v_became_of_all, array[v_became], to_jsonb((v_became_of_all ->> v_became)::integer + 1));
      if v_became <> 'ready' and r.exclusive then
        v_owners := v_owners || r.owner;
      end if;
    end loop;
    left_over := left_over + v_all - v_seen;
    if v_seen > 0 then
      lost := lost || (v_became_of_all || jsonb_build_object('lane', b.lane, 'pool', w.pool));
    end if;
    if v_all = v_seen then
      delete from claim_batch c where c.token = b.token and c.lane = b.lane;
    end if;
  end loop;
  if v_owners is not null then
    perform slotkeeper.promote(v_owners);
  end if;
end $$;

-- lose_lease: what a lost lease makes of one run. The token stays, so that a late finish is accepted while nobody
-- has claimed the run again; a dead one loses it, and nothing is accepted any more.
create or replace function slotkeeper.lose_lease(r slotkeeper.run, p_worker text) returns text
language plpgsql
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  v_initial integer;
  v_max integer;
begin
  insert into run_error (run, attempt, worker, kind, message)
  values (r.id, r.attempt, p_worker, 'LeaseLost', format('lease expired (worker %s)', p_worker));
  if r.state = 2 then
    perform slotkeeper.conclude(r, 2::smallint, coalesce(r.cancel_reason, 'Cancelled'));
    return 'cancelled';
  end if;
  r.lost := r.lost + 1;
  if r.charged >= r.max_attempts then
    r.token := null;
    perform slotkeeper.bury(r, 'LeaseLost');
    return 'dead';
  end if;
  select coalesce(s.backoff_initial, 30), coalesce(s.backoff_max, 900) into v_initial, v_max
    from (select 1) one left join owner o on o.id = r.owner
    left join schedule_version s on s.schedule = o.schedule and s.version = r.version;
  -- The first comes back at once (the promise); later ones wait, so that a poison run meets other neighbours.
  update run l set state = 0, lost = r.lost, worker = null,
                   run_at = clock_timestamp() + case when r.lost = 1 then interval '0'
                                                     else slotkeeper.back_off(r.charged + r.returns, v_initial, v_max) end
   where l.id = r.id;
  if r.owner is not null then
    insert into state_delta (owner, outcome, slot, at) values (r.owner, 6, r.slot, clock_timestamp());
  end if;
  return 'ready';
end $$;

-- skip_late: slots whose rows were made but not started by their start_by.
create or replace function slotkeeper.skip_late() returns integer
language plpgsql
set search_path = pg_catalog, slotkeeper, pg_temp
set jit = off set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  v_owners bigint[];
  v_skipped integer;
begin
  with late as materialized (
    select r.ctid as address from run r
     where r.start_by < statement_timestamp() and r.state = 0 and r.first_started_at is null and r.trigger in (0, 1)
     order by r.start_by limit 1000 for update skip locked),
  gone as (
    delete from run where ctid = any (array(select address from late)) returning id, owner, slot, version, exclusive),
  skips as (
    insert into slot_skip (schedule, first_slot, last_slot, slots, outcome, reason, run, version)
    select o.schedule, g.slot, g.slot, 1, 3, coalesce(v.late_reason, 'StartDeadlineExceeded'), g.id, g.version
      from gone g join owner o on o.id = g.owner
      join schedule_version v on v.schedule = o.schedule and v.version = g.version),
  deltas as (
    insert into state_delta (owner, outcome, slot, at) select g.owner, 3, g.slot, clock_timestamp() from gone g)
  select array_agg(owner) filter (where exclusive), count(*) into v_owners, v_skipped from gone;
  if v_owners is not null then
    perform slotkeeper.promote(v_owners);
  end if;
  return v_skipped;
end $$;

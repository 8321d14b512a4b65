-- fold_v1: moves up to p_limit outcomes from state_delta into schedule_state. One process at a time. p_after skips what
-- the caller has folded before, so that dead index entries under an old snapshot are not read again and again; a null
-- looks at everything, which finds deltas that were committed late.
create or replace function slotkeeper.fold_v1(p_after bigint, p_limit integer, out folded integer, out highest bigint)
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off
set jit = off
as $$
begin
  folded := 0;
  if not pg_try_advisory_xact_lock(1936420971, -1) then
    return;
  end if;
  with taken as materialized (
    select d.ctid as address from state_delta d where d.id > coalesce(p_after, 0) order by d.id limit p_limit for update skip locked),
  gone as materialized (
    delete from state_delta where ctid = any (array(select address from taken)) returning id, owner, outcome, slot, at, slots),
  facts as materialized (
    select o.schedule, max(g.slot) filter (where g.outcome in (0, 4, 6)) as last_slot,
           max(g.at) filter (where g.outcome = 0) as success_at, max(g.slot) filter (where g.outcome = 0) as success_slot,
           max(g.at) filter (where g.outcome in (4, 6)) as failure_at, max(g.slot) filter (where g.outcome in (4, 6)) as failure_slot,
           coalesce(sum(g.slots) filter (where g.outcome = 0), 0) as done, count(*) filter (where g.outcome = 4) as dead,
           coalesce(sum(g.slots) filter (where g.outcome in (1, 3)), 0) as skipped,
           max(g.slot) filter (where g.outcome in (1, 3)) as skip_slot,
           (array_agg(g.outcome order by g.slot desc, g.at desc) filter (where g.outcome in (1, 3)))[1] as skip_outcome,
           (array_agg(g.at order by g.slot desc, g.at desc) filter (where g.outcome in (1, 3)))[1] as skip_at,
           bool_or(g.outcome in (0, 4, 5)) as recount, array_agg(g.at) filter (where g.outcome in (1, 3)) as skip_times,
           array_agg(g.slots) filter (where g.outcome in (1, 3)) as skip_slots
      from gone g join owner o on o.id = g.owner group by o.schedule),
  stored as (
    update schedule_state s set
        last_slot = greatest(s.last_slot, f.last_slot),
        last_success_slot = greatest(s.last_success_slot, f.success_slot),
        last_success_at = greatest(s.last_success_at, f.success_at),
        last_failure_slot = greatest(s.last_failure_slot, f.failure_slot),
        last_failure_at = greatest(s.last_failure_at, f.failure_at),
        done_count = s.done_count + f.done, dead_count = s.dead_count + f.dead, skipped_count = s.skipped_count + f.skipped,
        missed = case when f.success_at > coalesce(s.last_success_at, '-infinity') then 0 else s.missed end
                 + coalesce((select sum(k.slots) from unnest(f.skip_times, f.skip_slots) k(at, slots)
                              where k.at > greatest(s.last_success_at, f.success_at, '-infinity')), 0),
        dead = case when not f.recount then s.dead else slotkeeper.dead_runs(s.schedule, '-infinity') end,
        consecutive_dead = case when not f.recount then s.consecutive_dead
                                else slotkeeper.dead_runs(s.schedule, greatest(s.last_success_at, f.success_at, '-infinity')) end,
        (last_skip_slot, last_skip_reason, last_skip_at) = (
          select k.slot, k.reason, k.at from (
            select f.skip_slot as slot, slotkeeper.skip_reason(s.schedule, f.skip_slot, f.skip_outcome) as reason, f.skip_at as at
             where f.skip_slot >= coalesce(s.last_skip_slot, '-infinity')
            union all
            select s.last_skip_slot, s.last_skip_reason, s.last_skip_at) k
           limit 1)
      from facts f where s.schedule = f.schedule
    returning 1)
  select (select count(*) from gone), (select max(g.id) from gone g), (select count(*) from stored) into folded, highest;
end $$;

-- skip_reason: why a slot did not run. A superseded run says so itself; of a skipped slot slot_skip knows, by one probe.
create or replace function slotkeeper.skip_reason(p_schedule bigint, p_slot timestamptz, p_outcome smallint) returns text
language sql stable
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select case p_outcome when 1 then 'Superseded'
                        else (select k.reason from slot_skip k
                               where k.schedule = p_schedule and k.first_slot <= p_slot and k.last_slot = p_slot and k.outcome = 3
                               order by k.first_slot desc limit 1) end;
$$;

-- dead_runs: the dead runs of a schedule that ended after an instant.
create or replace function slotkeeper.dead_runs(p_schedule bigint, p_after timestamptz) returns integer
language sql stable
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select count(*)::integer from (
    select s.owner from schedule s where s.id = p_schedule
    union all select o.id from owner o where o.schedule = p_schedule and o.kind <> 0) o(id)
    join run_dead d on d.owner = o.id and d.died_at > p_after;
$$;

-- sweep_v1: what a claim with a moving bound and a promotion that never waits can leave behind: stragglers (a row that
-- was committed late), owners with waiting rows and nobody in front, running rows whose worker or claim is gone, and
-- claim rows without runs. Once per database at a time, and at most a twentieth of the time. Returns what was found, or
-- nulls when it is not yet time.
create or replace function slotkeeper.sweep_v1(out stragglers integer, out promoted integer, out orphans integer)
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off
set jit = off
as $$
declare
  f slotkeeper.fleet;
  v_begin timestamptz := clock_timestamp();
begin
  if not pg_try_advisory_xact_lock(1936420971, -2) then
    return;
  end if;
  select l.* into f from fleet l;
  if f.swept_at + make_interval(secs => greatest(1, 20 * f.sweep_seconds)) > v_begin then
    return;
  end if;
  update lane l set straggler_run_at = n.run_at, straggler_id = n.id, noted_at = clock_timestamp()
    from (select k.id as lane, r.run_at, r.id from lane k
           cross join lateral (select r.run_at, r.id from run r
                                where r.lane = k.id and not r.behind and r.state = 0
                                  and r.run_at < statement_timestamp() - interval '1 second'
                                order by r.run_at, r.id limit 1) r) n
   where l.id = n.lane
     and ((l.straggler_run_at, l.straggler_id) is distinct from (n.run_at, n.id)
          or l.noted_at < clock_timestamp() - interval '3 seconds');
  get diagnostics stragglers = row_count;
  select slotkeeper.promote(array_agg(b.owner)) into promoted
    from (select distinct r.owner from run r where r.behind
             and not exists (select from run front where front.owner = r.owner and not front.behind) limit 1000) b;
  promoted := coalesce(promoted, 0);
  update fleet l set swept_at = clock_timestamp(), sweep_seconds = extract(epoch from clock_timestamp() - v_begin);
  orphans := 0;
  if f.orphans_at + make_interval(secs => greatest(10, 20 * f.orphans_seconds)) < clock_timestamp()
     and f.reap_paused_until < clock_timestamp() then
    v_begin := clock_timestamp();
    orphans := slotkeeper.sweep_orphans();
    update fleet l set orphans_at = clock_timestamp(), orphans_seconds = extract(epoch from clock_timestamp() - v_begin);
  end if;
end $$;

-- sweep_orphans: running rows that no lease protects, whose worker or claim is gone; and claims that hold nothing. It
-- reads all of `run`, so the pins of the sweep do not suit it.
create or replace function slotkeeper.sweep_orphans() returns integer
language plpgsql
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_hashjoin = on set enable_seqscan = on
as $$
declare
  r slotkeeper.run;
  v_owners bigint[];
  v_found integer := 0;
begin
  for r in select l.* from run l
            where l.state <> 0
              and (not exists (select from worker w where w.id = l.worker)
                   or not exists (select from claim_batch b where b.token = l.token and b.lane = l.lane))
            order by l.id limit 1000 for update skip locked
  loop
    v_found := v_found + 1;
    if slotkeeper.lose_lease(r, 'gone') <> 'ready' and r.exclusive then
      v_owners := v_owners || r.owner;
    end if;
  end loop;
  if v_owners is not null then
    perform slotkeeper.promote(v_owners);
  end if;
  -- KEY SHARE on the worker keeps a claim that is just being made out of this: its row is not visible yet, so skip
  -- claims younger than a minute instead of waiting.
  delete from claim_batch b
   where b.claimed_at < clock_timestamp() - interval '1 minute'
     and not exists (select from run l where l.lane = b.lane and not l.behind and l.run_at between b.lo and b.hi and l.token = b.token);
  return v_found;
end $$;

-- success_due_since: from which instant the next success is expected: the last success, creation, acceptance or resume.
create or replace function slotkeeper.success_due_since(s slotkeeper.schedule, t slotkeeper.schedule_state)
returns timestamptz language sql immutable
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select greatest(t.last_success_at, s.created_at, s.timing_since);
$$;

-- stale_success_due_v2: schedules after the id p_after whose success_due was computed from something that has moved on, in
-- the order of their ids: those that the caller cannot compute keep none of the others from their turn.
create or replace function slotkeeper.stale_success_due_v2(p_after bigint, p_limit integer)
returns table (id bigint, owner bigint, version integer, last_success_at timestamptz, created_at timestamptz,
               timing_since timestamptz, since timestamptz)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select s.id, s.owner, s.version, t.last_success_at, s.created_at, s.timing_since, slotkeeper.success_due_since(s, t)
    from schedule s join schedule_state t on t.schedule = s.id
   where s.retired_at is null and s.id > coalesce(p_after, 0)
     and (t.due_version is distinct from s.version or t.due_since is distinct from greatest(t.last_success_at, s.created_at, s.timing_since))
   order by s.id limit p_limit;
$$;

-- stale_success_due_v1: the first of them, for keepers of the version before.
create or replace function slotkeeper.stale_success_due_v1(p_limit integer)
returns table (id bigint, owner bigint, version integer, last_success_at timestamptz, created_at timestamptz,
               timing_since timestamptz, since timestamptz)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select d.* from slotkeeper.stale_success_due_v2(null, p_limit) d;
$$;

-- store_success_due_v1: what the keeper computed; null where none is expected.
create or replace function slotkeeper.store_success_due_v1(
  p_ids bigint[], p_versions integer[], p_since timestamptz[], p_due timestamptz[]) returns void
language sql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  update schedule_state t set success_due = k.due, due_since = k.since, due_version = k.version
    from unnest(p_ids, p_versions, p_since, p_due) k(id, version, since, due) where t.schedule = k.id;
$$;

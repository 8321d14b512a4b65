-- work_v1: the hot path of a worker in one call, with sequential statements: finish the last batch's successes,
-- promote what waited behind them, claim the next batch. docs/database.md says why each step stands where it stands.
--
--   p_token            one random UUID per claim, made by the client before it claims
--   p_lanes, p_bound…  the lanes and how far each has been seen; null bounds look at everything
--   p_seen             database time of the caller's last claim: newer notes of the keeper lower its bounds
--   p_free             capacity that is free now; p_prefetch: how many more may wait in this process
--   p_addresses, p_tokens, p_ended, p_id_sum   the successes: row addresses with their tokens, how many, and
--                      the sum of their ids (an address can be reused). Any mismatch raises SK001 and changes
--                      nothing: the client then sends finish_v1, which answers per row.
--   p_drained          tokens of which the client knows that every run has ended
--   p_resend           the answer to this very claim was lost: return its runs instead of claiming more
--
-- Returns the claimed runs, then one row with id 0, the outlook: run_at is the next due time (null: nothing
-- known), slot the earliest end of another worker's lease, first_started_at the database's clock, attempt 1 if there is
-- more that is due but must not wait in a process.
create or replace function slotkeeper.work_v1(
  p_worker bigint, p_token uuid, p_lanes integer[], p_bound_at timestamptz[], p_bound_id bigint[], p_seen timestamptz,
  p_free integer, p_prefetch integer, p_addresses tid[], p_tokens uuid[], p_ended integer, p_id_sum bigint,
  p_drained uuid[], p_resend boolean)
returns table (id bigint, address tid, owner bigint, slot timestamptz, run_at timestamptz, version integer, lane integer,
               attempt integer, charged smallint, max_attempts smallint, trigger smallint, lost smallint,
               first_started_at timestamptz, task text, payload text)
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
-- Statistics taken while the tables were empty must not choose the plan (measured: 0.19 of the rate without pins).
set jit = off set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off
set enable_sort = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_ended integer;
  v_id_sum bigint;
  v_owners bigint[];
  v_lanes integer[];
  v_ats timestamptz[];
  v_ids bigint[];
  v_free integer := p_free;
  v_prefetch integer := p_prefetch;
  v_found integer;
  v_addresses tid[];
  v_times timestamptz[];
  v_spare boolean[];
  v_cut integer;
  v_was_cut boolean := false;
  v_claimed integer := 0;
  v_at timestamptz;
begin
  if p_ended > 0 then
    with ended as (
      delete from run where ctid = any (p_addresses) and token = any (p_tokens) and state <> 0
      returning id, owner, slot, created_at, run_at, version, lane, max_attempts, trigger, exclusive, attempt, charged,
                worker, first_started_at, token, task, payload),
    history as (
      insert into run_done (id, owner, slot, created_at, run_at, version, lane, max_attempts, trigger, outcome, attempt,
                            charged, worker, first_started_at, token, finished_at, task, payload)
      select id, owner, slot, created_at, run_at, version, lane, max_attempts, trigger, 0, attempt,
             charged, worker, first_started_at, token, clock_timestamp(), task, payload from ended),
    -- One for all runs of an owner: the newest success is all that counts, and each row is dear to write and to fold.
    delta as (
      insert into state_delta (owner, outcome, slot, at, slots)
      select owner, 0, max(slot), clock_timestamp(), count(*) from ended where owner is not null group by owner)
    select count(*), sum(id), array_agg(owner) filter (where exclusive) into v_ended, v_id_sum, v_owners from ended;
    if v_ended <> p_ended or v_id_sum is distinct from p_id_sum then
      raise exception 'only % of % runs could be finished by address', v_ended, p_ended using errcode = 'SK001';
    end if;
    if v_owners is not null then
      perform slotkeeper.promote(v_owners);
    end if;
  end if;
  if p_drained <> '{}' then
    delete from claim_batch b where b.token = any (p_drained) and b.worker = p_worker;
  end if;

  if p_free + p_prefetch > 0 then
    -- Its own unexpired worker row, held against the reaper: a claim that raced it would leave rows nobody owns.
    perform from worker w where w.id = p_worker and w.login = session_user and w.lease_until > clock_timestamp()
      for key share;
    if not found then
      raise exception 'worker % has no lease', p_worker using errcode = 'SK002';
    end if;
    -- The lanes this login may claim from and that have something due, in the caller's order, each with the bound
    -- from which to look: the keeper's newer note of a straggler lowers the caller's own.
    select array_agg(b.lane order by b.place), array_agg(b.at order by b.place), array_agg(b.bound_id order by b.place)
      into v_lanes, v_ats, v_ids
      from (select c.lane, c.place,
                   case when noted then l.straggler_run_at else coalesce(c.at, '-infinity') end as at,
                   case when noted then l.straggler_id - 1 else coalesce(c.bound_id, 0) end as bound_id
              from unnest(p_lanes, p_bound_at, p_bound_id) with ordinality as c(lane, at, bound_id, place)
              join lane l on l.id = c.lane
              cross join lateral (select l.noted_at > p_seen
                                         and (l.straggler_run_at, l.straggler_id) <= (c.at, c.bound_id) as noted) n
             where exists (select from queue_grant g
                            where g.may_claim and g.login in ('*', session_user)
                              and g.namespace in ('*', l.namespace) and g.queue in ('*', l.queue))) b
     where array_length(p_lanes, 1) = 1 or p_resend
        or exists (select from run r where r.lane = b.lane and not r.behind and r.state = 0
                      and (r.run_at, r.id) > (b.at, b.bound_id) and r.run_at <= statement_timestamp());
    -- SKIP LOCKED is not free of waits: a row that was claimed, committed and is now being deleted makes a second
    -- claim wait. With the lock, the snapshot is taken after the previous claim of the lane committed.
    perform pg_advisory_xact_lock(1936420971, l.lane) from (select o.lane from unnest(v_lanes) o(lane) order by o.lane) l;
    if p_resend then
      return query
        select r.id, r.ctid, r.owner, r.slot, r.run_at, r.version, r.lane, r.attempt, r.charged, r.max_attempts, r.trigger,
               r.lost, r.first_started_at, r.task, r.payload
          from claim_batch b join run r on r.lane = b.lane and not r.behind and r.run_at between b.lo and b.hi
         where b.token = p_token and r.token = p_token and r.worker = p_worker and r.state <> 0;
    else
      for i in 1 .. coalesce(array_length(v_lanes, 1), 0) loop
        exit when v_free + v_prefetch <= 0;
        v_at := clock_timestamp();
        select array_agg(f.address), array_agg(f.run_at), array_agg(f.spare) into v_addresses, v_times, v_spare
          from (select r.ctid as address, r.run_at, r.max_attempts > 1 and r.lost = 0 as spare
                  from run r
                 where r.lane = v_lanes[i] and not r.behind and r.state = 0
                   and (r.run_at, r.id) > (v_ats[i], v_ids[i]) and r.run_at <= statement_timestamp()
                   and (r.start_by is null or r.start_by >= statement_timestamp() or r.first_started_at is not null)
                 order by r.run_at, r.id limit v_free + v_prefetch for update skip locked) f;
        continue when v_addresses is null;
        -- Runs with one attempt, or with a lost lease behind them, never wait in a process. The batch stays a prefix of
        -- the lane, so that the highest claimed key is a true bound.
        v_cut := array_position(v_spare, false, v_free + 1);
        if v_cut is not null then
          v_addresses := v_addresses[:v_cut - 1];
          v_was_cut := true;
        end if;
        continue when v_addresses = '{}';
        insert into claim_batch (token, lane, worker, lo, hi, claimed_at)
        values (p_token, v_lanes[i], p_worker, v_times[1], v_times[cardinality(v_addresses)], v_at);
        return query
          update run r set state = 1, attempt = r.attempt + 1, charged = r.charged + 1::smallint, worker = p_worker,
                           first_started_at = coalesce(r.first_started_at, clock_timestamp()), token = p_token
           where r.ctid = any (v_addresses)
          returning r.id, r.ctid, r.owner, r.slot, r.run_at, r.version, r.lane, r.attempt, r.charged, r.max_attempts,
                    r.trigger, r.lost, r.first_started_at, r.task, r.payload;
        get diagnostics v_found = row_count;
        v_claimed := v_claimed + v_found;
        v_prefetch := v_prefetch - greatest(v_found - v_free, 0);
        v_free := greatest(v_free - v_found, 0);
      end loop;
    end if;
  end if;

  id := 0;
  first_started_at := clock_timestamp();
  attempt := case when v_was_cut then 1 else 0 end;
  if v_claimed < p_free + p_prefetch then
    select min(n.run_at) into run_at
      from unnest(p_lanes) as b(lane)
      cross join lateral (select r.run_at from run r where r.lane = b.lane and not r.behind and r.run_at > statement_timestamp()
                          order by r.run_at limit 1) n;
    select min(w.lease_until) into slot from worker w where w.id <> p_worker;
  end if;
  return next;
end $$;

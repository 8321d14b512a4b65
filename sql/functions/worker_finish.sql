-- finish_v1: records what became of runs, one by one, and answers per run. Everything that is not a batch of plain
-- successes comes here, and a batch of successes that work_v1 refused.
--
--   p_kinds  done; failed (retried with back-off, not before p_seconds); fatal (dead at once, reason p_reasons); infrastructure (back-off,
--            not charged); snoozed (after p_seconds, not charged); interrupted (drain after the start, not charged);
--            unstarted (given back before the handler began, not charged)
--   Answers come in the order of ids, those of one id in the order given.
--   answer   recorded; already (this token's outcome stands, or the row is back); fenced (another claim owns the run)
--   became   done, dead, cancelled or ready; run_at: when it is due again
create or replace function slotkeeper.finish_v1(
  p_worker bigint, p_ids bigint[], p_tokens uuid[], p_owners bigint[], p_slots timestamptz[], p_kinds text[],
  p_seconds double precision[], p_reasons text[], p_messages text[])
returns table (id bigint, answer text, became text, run_at timestamptz)
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set jit = off set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  x record;
  r slotkeeper.run;
  v_name text;
  v_owners bigint[];
begin
  select w.name into v_name from worker w where w.id = p_worker and w.login = session_user;
  for x in
    select u.* from unnest(p_ids, p_tokens, p_owners, p_slots, p_kinds, p_seconds, p_reasons, p_messages)
        with ordinality as u(id, token, owner, slot, kind, seconds, reason, message, place) order by u.id, u.place
  loop
    id := x.id;
    answer := 'recorded';
    became := null;
    run_at := null;
    select l.* into r from run l where l.id = x.id for update;
    if not found then
      -- Gone: ended by this very token (a resent finish, run.complete), or by somebody else.
      if x.owner is null then
        select 'done' into became from run_done d where d.id = x.id and d.owner is null and d.token = x.token;
      else
        select 'done' into became from run_done d where d.owner = x.owner and d.slot = x.slot and d.token = x.token;
        v_owners := v_owners || x.owner;
      end if;
      if became is null then
        select 'dead' into became from run_dead d where d.id = x.id and d.token = x.token;
      end if;
      answer := case when became is null then 'fenced' else 'already' end;
    elsif r.token is distinct from x.token then
      -- Ours no more. Either this very outcome was recorded and its answer got lost, or the run was given away.
      answer := case when exists (select from run_error e where e.run = x.id and e.token = x.token)
                       or (r.state = 0 and r.token is null and x.kind in ('snoozed', 'interrupted', 'unstarted'))
                     then 'already' else 'fenced' end;
      became := case when answer = 'already' and r.state = 0 then 'ready' end;
    elsif r.state = 0 and x.kind not in ('done', 'failed', 'fatal') then
      answer := 'already';  -- reaped and given back: there is nothing left to give back
      became := 'ready';
    else
      select s.became, s.run_at into became, run_at
        from slotkeeper.settle(r, x.kind, x.seconds, x.reason, x.message, v_name) s;
      if became <> 'ready' and r.exclusive then
        v_owners := v_owners || r.owner;
      end if;
    end if;
    return next;
  end loop;
  if v_owners is not null then
    perform slotkeeper.promote(v_owners);
  end if;
end $$;

-- settle: one returned attempt of a run that this caller holds locked.
create or replace function slotkeeper.settle(
  r slotkeeper.run, p_kind text, p_seconds double precision, p_reason text, p_message text, p_worker text,
  out became text, out run_at timestamptz)
language plpgsql
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
#variable_conflict use_column
declare
  v record;
  v_charge boolean := p_kind in ('failed', 'fatal');
  v_after interval;
begin
  if p_kind = 'done' then
    if r.state = 0 then  -- late, but nobody has claimed it since: the lost lease turned out to be none
      delete from run_error e where e.run = r.id and e.attempt = r.attempt and e.kind = 'LeaseLost';
    end if;
    perform slotkeeper.conclude(r, 0::smallint, null);
    became := 'done';
    return;
  end if;
  if p_kind in ('failed', 'fatal', 'infrastructure') then
    delete from run_error e where e.run = r.id and e.attempt = r.attempt and e.kind = 'LeaseLost';
    insert into run_error (run, attempt, worker, kind, message, token)
    values (r.id, r.attempt, p_worker, coalesce(p_reason, 'Error'), coalesce(p_message, ''), r.token);
  end if;
  if r.state = 0 then
    r.lost := greatest(r.lost - 1, 0);  -- this outcome stands in place of the lost lease
  elsif r.state = 2 then
    perform slotkeeper.conclude(r, 2::smallint, coalesce(r.cancel_reason, 'Cancelled'));
    became := 'cancelled';
    return;
  end if;

  select coalesce(s.backoff_initial, 30) as backoff_initial, coalesce(s.backoff_max, 900) as backoff_max,
         s.active_deadline into v
    from (select 1) one left join owner o on o.id = r.owner
    left join schedule_version s on s.schedule = o.schedule and s.version = r.version;
  -- Uncharged returns are bounded, drains exempt: beyond the bound each one is charged, so nothing loops for ever.
  if p_kind in ('infrastructure', 'snoozed') then
    v_charge := r.returns >= greatest(20, 3 * r.max_attempts);
    r.returns := r.returns + 1;
  end if;
  if not v_charge and r.state = 1 then
    r.charged := greatest(r.charged - 1, 0);
  end if;
  v_after := case when p_kind in ('snoozed', 'interrupted', 'unstarted') then make_interval(secs => p_seconds)
                         else greatest(slotkeeper.back_off(r.charged + r.returns, v.backoff_initial, v.backoff_max),
                                       make_interval(secs => p_seconds)) end;
  run_at := clock_timestamp() + v_after;
  -- Given back before the handler began: if this very claim set first_started_at, the run has not started, and no time
  -- of it has passed.
  if p_kind = 'unstarted' or p_kind = 'infrastructure' and p_reason in ('NoHandler', 'ActionNotAllowed') then
    if exists (select from claim_batch b
                where b.token = r.token and b.lane = r.lane and r.first_started_at >= b.claimed_at) then
      r.first_started_at := null;
    end if;
  end if;
  if p_kind = 'fatal' or (v_charge and r.charged >= r.max_attempts)
     or (v.active_deadline is not null and r.first_started_at + make_interval(secs => v.active_deadline) <= run_at) then
    perform slotkeeper.bury(r, case when p_kind = 'fatal' then case when p_reason in ('ActiveDeadlineExceeded', 'CredentialNotAllowed')
                                                                    then p_reason else 'NonRetryable' end
                                    when v_charge and r.charged >= r.max_attempts then 'RetriesExhausted'
                                    else 'ActiveDeadlineExceeded' end);
    became := 'dead';
    run_at := null;
    return;
  end if;
  became := 'ready';
  update run l set state = 0, charged = r.charged, lost = r.lost, returns = r.returns, worker = null, token = null, run_at = settle.run_at,
                   first_started_at = r.first_started_at
   where l.id = r.id;
  if p_kind in ('failed', 'infrastructure') and r.owner is not null then
    insert into state_delta (owner, outcome, slot, at) values (r.owner, 6, r.slot, clock_timestamp());
  end if;
end $$;

-- complete_v1: records success inside the handler's own transaction, which makes its effect exactly once. False:
-- another claim owns the run, and the caller must roll back. Promotes nothing: the worker's own finish does, so that
-- an open transaction stalls nobody.
create or replace function slotkeeper.complete_v1(p_id bigint, p_token uuid) returns boolean
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  r slotkeeper.run;
begin
  select l.* into r from run l where l.id = p_id for update;
  if not found or r.token is distinct from p_token then
    return false;
  end if;
  perform slotkeeper.settle(r, 'done', 0, null, null, null);
  return true;
end $$;

-- What people do to runs: cancel and requeue.

-- cancel_v1: cancels live runs. What is not running ends at once; a running one is told at its worker's next beat.
--   became: cancelled, running (will be told), or gone (no live run has this id)
create or replace function slotkeeper.cancel_v1(p_ids bigint[]) returns table (id bigint, became text)
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
#variable_conflict use_column
declare
  r slotkeeper.run;
  v_owners bigint[];
begin
  for id in select distinct k from unnest(p_ids) k order by k loop
    select l.* into r from run l where l.id = cancel_v1.id for update;
    if not found then
      became := 'gone';
    else
      became := slotkeeper.cancel_run(r, 'Cancelled');
      if became = 'cancelled' and r.exclusive then
        v_owners := v_owners || r.owner;
      end if;
    end if;
    return next;
  end loop;
  if v_owners is not null then
    perform slotkeeper.promote(v_owners);
  end if;
end $$;

-- requeue_v1: dead runs live again: nothing charged, the attempt number goes on, trigger Requeue, and behind if their
-- schedule has a run. became: ready, live (refused: its slot or key is live again), or gone (no dead run has this id).
create or replace function slotkeeper.requeue_v1(p_ids bigint[]) returns table (id bigint, became text)
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
#variable_conflict use_column
declare
  d slotkeeper.run_dead;
  v_exclusive boolean;
begin
  -- Schedules first, in id order: whoever adds a row of a schedule holds the schedule.
  perform from schedule s
    where s.id in (select o.schedule from run_dead k join owner o on o.id = k.owner where k.id = any (p_ids))
    order by s.id for no key update;
  for id in select distinct k from unnest(p_ids) k order by k loop
    select k.* into d from run_dead k where k.id = requeue_v1.id for update;
    if not found then
      became := case when exists (select from run l where l.id = requeue_v1.id) then 'live' else 'gone' end;
    elsif exists (select from run l where l.owner = d.owner and l.slot = d.slot) then
      became := 'live';
    else
      delete from run_dead k where k.id = d.id;
      -- By what the schedule says now: a run of a version that allowed overlap must not run beside an exclusive one.
      v_exclusive := coalesce((select v.overlap <> 3 and o.kind = 0 from owner o join schedule s on s.id = o.schedule
                                 join schedule_version v on v.schedule = s.id and v.version = s.version where o.id = d.owner), false);
      insert into run (id, owner, slot, created_at, run_at, version, lane, max_attempts, trigger, exclusive, behind, attempt,
                       task, payload)
      values (d.id, d.owner, d.slot, d.created_at, clock_timestamp(), d.version, d.lane, d.max_attempts, 4, v_exclusive,
              v_exclusive and exists (select from run l where l.owner = d.owner), d.attempt, d.task, d.payload);
      if d.owner is not null then
        insert into state_delta (owner, outcome, slot, at) values (d.owner, 5, d.slot, clock_timestamp());
      end if;
      became := 'ready';
    end if;
    return next;
  end loop;
end $$;

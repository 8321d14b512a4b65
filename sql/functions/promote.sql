-- promote: lets the next run of an owner through, after its one run that was not behind has left.
-- back_off: how long a run waits after a failure.
-- conclude, bury: the two ends of a live run, in history or in the dead-letter list.
-- Internal: called by the functions of the protocol, never by a client.

create or replace function slotkeeper.promote(p_owners bigint[]) returns integer
language plpgsql
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off
set jit = off  -- before Postgres 18 a pin counts as an enormous cost, for which every call would compile its plans
as $$
declare
  schedules bigint[];
  v_next bigint[];
  promoted integer;
begin
  -- Usually nothing waits, and this look is all: at each owner by itself, because under bad statistics a list of owners
  -- is looked for in the whole table.
  select array_agg(w.owner) into schedules
    from unnest(p_owners) as o(owner)
    cross join lateral (select r.owner from run r where r.owner = o.owner and r.behind limit 1) w;
  if schedules is null then
    return 0;
  end if;
  -- Whoever holds run rows never waits for a schedule; the keeper's sweep promotes what is skipped here.
  select array_agg(s.owner) into schedules
    from (select s.owner from schedule s where s.owner = any (schedules)
          order by s.id for no key update skip locked) s;
  -- A following statement: those above may have seen what the schedule's last holder has changed since. The oldest that
  -- waits, backfill rows after the others, rows that are not due yet last. Found by itself and not inside the update:
  -- joined to it, it may be run again for each row, and then it finds the next one that waits.
  select array_agg(w.id) into v_next
    from unnest(schedules) as o(owner)
    cross join lateral (select r.id from run r where r.owner = o.owner and r.behind
                        order by (r.run_at > clock_timestamp()), (r.trigger = 2), r.slot limit 1 for update skip locked) w
   where not exists (select from run f where f.owner = o.owner and not f.behind);
  update run set behind = false, run_at = greatest(run_at, clock_timestamp()) where id = any (v_next);
  get diagnostics promoted = row_count;
  return promoted;
end $$;

create or replace function slotkeeper.back_off(p_n integer, p_initial integer, p_max integer) returns interval
language sql volatile
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  -- Full jitter: uniform in [0, min(max, initial * 2^(n-1))]. The exponent is capped so that nothing overflows.
  select make_interval(secs => random() * least(p_max::double precision,
                                                p_initial * power(2::double precision, least(greatest(p_n, 1) - 1, 40))));
$$;

create or replace function slotkeeper.conclude(r slotkeeper.run, p_outcome smallint, p_reason text) returns void
language sql
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  delete from run where id = r.id;
  insert into run_done (id, owner, slot, created_at, run_at, version, lane, max_attempts, trigger, outcome, attempt,
                        charged, worker, first_started_at, token, finished_at, reason, task, payload)
  values (r.id, r.owner, r.slot, r.created_at, r.run_at, r.version, r.lane, r.max_attempts, r.trigger, p_outcome,
          r.attempt, r.charged, r.worker, r.first_started_at, r.token, clock_timestamp(), p_reason, r.task, r.payload);
  insert into state_delta (owner, outcome, slot, at)
  select r.owner, p_outcome, r.slot, clock_timestamp() where r.owner is not null;
$$;

create or replace function slotkeeper.bury(r slotkeeper.run, p_reason text) returns void
language sql
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  delete from run where id = r.id;
  insert into run_dead (id, owner, slot, created_at, run_at, version, lane, max_attempts, trigger, attempt, charged,
                        lost, worker, first_started_at, token, died_at, reason, task, payload)
  values (r.id, r.owner, r.slot, r.created_at, r.run_at, r.version, r.lane, r.max_attempts, r.trigger, r.attempt,
          r.charged, r.lost, r.worker, r.first_started_at, r.token, clock_timestamp(), p_reason, r.task, r.payload);
  insert into state_delta (owner, outcome, slot, at)
  select r.owner, 4::smallint, r.slot, clock_timestamp() where r.owner is not null;
$$;

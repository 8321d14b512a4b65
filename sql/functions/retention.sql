-- Partitions ahead and behind, and retention: what history, dead runs, keys and owners of manual runs are kept no longer.

-- ensure_partitions_v1: partitions up to and including a day: run_done by day, run_error and slot_skip by month. The one
-- of two functions with dynamic SQL; its only input is a date. A new partition locks its parent against every finish, so
-- the wait for a long reader is short; what could not be made is tried at the next call.
create or replace function slotkeeper.ensure_partitions_v1(p_until date) returns integer
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set lock_timeout = '500ms'
as $$
declare
  v_day date;
  v_next date;
  v_parent text;
  v_child text;
  v_made integer := 0;
  v_all boolean := true;
begin
  if (select f.partitions_until from fleet f) >= p_until then
    return 0;
  end if;
  perform pg_advisory_xact_lock(1936420971, -3);
  begin
    perform from fleet f for no key update;  -- before the parents, as the sweep and retention do: else they could deadlock
  exception when lock_not_available then
    return 0;
  end;
  for v_parent, v_day, v_next in
    select 'run_done', d::date, d::date + 1
      from generate_series(date_trunc('day', clock_timestamp() at time zone 'UTC'), p_until, interval '1 day') d
    union all
    select p, m::date, (m + interval '1 month')::date
      from unnest(array['run_error', 'slot_skip']) p,
           generate_series(date_trunc('month', clock_timestamp() at time zone 'UTC'), p_until, interval '1 month') m
  loop
    v_child := v_parent || to_char(v_day, case v_parent when 'run_done' then '_YYYYMMDD' else '_YYYYMM' end);
    if to_regclass('slotkeeper.' || v_child) is null then
      begin
        execute format('create table slotkeeper.%I partition of slotkeeper.%I for values from (%L) to (%L)', v_child, v_parent,
                       v_day::text || ' 00:00:00+00', v_next::text || ' 00:00:00+00');
        v_made := v_made + 1;
      exception
        when check_violation then
          null;  -- nobody made it in time and the default partition has rows of it: it keeps all of them
        when lock_not_available then
          v_all := false;
      end;
    end if;
  end loop;
  update fleet f set partitions_until = p_until where f.partitions_until < p_until and v_all;
  return v_made;
end $$;

-- drop_partitions_v1: drops the partitions of one kind of history that end at or before a date; the other function with
-- dynamic SQL. Names only partitions that this schema's parents have.
create or replace function slotkeeper.drop_partitions_v1(p_done_before date, p_skip_before date) returns integer
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  v_child text;
  v_dropped integer := 0;
begin
  for v_child in
    select c.relname
      from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
      join pg_namespace n on n.oid = p.relnamespace
     where n.nspname = 'slotkeeper'
       and case when p.relname = 'run_done' and c.relname ~ '^run_done_\d{8}$'
                then to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= p_done_before
                when p.relname in ('run_error', 'slot_skip') and c.relname ~ '_\d{6}$'
                then (to_date(right(c.relname, 6), 'YYYYMM') + interval '1 month')::date
                     <= case p.relname when 'slot_skip' then p_done_before else p_skip_before end
                else false end
  loop
    execute format('drop table slotkeeper.%I', v_child);
    v_dropped := v_dropped + 1;
  end loop;
  return v_dropped;
end $$;

-- drop_history_v1: the partitions that are older than what is kept, in a call of its own: a chunk of rows that is cancelled
-- afterwards must not bring them back. Returns how many; null: somebody else holds the row of the fleet, ask again.
create or replace function slotkeeper.drop_history_v1() returns integer
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set lock_timeout = '500ms'
as $$
declare
  f slotkeeper.fleet;
  v_today date := (clock_timestamp() at time zone 'UTC')::date;
begin
  select l.* into f from fleet l for update skip locked;
  if not found then
    return null;
  end if;
  if f.retention_at >= clock_timestamp() - interval '1 hour' then
    return 0;
  end if;
  return slotkeeper.drop_partitions_v1(v_today - greatest(f.done_days, 7), v_today - greatest(f.done_days, f.dead_days, 7));
exception when lock_not_available then
  return 0;  -- somebody reads for long: waiting would stall every finish behind us, and an hour later is soon enough
end $$;

-- retain_v2: one step of retention, at most once an hour per database and p_limit rows of each kind: rows in the default
-- partitions, dead runs past their days (deltas tell the fold to count again), owners of manual runs and re-runs of which
-- nothing is on record any more, and at last keys past their seven days.
--   p_keys_after  how far the steps before have looked at keys; null: from the first one
--   more          there is more to do; null: somebody else holds the row of the fleet, ask again
--   keys_after    for the next step
--   retained_at   when there was last nothing more to do; null while more is not false
-- run_done is kept for seven days at least, because it says when the run of a key ended.
create or replace function slotkeeper.retain_v2(
  p_limit integer, p_keys_after bigint, out more boolean, out keys_after bigint, out retained_at timestamptz)
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set lock_timeout = '500ms'
as $$
declare
  f slotkeeper.fleet;
  v_today date := (clock_timestamp() at time zone 'UTC')::date;
  v_count integer;
begin
  keys_after := p_keys_after;
  select l.* into f from fleet l for update skip locked;
  if not found then
    return;
  end if;
  more := false;
  retained_at := f.retention_at;
  if f.retention_at >= clock_timestamp() - interval '1 hour' then
    return;
  end if;
  -- Before the dead runs: the fold still needs the owner of one that goes now. A key that its object still carries would
  -- run again if it were forgotten. Each question is one probe of an index, whatever the statistics say.
  delete from owner where id = any (array(
    select o.id from owner o
     where o.kind <> 0 and o.made_at < v_today - greatest(f.done_days, 7)
       and (select true from run r where r.owner = o.id limit 1) is null
       and (select true from run_dead d where d.owner = o.id limit 1) is null
       and (select true from run_done d where d.owner = o.id limit 1) is null
       and not exists (select from state_delta d where d.owner = o.id)
       and not exists (select from schedule s where s.id = o.schedule and s.trigger_key = o.label and o.kind = 1)
     order by o.made_at limit p_limit));
  get diagnostics v_count = row_count;
  more := v_count >= p_limit;
  -- Rows whose partition nobody made in time.
  delete from run_done_default where ctid = any (array(
    select d.ctid from run_done_default d where d.finished_at < v_today - greatest(f.done_days, 7) limit p_limit));
  get diagnostics v_count = row_count;
  more := more or v_count >= p_limit;
  delete from run_error_default where ctid = any (array(
    select e.ctid from run_error_default e where e.at < v_today - greatest(f.done_days, f.dead_days, 7) limit p_limit));
  get diagnostics v_count = row_count;
  more := more or v_count >= p_limit;
  delete from slot_skip_default where ctid = any (array(
    select k.ctid from slot_skip_default k where k.at < v_today - greatest(f.done_days, 7) limit p_limit));
  get diagnostics v_count = row_count;
  more := more or v_count >= p_limit;
  with gone as (
    delete from run_dead where id = any (array(select d.id from run_dead d
                                                where d.died_at < clock_timestamp() - make_interval(days => f.dead_days)
                                                order by d.died_at limit p_limit for update skip locked))
    returning owner, slot),
  deltas as (
    insert into state_delta (owner, outcome, slot, at) select owner, 5, slot, clock_timestamp() from gone where owner is not null)
  select count(*) into v_count from gone;
  more := more or v_count >= p_limit;
  if not more then
    keys_after := slotkeeper.forget_keys(p_keys_after, p_limit);
    more := keys_after is not null;
  end if;
  retained_at := null;
  if not more then
    update fleet l set retention_at = clock_timestamp() returning l.retention_at into retained_at;
  end if;
end $$;

-- forget_keys: of the next p_limit keys after the run p_after those that nobody needs any more; returns the run up to which
-- it has looked, or null where the rest is too young. Keys are looked at in the order of their runs, which is that of their
-- time, so `created_at` needs no index that every enqueue would have to keep; and it counts the keys that it looks at, not
-- those that it finds, so that keys of dead runs, which stay, make no step longer.
create or replace function slotkeeper.forget_keys(p_after bigint, p_limit integer) returns bigint
language plpgsql
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set jit = off
as $$
declare
  v_end timestamptz := clock_timestamp() - interval '7 days';
  v_last bigint;
begin
  with looked_at as materialized (
    select k.ctid as address, k.run, k.created_at from idempotency k where k.run > coalesce(p_after, 0) order by k.run limit p_limit),
  gone as (
    delete from idempotency where ctid = any (array(
      select k.address from looked_at k
       where k.created_at < v_end
         and (select true from run r where r.id = k.run) is null
         and (select true from run_dead d where d.id = k.run) is null
         and (select true from run_done d where d.id = k.run and d.owner is null and d.finished_at > v_end limit 1) is null)))
  select max(k.run) into v_last from looked_at k having count(*) >= p_limit and min(k.created_at) < v_end;
  return v_last;
end $$;

-- retain_v1: both in one, for the version before: its keepers do not say how far they have looked at keys.
create or replace function slotkeeper.retain_v1(p_limit integer) returns boolean
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  v record;
  v_after bigint;
begin
  perform slotkeeper.drop_history_v1();
  loop
    select * into v from slotkeeper.retain_v2(p_limit, v_after);
    v_after := v.keys_after;
    exit when v_after is null;
  end loop;
  return coalesce(v.more, false);
end $$;

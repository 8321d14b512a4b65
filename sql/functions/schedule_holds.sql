-- Holds: a schedule, a namespace or everything without slots for a while, whatever the objects say.
--
-- A row of `hold` is what somebody wants; `schedule.held` and `held_until` are what has been done about it, one schedule at
-- a time under its lock, as an edit would: slots up to that instant are decided, then there are none. The command that
-- wants it does it at once, the ticker whatever such a command left undone. A hold covers its time without its last
-- instant: the slot on the second `held_until` fires.

-- held_until: until when the holds that are in force at an instant cover a schedule: infinity where only a command ends it,
-- null where none covers it.
create or replace function slotkeeper.held_until(p_cluster text, p_namespace text, p_name text, p_at timestamptz)
returns timestamptz language sql stable
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select max(coalesce(h.held_until, 'infinity')) from hold h
   where (h.cluster is null or h.cluster = p_cluster) and (h.namespace is null or h.namespace = p_namespace)
     and (h.name is null or h.name = p_name) and (h.held_until is null or h.held_until > p_at);
$$;

-- add_hold_v1: a new hold, or other words for the one on the same target. True: there was one already.
create or replace function slotkeeper.add_hold_v1(
  p_cluster text, p_namespace text, p_name text, p_held_by text, p_reason text, p_until timestamptz) returns boolean
language sql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  insert into hold (cluster, namespace, name, held_by, login, reason, held_until)
  values (p_cluster, p_namespace, p_name, p_held_by, session_user, p_reason, p_until)
  on conflict (cluster, namespace, name) do update
    set held_by = excluded.held_by, login = excluded.login, reason = excluded.reason, held_at = clock_timestamp(),
        held_until = excluded.held_until
  returning xmax <> 0;  -- a row that was inserted has none
$$;

-- remove_hold_v1: the hold on exactly this target goes. False: there was none.
create or replace function slotkeeper.remove_hold_v1(p_cluster text, p_namespace text, p_name text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
begin
  delete from hold h
   where h.cluster is not distinct from p_cluster and h.namespace is not distinct from p_namespace
     and h.name is not distinct from p_name and (h.held_until is null or h.held_until > clock_timestamp());
  return found;
end $$;

-- holds_v1: the holds of a cluster that are in force, the widest first, each with the number of schedules that it covers.
create or replace function slotkeeper.holds_v1(p_cluster text)
returns table (cluster text, namespace text, name text, held_by text, login text, reason text, held_at timestamptz,
               held_until timestamptz, schedules bigint)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select h.cluster, h.namespace, h.name, h.held_by, h.login, h.reason, h.held_at, h.held_until,
         (select count(*) from schedule s
           where s.cluster = p_cluster and (h.namespace is null or s.namespace = h.namespace)
             and (h.name is null or s.name = h.name) and s.retired_at is null)
    from hold h
   where (h.cluster is null or h.cluster = p_cluster) and (h.held_until is null or h.held_until > statement_timestamp())
   order by h.namespace nulls first, h.name nulls first;
$$;

-- end_expired_holds: of these schedules, all locked by the caller, those whose hold has ended by itself go on from that
-- instant. The ticker finds the next slot: next_due only makes it look.
create or replace function slotkeeper.end_expired_holds(p_ids bigint[]) returns bigint
language plpgsql
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  v_ended bigint;
begin
  update schedule s set held = false, held_until = null, timing_since = greatest(s.timing_since, s.held_until),
      watermark = greatest(s.watermark, s.held_until - interval '1 microsecond'),
      watermark_highest = greatest(s.watermark_highest, s.held_until - interval '1 microsecond'),
      next_due = case when not (s.suspended or s.unwatched or s.retired_at is not null) then s.held_until end
   where s.id = any (p_ids) and s.held and s.held_until <= clock_timestamp();
  get diagnostics v_ended = row_count;
  return v_ended;
end $$;

-- release_held_v1: schedules whose hold has ended by itself; with p_all also those that no hold covers any more, which go on
-- from now, and those whose holds end at another time than they did. Returns how many have slots again.
create or replace function slotkeeper.release_held_v1(p_all boolean) returns bigint
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  v_ids bigint[];
  v_released bigint;
  v_ended bigint;
begin
  if p_all then
    delete from hold h where h.held_until <= clock_timestamp();
  end if;
  v_ids := array(
    select s.id from schedule s
     where s.held and (s.held_until <= statement_timestamp()
                       or p_all and coalesce(s.held_until, 'infinity') is distinct from
                            slotkeeper.held_until(s.cluster, s.namespace, s.name, statement_timestamp()))
     order by s.id for no key update skip locked);
  if v_ids = '{}' then
    return 0;
  end if;
  v_ended := slotkeeper.end_expired_holds(v_ids);
  update schedule s set held = false, held_until = null, timing_since = clock_timestamp(),
      watermark = greatest(s.watermark, clock_timestamp()), watermark_highest = greatest(s.watermark_highest, clock_timestamp()),
      next_due = case when not (s.suspended or s.unwatched or s.retired_at is not null) then clock_timestamp() end
   where s.id = any (v_ids) and s.held and slotkeeper.held_until(s.cluster, s.namespace, s.name, clock_timestamp()) is null;
  get diagnostics v_released = row_count;
  update schedule s set held_until = nullif(k.until, 'infinity'),
      next_due = case when not (s.suspended or s.unwatched or s.retired_at is not null) then nullif(k.until, 'infinity') end
    from (select l.id, slotkeeper.held_until(l.cluster, l.namespace, l.name, clock_timestamp()) as until
            from schedule l where l.id = any (v_ids) and l.held) k
   where s.id = k.id and k.until is not null;
  return v_ended + v_released;
end $$;

-- lock_unheld_v1: up to p_limit schedules that a hold covers and that are not held yet, locked; `moment` is a time after the
-- lock. What somebody else has locked is left out.
create or replace function slotkeeper.lock_unheld_v1(p_limit integer) returns setof slotkeeper.stored_schedule
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set jit = off
as $$
declare
  v_ids bigint[];
begin
  if not exists (select from hold) then
    return;
  end if;
  v_ids := array(
    select s.id from schedule s
     where not s.held and s.retired_at is null
       and exists (select from hold h
                    where (h.cluster is null or h.cluster = s.cluster) and (h.namespace is null or h.namespace = s.namespace)
                      and (h.name is null or h.name = s.name) and (h.held_until is null or h.held_until > statement_timestamp()))
     order by s.id limit p_limit for no key update skip locked);
  return query
    select s.* from unnest(v_ids) i(id)
     cross join lateral (select v.* from stored_schedule v where v.id = i.id and not v.held limit 1) s;
end $$;

-- mark_held_v1: schedules that this transaction holds locked and whose slots up to now are decided have no slots from here;
-- how many. One whose hold has gone meanwhile goes on: deciding has taken its next due time away, so the ticker must look.
create or replace function slotkeeper.mark_held_v1(p_ids bigint[]) returns bigint
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  v_marked bigint;
begin
  with marked as (
    update schedule s set held = k.until is not null, held_until = nullif(k.until, 'infinity'),
        next_due = case when s.suspended or s.unwatched then null when k.until is null then clock_timestamp()
                        else nullif(k.until, 'infinity') end
      from (select l.id, slotkeeper.held_until(l.cluster, l.namespace, l.name, clock_timestamp()) as until
              from schedule l where l.id = any (p_ids)) k
     where s.id = k.id and s.retired_at is null
    returning s.held)
  select count(*) filter (where held) into v_marked from marked;
  return v_marked;
end $$;

-- holds_outstanding_v1: how many schedules are not yet as the holds want them.
create or replace function slotkeeper.holds_outstanding_v1() returns bigint
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select count(*) from schedule s
   where s.retired_at is null
     and case when s.held then coalesce(s.held_until, 'infinity') end
         is distinct from slotkeeper.held_until(s.cluster, s.namespace, s.name, statement_timestamp());
$$;

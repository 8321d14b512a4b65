-- Time zones whose rules change: what a release of the tz database said, and next slots that another one has moved.

-- note_zone_rules_v1: keeps what a release says of a zone, once.
create or replace function slotkeeper.note_zone_rules_v1(
  p_zone text, p_version text, p_since timestamptz, p_until timestamptz, p_instants timestamptz[], p_offset_minutes integer[])
returns void
language sql volatile security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  insert into zone_rules (zone, version, since, until, instants, offset_minutes)
  values (p_zone, p_version, p_since, p_until, p_instants, p_offset_minutes) on conflict (zone, version) do nothing;
$$;

-- zone_rules_v1: what a release said of a zone, if that was kept.
create or replace function slotkeeper.zone_rules_v1(p_zone text, p_version text)
returns table (zone text, since timestamptz, until timestamptz, instants timestamptz[], offset_minutes integer[])
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select r.zone, r.since, r.until, r.instants, r.offset_minutes from zone_rules r where r.zone = p_zone and r.version = p_version;
$$;

-- zoned_schedules_v1: the next p_limit schedules by id, and whether their next slot depends on the rules of a zone (active
-- ones only). Those that do not are told, too: a search for the others would read the whole table in one call.
create or replace function slotkeeper.zoned_schedules_v1(p_after bigint, p_limit integer)
returns table (id bigint, owner bigint, version integer, watermark timestamptz, next_slot timestamptz, zoned boolean)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select l.id, l.owner, l.version, l.watermark, l.next_slot,
         l.retired_at is null and not (l.suspended or l.held or l.unwatched)
         and v.spec ? 'cron' and v.spec ->> 'timeZone' not in ('Etc/UTC', 'UTC')
    from (select s.* from schedule s where s.id > p_after order by s.id limit p_limit) l
    join schedule_version v on v.schedule = l.id and v.version = l.version
   order by l.id;
$$;

-- correct_next_slots_v1: another next slot for schedules that have not moved since they were read; returns how many.
-- The watermark stays: what is due now is decided by the next tick.
create or replace function slotkeeper.correct_next_slots_v1(
  p_ids bigint[], p_versions integer[], p_watermarks timestamptz[], p_next_slots timestamptz[], p_next_dues timestamptz[])
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  v_corrected integer;
begin
  with locked as materialized (
    select s.id, k.next_slot, k.next_due
      from unnest(p_ids, p_versions, p_watermarks, p_next_slots, p_next_dues) k(id, version, watermark, next_slot, next_due)
      join schedule s on s.id = k.id and s.version = k.version and s.watermark = k.watermark
     where s.retired_at is null and not (s.suspended or s.held or s.unwatched)
     order by s.id for no key update of s skip locked)
  update schedule s set next_slot = l.next_slot, next_due = l.next_due from locked l where s.id = l.id;
  get diagnostics v_corrected = row_count;
  return v_corrected;
end $$;

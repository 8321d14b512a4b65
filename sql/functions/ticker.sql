-- due_v1: schedules that have a slot due, the most overdue first, and the database's clock. Locks nothing: materialise_v1
-- checks version and watermark again.
create or replace function slotkeeper.due_v1(p_limit integer)
returns table (id bigint, owner bigint, version integer, watermark timestamptz, moment timestamptz)
language sql volatile security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select s.id, s.owner, s.version, s.watermark, clock_timestamp()
    from schedule s
   where s.next_due <= statement_timestamp()
     and (select f.tick_paused_until from fleet f) <= statement_timestamp()
   order by s.next_due limit p_limit;
$$;

-- upcoming_v1: schedules that fall due within p_horizon_seconds, after (p_after, p_after_id): for compiling their timing
-- beforehand.
create or replace function slotkeeper.upcoming_v1(
  p_after timestamptz, p_after_id bigint, p_horizon_seconds double precision, p_limit integer)
returns table (id bigint, owner bigint, version integer, next_due timestamptz)
language sql volatile security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select s.id, s.owner, s.version, s.next_due
    from schedule s
   where s.next_due >= greatest(p_after, statement_timestamp())
     and (s.next_due > p_after or s.id > p_after_id or p_after is null)
     and s.next_due <= statement_timestamp() + make_interval(secs => p_horizon_seconds)
   order by s.next_due, s.id limit p_limit;
$$;

-- next_due_v1: seconds until the next slot falls due, by the database's clock; null when none will. While the ticker is
-- paused nothing falls due before the pause ends: else every ticker would ask again at once, over and over.
create or replace function slotkeeper.next_due_v1() returns double precision
language sql volatile security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select extract(epoch from greatest(s.next_due, (select f.tick_paused_until from fleet f)) - clock_timestamp())::double precision
    from schedule s where s.next_due is not null order by s.next_due limit 1;
$$;

-- materialise_v1: decides slots. Per schedule the caller gives what it computed from (version, watermark): the new
-- watermark, the next slot, the planned runs and the ranges that do not run. A schedule that has moved meanwhile, or
-- whose live rows are held by somebody, is left for the next pass with its watermark unmoved; its id is returned.
create or replace function slotkeeper.materialise_v1(
  p_ids bigint[], p_versions integer[], p_watermarks timestamptz[], p_until timestamptz[], p_next_slots timestamptz[],
  p_next_dues timestamptz[],
  p_run_ids bigint[], p_run_slots timestamptz[], p_run_ats timestamptz[], p_run_start_bys timestamptz[],
  p_run_triggers smallint[], p_run_places integer[], p_run_exempt boolean[],
  p_skip_ids bigint[], p_skip_firsts timestamptz[], p_skip_lasts timestamptz[], p_skip_counts bigint[], p_skip_reasons text[])
returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off
set jit = off
as $$
declare
  v_locked bigint[];
  v_busy bigint[];
  v_owners bigint[];
  v_alone bigint[];
  v_crowded bigint[];
  v_id bigint;
begin
  select array_agg(l.id) into v_locked
    from (select s.id from unnest(p_ids, p_versions, p_watermarks) k(id, version, watermark)
            join schedule s on s.id = k.id and s.version = k.version and s.watermark = k.watermark
           where s.retired_at is null and not (s.suspended or s.held or s.unwatched)
           order by s.id for no key update of s skip locked) l;
  if v_locked is null then
    return p_ids;
  end if;
  -- Schedules with live rows that matter: all but those that may start beside any other and lose no slot by its presence.
  -- A watermark that was lowered by hand counts too: some of the planned slots are on record, so the first may not lead.
  select array_agg(c.id), array_agg(s.owner) into v_crowded, v_owners
    from unnest(v_locked) c(id) join schedule s on s.id = c.id
    join schedule_version v on v.schedule = s.id and v.version = s.version
   -- (Not `or exists`: that may become a hash of the whole table.)
   where s.watermark < s.watermark_highest or (select true from run r where r.owner = s.owner limit 1)
     and not (v.overlap = 3 and (v.catch_up = 2 or (v.catch_up = 1 and v.max_runs >=
                (select count(*) from unnest(p_run_ids) k(id) where k.id = c.id)
                + (select count(*) from (select from run r where r.owner = s.owner limit v.max_runs) l))));
  if v_crowded is not null then
    -- Their live rows, locked where they can be, counted against an unlocked count. Waiting instead would let a handler's
    -- open run.complete stall a whole tick. What is decided is decided in following statements, because the snapshot of
    -- this one is older than its locks.
    -- Owner by owner: `owner = any (…)` with an order or with false statistics reads the whole table.
    with held as materialized (
      select r.owner from unnest(v_owners) o(owner)
       cross join lateral (select l.owner from run l where l.owner = o.owner for update skip locked) r),
    live as materialized (
      select r.owner from unnest(v_owners) o(owner) cross join lateral (select l.owner from run l where l.owner = o.owner) r)
    select array_agg(b.owner) into v_busy
      from (select k.owner from (select owner, 1 as n from live union all select owner, -1 from held) k
             group by k.owner having sum(k.n) <> 0) b;
  end if;
  v_alone := array(select l.id from unnest(v_locked) l(id) where l.id <> all (coalesce(v_crowded, '{}')));
  v_crowded := array(select l.id from unnest(v_crowded, v_owners) l(id, owner) where l.owner <> all (coalesce(v_busy, '{}')));

  -- Of a range below the highest watermark only what is not on record yet: it was decided before the watermark was lowered.
  with ranges as materialized (
    select k.id, s.owner, s.version, k.first, k.last, k.reason, case k.reason when 'Superseded' then 1 else 3 end::smallint as outcome,
           k.slots - case when k.first > s.watermark_highest then 0
                          else slotkeeper.slots_on_record(s.id, s.owner, k.first, k.last) end as slots
      from unnest(p_skip_ids, p_skip_firsts, p_skip_lasts, p_skip_counts, p_skip_reasons) k(id, first, last, slots, reason)
      join schedule s on s.id = k.id where k.id = any (v_alone || v_crowded)),
  skips as (
    insert into slot_skip (schedule, first_slot, last_slot, slots, outcome, reason, version)
    select g.id, g.first, g.last, g.slots, g.outcome, g.reason, g.version from ranges g where g.slots > 0)
  insert into state_delta (owner, outcome, slot, at, slots)
  select g.owner, g.outcome, g.last, clock_timestamp(), g.slots from ranges g where g.slots > 0;

  -- Nobody else is there: all rows of all such schedules in one statement.
  insert into run (owner, slot, run_at, start_by, version, lane, max_attempts, trigger, exclusive, behind)
  select s.owner, k.slot, greatest(k.run_at, clock_timestamp()), k.start_by, v.version, v.lane, v.max_attempts, k.trigger,
         v.overlap <> 3, v.overlap <> 3 and k.place > 1
    from unnest(p_run_ids, p_run_slots, p_run_ats, p_run_start_bys, p_run_triggers, p_run_places)
         k(id, slot, run_at, start_by, trigger, place)
    join schedule s on s.id = k.id join schedule_version v on v.schedule = s.id and v.version = s.version
   where k.id = any (v_alone);

  foreach v_id in array v_crowded loop
    perform slotkeeper.decide_beside_live(v_id,
      array(select (k.slot, k.run_at, k.start_by, k.trigger, k.exempt)::slotkeeper.planned_run
              from unnest(p_run_ids, p_run_slots, p_run_ats, p_run_start_bys, p_run_triggers, p_run_exempt)
                   k(id, slot, run_at, start_by, trigger, exempt) where k.id = v_id order by k.slot));
  end loop;

  update schedule s set watermark = k.until, watermark_highest = greatest(s.watermark_highest, k.until),
                        next_slot = k.next_slot, next_due = k.next_due
    from unnest(p_ids, p_until, p_next_slots, p_next_dues) k(id, until, next_slot, next_due)
   where s.id = k.id and s.id = any (v_alone || v_crowded);
  if p_run_ids <> '{}' then
    perform pg_notify('slotkeeper_wake', '');  -- a hint for idle workers, sent when this commits; they poll without it
  end if;
  return array(select k.id from unnest(p_ids) k(id) where k.id <> all (v_alone || v_crowded));
end $$;

-- slot_known: whether this slot is on record already; asked only below a watermark that was lowered by hand.
create or replace function slotkeeper.slot_known(p_owner bigint, p_slot timestamptz) returns boolean
language sql stable
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select exists (select from run r where r.owner = p_owner and r.slot = p_slot)
      or exists (select from run_done d where d.owner = p_owner and d.slot = p_slot)
      or exists (select from run_dead d where d.owner = p_owner and d.slot = p_slot);
$$;

-- slots_on_record: how many slots of a range have a run or a record of why they have none; asked, too, only below a
-- watermark that was lowered by hand. A range row that reaches beyond counts whole: too few new records, never a double one.
create or replace function slotkeeper.slots_on_record(
  p_schedule bigint, p_owner bigint, p_first timestamptz, p_last timestamptz) returns bigint
language sql stable
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select (select count(*) from run r where r.owner = p_owner and r.slot between p_first and p_last)
       + (select count(*) from run_done d where d.owner = p_owner and d.slot between p_first and p_last)
       + (select count(*) from run_dead d where d.owner = p_owner and d.slot between p_first and p_last)
       + (select coalesce(sum(k.slots), 0)::bigint from slot_skip k
           where k.schedule = p_schedule and k.first_slot <= p_last and k.last_slot >= p_first);
$$;

-- decide_beside_live: the slots of one locked schedule that has live rows, all locked: overlap, superseding, catch-up limit.
create or replace function slotkeeper.decide_beside_live(p_id bigint, p_runs slotkeeper.planned_run[]) returns void
language plpgsql
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  s slotkeeper.schedule;
  v slotkeeper.schedule_version;
  r slotkeeper.run;
  v_new slotkeeper.planned_run[];
  v_started boolean;
  v_inherited timestamptz;
  v_over integer;
begin
  select l.* into s from schedule l where l.id = p_id;
  select l.* into v from schedule_version l where l.schedule = s.id and l.version = s.version;
  v_new := array(select k from unnest(p_runs) k where k.slot > s.watermark_highest or not slotkeeper.slot_known(s.owner, k.slot));
  if v_new = '{}' then
    return;
  end if;
  -- A run that waits for its next attempt while no worker is there ends here when its time has passed: else it would keep
  -- every slot from running until a worker comes, only to end then.
  for r in select l.* from run l
             join schedule_version d on d.schedule = s.id and d.version = l.version
            where l.owner = s.owner and l.state = 0 and l.first_started_at + make_interval(secs => d.active_deadline) <= clock_timestamp()
            order by l.slot
  loop
    r.token := null;
    perform slotkeeper.bury(r, 'ActiveDeadlineExceeded');
  end loop;
  select exists (select from run l where l.owner = s.owner and l.first_started_at is not null and l.trigger in (0, 1)) into v_started;

  if v.overlap = 0 and v_started then
    insert into slot_skip (schedule, first_slot, last_slot, slots, outcome, reason, version)
    select s.id, min(k.slot), max(k.slot), count(*), 3, 'Overlap', s.version from unnest(v_new) k
     where not k.exempt having count(*) > 0;
    insert into state_delta (owner, outcome, slot, at, slots)
    select s.owner, 3, max(k.slot), clock_timestamp(), count(*) from unnest(v_new) k where not k.exempt having count(*) > 0;
    v_new := array(select k from unnest(v_new) k where k.exempt);
  elsif v.catch_up = 0 and exists (select from unnest(v_new) k where not k.exempt) then
    -- RunOnce: the newest due slot runs; an older row that has not started hands its place in the queue over.
    for r in select l.* from run l where l.owner = s.owner and l.first_started_at is null and l.trigger in (0, 1) order by l.slot
    loop
      v_inherited := least(v_inherited, r.run_at);
      perform slotkeeper.conclude(r, 1::smallint, 'Superseded');
    end loop;
  elsif v.catch_up = 1 then
    select count(*) + cardinality(v_new) - v.max_runs into v_over from run l
     where l.owner = s.owner and l.first_started_at is null and l.trigger in (0, 1);
    if v_over > 0 then
      perform slotkeeper.drop_oldest(s.id, s.owner, s.version, v_over);
    end if;
  end if;
  if v.overlap = 2 and v_started and exists (select from unnest(v_new) k where not k.exempt) then
    for r in select l.* from run l where l.owner = s.owner and l.first_started_at is not null and l.trigger in (0, 1) order by l.slot
    loop
      perform slotkeeper.cancel_run(r, 'Replaced');
    end loop;
  end if;

  -- A row in front that an edit kept for its spread is not due yet: it must not keep due ones waiting. Nobody has claimed
  -- it: one that was claimed and given back with a back-off keeps its place, though it has not started either.
  update run l set behind = true
   where l.owner = s.owner and l.exclusive and not l.behind and l.state = 0 and l.attempt = 0
     and l.run_at > clock_timestamp() and exists (select from unnest(v_new) k where k.run_at <= clock_timestamp());

  -- The first is not behind if nothing else of its owner lives; it takes over the place of the row that it replaces.
  insert into run (owner, slot, run_at, start_by, version, lane, max_attempts, trigger, exclusive, behind)
  select s.owner, k.slot, least(greatest(k.run_at, clock_timestamp()), v_inherited), k.start_by, v.version, v.lane,
         v.max_attempts, k.trigger, v.overlap <> 3,
         v.overlap <> 3 and (k.place > 1 or exists (select from run l where l.owner = s.owner))
    from unnest(v_new) with ordinality k(slot, run_at, start_by, trigger, exempt, place);
  perform slotkeeper.promote(array[s.owner]);
end $$;

-- drop_oldest: under RunAll only the newest max_runs slots wait; the oldest that have not started are on record as skipped,
-- one by one: a range from the first to the last could span a slot that has started.
create or replace function slotkeeper.drop_oldest(p_schedule bigint, p_owner bigint, p_version integer, p_count integer)
returns void language sql
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  with gone as (
    delete from run where id in (select l.id from run l where l.owner = p_owner and l.first_started_at is null
                                  and l.trigger in (0, 1) order by l.slot limit p_count)
    returning id, slot, version),
  delta as (
    insert into state_delta (owner, outcome, slot, at) select p_owner, 3, g.slot, clock_timestamp() from gone g)
  insert into slot_skip (schedule, first_slot, last_slot, slots, outcome, reason, run, version)
  select p_schedule, g.slot, g.slot, 1, 3, 'CatchUpLimit', g.id, g.version from gone g;
$$;

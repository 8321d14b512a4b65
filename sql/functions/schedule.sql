-- How the operator (and `slotkeeper dev`) keep the schedule table equal to the JobSchedules.

-- bind_cluster_v1: binds a cluster's name to its identity at first contact; returns the identity it is bound to.
create or replace function slotkeeper.bind_cluster_v1(p_name text, p_identity text, p_adopt boolean) returns text
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  v_identity text;
begin
  insert into cluster (name, identity) values (p_name, p_identity) on conflict (name) do nothing;
  if p_adopt then
    update cluster c set identity = p_identity, bound_at = clock_timestamp()
     where c.name = p_name and c.identity <> p_identity;
  end if;
  select c.identity into v_identity from cluster c where c.name = p_name;
  return v_identity;
end $$;

-- stored_schedule: what the operator compares an object with. `moment` is the database's clock when the row is read;
-- `live_slot` the newest slot that is a live run (of outcomes, `health` knows the newest); then the hold that holds it.
create or replace view slotkeeper.stored_schedule as
select s.cluster, s.id, s.owner, s.namespace, s.name, s.uid, s.generation, s.version, s.watermark,
       not (s.suspended or s.held or s.unwatched or s.retired_at is not null) as active,
       s.suspended, s.held, s.unwatched, s.retired_at is not null as retired, s.trigger_key, v.spec_hash,
       s.next_slot, s.created_at, s.timing_since,
       (select max(r.slot) from slotkeeper.run r where r.owner = s.owner and r.trigger in (0, 1)) as live_slot,
       clock_timestamp() as moment, h.namespace as hold_namespace, h.name as hold_name, h.held_by, h.login as held_by_login,
       h.reason as hold_reason, h.held_until as hold_until
  from slotkeeper.schedule s join slotkeeper.schedule_version v on v.schedule = s.id and v.version = s.version
  left join lateral (
    -- Of several holds the one that ends last.
    select h.* from slotkeeper.hold h
     where s.held and (h.cluster is null or h.cluster = s.cluster) and (h.namespace is null or h.namespace = s.namespace)
       and (h.name is null or h.name = s.name) and (h.held_until is null or h.held_until > statement_timestamp())
     order by h.held_until desc nulls first, h.id limit 1) h on true;

-- schedule_ids: the ids of these keys, one probe of the unique index each, whatever the statistics say.
create or replace function slotkeeper.schedule_ids(p_cluster text, p_namespaces text[], p_names text[]) returns bigint[]
language sql stable
set search_path = pg_catalog, slotkeeper, pg_temp
set jit = off set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
as $$
  select coalesce(array_agg(i.id order by i.id), '{}')
    from unnest(p_namespaces, p_names) k(namespace, name)
   cross join lateral (select s.id from schedule s where s.cluster = p_cluster and s.namespace = k.namespace and s.name = k.name
                        limit 1) i;
$$;

-- schedules_v1: the schedules with these keys, tombstones included; without keys, every one of the cluster that is not
-- retired. Locks nothing.
create or replace function slotkeeper.schedules_v1(p_cluster text, p_namespaces text[], p_names text[])
returns setof slotkeeper.stored_schedule
language plpgsql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set jit = off set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
as $$
begin
  if p_namespaces is null then
    return query select s.* from stored_schedule s where s.cluster = p_cluster and not s.retired order by s.id;
  else
    return query
      select s.* from unnest(slotkeeper.schedule_ids(p_cluster, p_namespaces, p_names)) i(id)
       cross join lateral (select v.* from stored_schedule v where v.id = i.id limit 1) s;
  end if;
end $$;

-- lock_schedules_v1: the same rows, locked first, in id order; `moment` is a time after the lock. A hold that has ended by
-- itself before has ended, whether the ticker has seen that or not.
create or replace function slotkeeper.lock_schedules_v1(p_cluster text, p_namespaces text[], p_names text[])
returns setof slotkeeper.stored_schedule
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set jit = off set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
as $$
declare
  v_ids bigint[] := slotkeeper.schedule_ids(p_cluster, p_namespaces, p_names);
begin
  perform from schedule s where s.id = any (v_ids) order by s.id for no key update;
  perform slotkeeper.end_expired_holds(v_ids);
  return query
    select s.* from unnest(v_ids) i(id)
     cross join lateral (select v.* from stored_schedule v where v.id = i.id limit 1) s;
end $$;

-- store_schedule_v1: a new schedule, or the new spec of one that this transaction holds locked and whose slots up to
-- p_moment are decided. A new version is made only when the spec differs. Nothing at or before p_moment ever fires.
-- p_trigger_key: a key to be recorded as seen without a run, for a UID that is seen for the first time; else null.
create or replace function slotkeeper.store_schedule_v1(
  p_cluster text, p_namespace text, p_name text, p_uid text, p_generation bigint, p_resource_version text,
  p_suspended boolean, p_trigger_key text, p_spec jsonb, p_payload text, p_spec_hash text, p_action text, p_queue text,
  p_priority smallint, p_overlap smallint, p_catch_up smallint, p_max_runs integer, p_late_reason text,
  p_spread_seconds integer, p_grace_seconds integer, p_max_attempts smallint, p_backoff_initial integer,
  p_backoff_max integer, p_attempt_deadline bigint, p_active_deadline bigint, p_moment timestamptz,
  p_next_slot timestamptz, p_next_due timestamptz, p_timing_changed boolean)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  s slotkeeper.schedule;
  v_lane integer := slotkeeper.lane_of(p_namespace, p_queue, p_priority);
  v_owner bigint;
  v_hash text;
  v_until timestamptz;
begin
  select l.* into s from schedule l where l.cluster = p_cluster and l.namespace = p_namespace and l.name = p_name
    for no key update;
  -- A new one is born held where a hold covers it; of one that is there, its hold has been dealt with already.
  if s.id is null or s.retired_at is not null then
    v_until := slotkeeper.held_until(p_cluster, p_namespace, p_name, p_moment);
    s.held := v_until is not null;
    s.held_until := nullif(v_until, 'infinity');
  end if;
  if s.id is null then
    insert into owner (schedule, kind) values (0, 0) returning id into v_owner;
    insert into schedule (cluster, namespace, name, uid, generation, version, owner, watermark, watermark_highest, held,
                          held_until)
    values (p_cluster, p_namespace, p_name, p_uid, p_generation, 0, v_owner, '-infinity', '-infinity', s.held, s.held_until)
    returning * into s;
    update owner o set schedule = s.id where o.id = v_owner;
    insert into schedule_state (schedule) values (s.id);
  end if;
  select v.spec_hash into v_hash from schedule_version v where v.schedule = s.id and v.version = s.version;
  if v_hash is distinct from p_spec_hash or s.uid <> p_uid then
    s.version := s.version + 1;
    insert into schedule_version (schedule, version, generation, uid, spec, payload, spec_hash, action, lane, overlap, catch_up,
                                  max_runs, late_reason, spread_seconds, grace_seconds, max_attempts, backoff_initial,
                                  backoff_max, attempt_deadline, active_deadline)
    values (s.id, s.version, p_generation, p_uid, p_spec, p_payload, p_spec_hash, p_action, v_lane, p_overlap, p_catch_up,
            p_max_runs, p_late_reason, p_spread_seconds, p_grace_seconds, p_max_attempts, p_backoff_initial,
            p_backoff_max, p_attempt_deadline, p_active_deadline);
    -- A change of queue or priority moves the rows that are not running.
    update run r set lane = v_lane where r.owner = s.owner and r.lane <> v_lane and r.state = 0;
  end if;
  if p_trigger_key is not null then
    insert into owner (schedule, kind, label) values (s.id, 1, p_trigger_key) on conflict do nothing;
  end if;
  update schedule l set
      uid = p_uid, generation = p_generation, resource_version = p_resource_version, version = s.version,
      suspended = p_suspended, unwatched = false, retired_at = null, trigger_key = coalesce(p_trigger_key, l.trigger_key),
      watermark = greatest(l.watermark, p_moment), watermark_highest = greatest(l.watermark_highest, p_moment),
      next_slot = p_next_slot, held = s.held, held_until = s.held_until,
      next_due = case when p_suspended then null when s.held then s.held_until else p_next_due end,
      timing_since = case when p_timing_changed then p_moment else l.timing_since end,
      -- Created anew: what its predecessor did says nothing about how long this one has not succeeded.
      created_at = case when l.retired_at is not null or l.uid <> p_uid then p_moment else l.created_at end
   where l.id = s.id;
  return s.id;
end $$;

-- suspend_schedule_v1: honours `suspend` of an object whose newest spec is invalid, and watches it again; the slots up to
-- p_moment are decided.
create or replace function slotkeeper.suspend_schedule_v1(
  p_id bigint, p_suspended boolean, p_moment timestamptz, p_next_slot timestamptz, p_next_due timestamptz) returns void
language sql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  update schedule l set suspended = p_suspended, unwatched = false, watermark = greatest(l.watermark, p_moment),
      watermark_highest = greatest(l.watermark_highest, p_moment), next_slot = p_next_slot,
      next_due = case when p_suspended then null when l.held then l.held_until else p_next_due end,
      timing_since = case when l.suspended and not p_suspended then p_moment else l.timing_since end
   where l.id = p_id and l.retired_at is null;
$$;

-- retire_schedules_v1: the objects are gone. Tombstones keep watermark and trigger key; runs that are not running become
-- cancelled(ScheduleDeleted), a running one is marked so that only its success is still recorded. Retires only this UID.
create or replace function slotkeeper.retire_schedule_v1(p_id bigint, p_uid text, p_moment timestamptz) returns boolean
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  v_owner bigint;
begin
  update schedule l set retired_at = clock_timestamp(), next_slot = null, next_due = null,
      watermark = greatest(l.watermark, p_moment), watermark_highest = greatest(l.watermark_highest, p_moment)
   where l.id = p_id and l.uid = p_uid and l.retired_at is null;
  if not found then
    return false;
  end if;
  for v_owner in select o.id from owner o where o.id = (select s.owner from schedule s where s.id = p_id)
                 union all select o.id from owner o where o.schedule = p_id and o.kind <> 0
  loop
    perform slotkeeper.cancel_owner(v_owner, 'ScheduleDeleted');
  end loop;
  return true;
end $$;

-- cancel_owner: ends what is not running and marks what is; the caller holds the schedule.
create or replace function slotkeeper.cancel_owner(p_owner bigint, p_reason text) returns void
language plpgsql
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  r slotkeeper.run;
begin
  for r in select l.* from run l where l.owner = p_owner order by l.slot for update loop
    perform slotkeeper.cancel_run(r, p_reason);
  end loop;
end $$;

-- cancel_run: one locked run. A running one keeps its place until its worker confirms the stop or its lease ends.
create or replace function slotkeeper.cancel_run(r slotkeeper.run, p_reason text) returns text
language plpgsql
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
begin
  if r.state = 0 then
    perform slotkeeper.conclude(r, 2::smallint, p_reason);
    return 'cancelled';
  end if;
  update run l set state = 2, cancel = true, cancel_reason = p_reason where l.id = r.id and l.state = 1;
  return 'running';
end $$;

-- watch_schedules_v1: a namespace that is no longer watched keeps its schedules, marked: no new slots, nothing cancelled.
create or replace function slotkeeper.unwatch_schedule_v1(p_id bigint, p_moment timestamptz) returns void
language sql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  update schedule l set unwatched = true, next_slot = null, next_due = null,
      watermark = greatest(l.watermark, p_moment), watermark_highest = greatest(l.watermark_highest, p_moment)
   where l.id = p_id and l.retired_at is null and not l.unwatched;
$$;

-- trigger_v1: one manual run per (schedule, key), whatever else runs. False: this key has been seen.
create or replace function slotkeeper.trigger_v1(p_id bigint, p_key text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  v_owner bigint;
begin
  update schedule s set trigger_key = p_key where s.id = p_id and s.trigger_key is distinct from p_key;
  insert into owner (schedule, kind, label) values (p_id, 1, p_key) on conflict do nothing returning id into v_owner;
  if v_owner is null then
    return false;
  end if;
  insert into run (owner, slot, run_at, version, lane, max_attempts, trigger)
  select v_owner, date_trunc('second', clock_timestamp()), clock_timestamp(), v.version, v.lane, v.max_attempts, 3
    from schedule s join schedule_version v on v.schedule = s.id and v.version = s.version where s.id = p_id;
  return true;
end $$;

-- versions_v1: what these versions of schedules say, for whoever runs or materialises them. A login that may not claim
-- from every queue sees those of the runs that its workers hold, and no others: a payload is nobody else's.
create or replace function slotkeeper.versions_v1(p_owners bigint[], p_versions integer[])
returns table (owner bigint, version integer, cluster text, namespace text, name text, label text, kind smallint,
               spec jsonb, payload text, generation bigint)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set jit = off set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
as $$
  select o.id, v.version, s.cluster, s.namespace, s.name, o.label, o.kind, v.spec, v.payload, v.generation
    from unnest(p_owners, p_versions) k(owner, version) join owner o on o.id = k.owner
    join schedule s on s.id = o.schedule join schedule_version v on v.schedule = s.id and v.version = k.version
   where (select pg_has_role(session_user, 'slotkeeper_controller', 'member')
                 or pg_has_role(session_user, 'slotkeeper_operator', 'member')
                 or exists (select from queue_grant g
                             where g.may_claim and g.login in ('*', session_user) and g.namespace = '*' and g.queue = '*'))
      or exists (select from run r join worker w on w.id = r.worker
                  where r.owner = k.owner and r.version = k.version and r.state <> 0 and w.login = session_user);
$$;

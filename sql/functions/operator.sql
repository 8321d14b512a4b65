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
  v_locked bigint[];
begin
  -- Schedules first, in id order: whoever adds a row of a schedule holds the schedule.
  v_locked := array(
    select s.id from schedule s
     where s.id in (select o.schedule from run_dead k join owner o on o.id = k.owner where k.id = any (p_ids))
     order by s.id for no key update);
  for id in select distinct k from unnest(p_ids) k order by k loop
    select k.* into d from run_dead k where k.id = requeue_v1.id for update;
    if not found then
      became := case when exists (select from run l where l.id = requeue_v1.id) then 'live' else 'gone' end;
    elsif exists (select from run l where l.owner = d.owner and l.slot = d.slot)
          -- It died after the schedules were locked, so its own is not: it was live when it was asked for.
          or exists (select from owner o where o.id = d.owner and o.schedule <> all (v_locked)) then
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

-- unserved_queues_v1: queues that nobody serves, for the condition NoWorker: no worker with a living lease and a grant claims
-- from them. A queue is told once that has lasted p_grace_seconds and either a run has waited for so long, or no pool is
-- known that would serve it (one that is known may have been scaled to nothing while there is nothing to do).
-- Since when, each lane remembers, so that another leader knows; it is written only when that changes.
create or replace function slotkeeper.unserved_queues_v1(p_grace_seconds integer)
returns table (namespace text, queue text, since timestamptz, waiting_since timestamptz)
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_before timestamptz := clock_timestamp() - make_interval(secs => p_grace_seconds);
  v_changed integer[];
begin
  with served as materialized (
    select l.id, exists (
             select from worker w
              where w.lease_until > statement_timestamp()
                and (l.namespace = any (w.namespaces) or '*' = any (w.namespaces))
                and (l.queue = any (w.queues) or '*' = any (w.queues))
                and exists (select from queue_grant g
                             where g.may_claim and g.login in ('*', w.login)
                               and g.namespace in ('*', l.namespace) and g.queue in ('*', l.queue))) as served
      from lane l)
  select array_agg(l.id order by l.id) into v_changed
    from lane l join served s on s.id = l.id and s.served = (l.unserved_since is not null);
  if v_changed is not null then
    -- In the order of their ids, as everybody who locks several lanes.
    perform from lane l where l.id = any (v_changed) order by l.id for no key update;
    update lane l set unserved_since = case when l.unserved_since is null then clock_timestamp() end where l.id = any (v_changed);
  end if;
  return query
    select q.namespace, q.queue, q.since, q.waiting_since
      from (select l.namespace, l.queue, min(l.unserved_since) as since, min(r.run_at) as waiting_since
              from lane l
              left join lateral (select r.run_at from run r
                                  where r.lane = l.id and not r.behind and r.state = 0 and r.run_at <= statement_timestamp()
                                  order by r.run_at, r.id limit 1) r on true
             where l.unserved_since is not null group by l.namespace, l.queue) q
     where q.since <= v_before
       and (q.waiting_since <= v_before
            or not exists (select from pool p
                            where (q.namespace = any (p.namespaces) or '*' = any (p.namespaces))
                              and (q.queue = any (p.queues) or '*' = any (p.queues))));
end $$;

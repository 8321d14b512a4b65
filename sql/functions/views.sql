-- The public views, a contract: docs/database.md gives names, types and meaning. Columns are only ever added.

-- run_every: the rows of the four tables that hold runs, in one shape. Of ours alone, as run_record is: nobody is granted it.
create or replace view slotkeeper.run_every as
select r.id, r.owner, r.slot, r.version, r.lane, r.trigger, r.task, r.payload, r.run_at, r.attempt, r.charged::integer,
       r.max_attempts::integer, r.worker, r.created_at, r.first_started_at as started_at, null::timestamptz as finished_at,
       case when r.state = 0 then 'ready' else 'running' end as status, r.cancel_reason as reason, null::bigint as schedule,
       1::bigint as slots, r.slot as last_slot, true as live
  from slotkeeper.run r
union all
select d.id, d.owner, d.slot, d.version, d.lane, d.trigger, d.task, d.payload, d.run_at, d.attempt, d.charged::integer,
       d.max_attempts::integer, d.worker, d.created_at, d.first_started_at, d.finished_at,
       case d.outcome when 0 then 'done' when 1 then 'superseded' else 'cancelled' end, d.reason, null, 1, d.slot, false
  from slotkeeper.run_done d
union all
select d.id, d.owner, d.slot, d.version, d.lane, d.trigger, d.task, d.payload, d.run_at, d.attempt, d.charged::integer,
       d.max_attempts::integer, d.worker, d.created_at, d.first_started_at, d.died_at, 'dead', d.reason, null, 1, d.slot, false
  from slotkeeper.run_dead d
union all
select k.run, s.owner, k.first_slot, k.version, v.lane, 0::smallint, null, null, k.first_slot, 0, 0, v.max_attempts::integer,
       null, k.at, null, k.at, case k.outcome when 1 then 'superseded' else 'skipped' end, k.reason, k.schedule, k.slots, k.last_slot,
       false
  from slotkeeper.slot_skip k join slotkeeper.schedule s on s.id = k.schedule
  join slotkeeper.schedule_version v on v.schedule = k.schedule and v.version = k.version;

-- run_record: the same with the names of what the keys stand for.
create or replace view slotkeeper.run_record as
select coalesce(e.id::text, format('%s@%s', s.id, to_char(e.slot at time zone 'UTC', 'YYYYMMDD"T"HH24MISS"Z"'))) as id,
       l.namespace, s.name as schedule, e.slot, coalesce(e.task, v.action) as type, l.queue, l.priority::integer as priority,
       (array['Schedule', 'CatchUp', 'Backfill', 'Manual', 'Requeue', 'Enqueue'])[e.trigger + 1] as trigger,
       e.status, e.reason, coalesce(e.payload, v.payload)::jsonb as payload,
       case when e.owner is null then i.key
            else case when s.cluster = 'default' then '' else s.cluster || '/' end || s.namespace || '/' || s.name
                 || case o.kind when 1 then '#' || o.label
                         else '@' || to_char(e.slot at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
                              || case o.kind when 2 then '#' || o.label else '' end end
       end as idempotency_key,
       e.run_at, e.attempt as attempts, e.charged, e.max_attempts, w.name as locked_by, w.lease_until as locked_until,
       (select x.kind || ': ' || x.message from slotkeeper.run_error x where x.run = e.id order by x.at desc limit 1) as last_error,
       e.created_at, e.started_at, e.finished_at, e.slots, v.generation, s.cluster, e.id as run, e.owner, e.live, e.last_slot,
       v.spread_seconds + v.grace_seconds as start_within
  from slotkeeper.run_every e
  left join slotkeeper.owner o on o.id = e.owner
  left join slotkeeper.schedule s on s.id = coalesce(e.schedule, o.schedule)
  left join slotkeeper.schedule_version v on v.schedule = s.id and v.version = e.version
  join slotkeeper.lane l on l.id = e.lane
  left join slotkeeper.worker w on w.id = e.worker and e.status = 'running'
  left join slotkeeper.idempotency i on i.run = e.id and e.owner is null;

-- job: all of a job's life as one row.
create or replace view slotkeeper.job as
select id, namespace, schedule, slot, type, queue, priority, trigger, status, reason, payload, idempotency_key, run_at, attempts,
       charged, max_attempts, locked_by, locked_until, last_error, created_at, started_at, finished_at, slots, generation, cluster
  from slotkeeper.run_record;

-- health: per schedule that is not retired, folded state plus what is not yet folded: the same before the fold and after.
create or replace view slotkeeper.health as
select s.cluster, s.namespace, s.name, l.queue, s.suspended, s.held,
       clock_timestamp() - greatest(t.last_success_at, u.success_at, s.created_at) as since_last_success,
       greatest(t.last_success_slot, u.success_slot) as last_success_slot,
       case when u.recount then b.dead else t.dead end::bigint as dead_runs,
       case when u.recount then b.consecutive_dead else t.consecutive_dead end::bigint as consecutive_dead,
       (select clock_timestamp() - min(r.run_at) from slotkeeper.run r
         where r.owner = s.owner and not r.behind and r.state = 0 and r.run_at <= clock_timestamp()) as oldest_pending_age,
       case when u.success_at > coalesce(t.last_success_at, '-infinity') then 0 else t.missed end + coalesce(u.missed, 0) as missed,
       case when not s.held then s.next_slot end as next_slot,
       case when not (s.suspended or s.held or s.unwatched) and t.due_version = s.version
             and t.due_since >= greatest(t.last_success_at, s.created_at, s.timing_since) then t.success_due end as success_due,
       greatest(t.last_success_at, u.success_at) as last_success_at, greatest(t.last_failure_at, u.failure_at) as last_failure_at,
       greatest(t.last_slot, u.last_slot) as last_slot,
       greatest(t.last_skip_slot, u.skip_slot) as last_skip_slot,
       case when u.skip_slot >= coalesce(t.last_skip_slot, '-infinity')
            then case u.skip_outcome when 1 then 'Superseded'
                                     else (select k.reason from slotkeeper.slot_skip k
                                            where k.schedule = s.id and k.first_slot <= u.skip_slot and k.last_slot = u.skip_slot
                                              and k.outcome = 3 order by k.first_slot desc limit 1) end
            else t.last_skip_reason end as last_skip_reason,
       case when u.skip_slot >= coalesce(t.last_skip_slot, '-infinity') then u.skip_at else t.last_skip_at end as last_skip_at,
       s.watermark, s.created_at
  from slotkeeper.schedule s
  join slotkeeper.schedule_version v on v.schedule = s.id and v.version = s.version
  join slotkeeper.lane l on l.id = v.lane
  join slotkeeper.schedule_state t on t.schedule = s.id
  left join (
    select x.schedule, max(x.success_at) as success_at, max(x.slot) filter (where x.outcome = 0) as success_slot,
           max(x.at) filter (where x.outcome in (4, 6)) as failure_at, max(x.slot) filter (where x.outcome in (0, 4, 6)) as last_slot,
           bool_or(x.outcome in (0, 4, 5)) as recount,
           (sum(x.slots) filter (where x.outcome in (1, 3)
                                   and x.at > greatest(x.success_at, k.last_success_at, '-infinity')))::bigint as missed,
           max(x.slot) filter (where x.outcome in (1, 3)) as skip_slot,
           (array_agg(x.outcome order by x.slot desc, x.at desc) filter (where x.outcome in (1, 3)))[1] as skip_outcome,
           (array_agg(x.at order by x.slot desc, x.at desc) filter (where x.outcome in (1, 3)))[1] as skip_at
      from (select o.schedule, d.outcome, d.slot, d.at, d.slots,
                   max(d.at) filter (where d.outcome = 0) over (partition by o.schedule) as success_at
              from slotkeeper.state_delta d join slotkeeper.owner o on o.id = d.owner) x
      join slotkeeper.schedule_state k on k.schedule = x.schedule
     group by x.schedule) u on u.schedule = s.id
  -- As the fold does: dead runs are counted, because requeue and purge take some away.
  left join lateral (
    select count(*) as dead,
           count(*) filter (where d.died_at > greatest(t.last_success_at, u.success_at, '-infinity')) as consecutive_dead
      from (select s.owner union all select o.id from slotkeeper.owner o where o.schedule = s.id and o.kind <> 0) o(id)
      join slotkeeper.run_dead d on d.owner = o.id
     where u.recount) b on true
 where s.retired_at is null;

-- A worker's session: register, beat, leave, and which lanes it may claim from.

-- register_worker_v1: one row per worker process; also declares its pool. The newest worker's queues and concurrency are
-- those of the pool, so that a rolling deploy changes both; but while workers of the login that declared a pool live, no
-- other login changes it.
create or replace function slotkeeper.register_worker_v1(
  p_name text, p_namespace text, p_pool text, p_namespaces text[], p_queues text[], p_concurrency integer,
  p_version text, p_protocol smallint, p_lease_seconds integer)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  worker_id bigint;
begin
  insert into worker (name, namespace, pool, namespaces, queues, concurrency, version, protocol, lease_seconds, lease_until)
  values (p_name, p_namespace, p_pool, p_namespaces, p_queues, p_concurrency, p_version, p_protocol, p_lease_seconds,
          clock_timestamp() + make_interval(secs => p_lease_seconds))
  returning id into worker_id;
  insert into pool as p (namespace, name, namespaces, queues, concurrency, declared_by)
  values (p_namespace, p_pool, p_namespaces, p_queues, p_concurrency, p_name)
  on conflict (namespace, name) do update
    set namespaces = excluded.namespaces, queues = excluded.queues, concurrency = excluded.concurrency,
        declared_by = excluded.declared_by, login = excluded.login
    where (p.namespaces, p.queues, p.concurrency, p.login)
          is distinct from (excluded.namespaces, excluded.queues, excluded.concurrency, excluded.login)
      and p.login is not null
      and (p.login = excluded.login
           or not exists (select from worker w where w.namespace = p.namespace and w.pool = p.name and w.login = p.login
                             and w.lease_until > clock_timestamp()));
  return worker_id;
end $$;

-- lanes_v1: the lanes that a worker serves and its login may claim from, the most urgent first.
create or replace function slotkeeper.lanes_v1(p_worker bigint)
returns table (lane integer, namespace text, queue text, priority smallint)
language sql stable security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
  select l.id, l.namespace, l.queue, l.priority
    from worker w join lane l
      on (l.namespace = any (w.namespaces) or '*' = any (w.namespaces)) and (l.queue = any (w.queues) or '*' = any (w.queues))
   where w.id = p_worker
     and exists (select from queue_grant g
                  where g.may_claim and g.login in ('*', session_user)
                    and g.namespace in ('*', l.namespace) and g.queue in ('*', l.queue))
   order by l.priority desc, l.id;
$$;

-- beat_v1: moves the worker's lease. No row: the worker was reaped and owns nothing any more; a beat never inserts.
-- Also tells which of its runs are to be cancelled.
create or replace function slotkeeper.beat_v1(p_worker bigint)
returns table (lease_until timestamptz, cancelled bigint[])
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
begin
  -- An expired lease that nobody has reaped yet is still this worker's: renewing it loses nothing.
  update worker w set beat_at = clock_timestamp(),
                      lease_until = clock_timestamp() + make_interval(secs => w.lease_seconds)
   where w.id = p_worker and w.login = session_user
  returning w.lease_until into lease_until;
  if not found then
    return;
  end if;
  select coalesce(array_agg(r.id), '{}') into cancelled from run r where r.cancel and r.worker = p_worker and r.state = 2;
  return next;
end $$;

-- leave_v1: a worker that has given everything back removes its row; false while it still owns runs.
create or replace function slotkeeper.leave_v1(p_worker bigint) returns boolean
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
begin
  perform from worker w where w.id = p_worker and w.login = session_user for update;
  if not found then
    return true;
  end if;
  if exists (select from claim_batch b join run r on r.lane = b.lane and not r.behind
              where b.worker = p_worker and r.run_at between b.lo and b.hi and r.token = b.token and r.state <> 0) then
    return false;
  end if;
  delete from claim_batch b where b.worker = p_worker;
  delete from worker w where w.id = p_worker;
  return true;
end $$;

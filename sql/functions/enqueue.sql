-- lane_of: the id of (namespace, queue, priority), made at first use.
create or replace function slotkeeper.lane_of(p_namespace text, p_queue text, p_priority smallint) returns integer
language plpgsql
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
declare
  v_lane integer;
begin
  select l.id into v_lane from lane l where l.namespace = p_namespace and l.queue = p_queue and l.priority = p_priority;
  if not found then
    insert into lane (namespace, queue, priority) values (p_namespace, p_queue, p_priority) on conflict do nothing;
    perform pg_notify('slotkeeper_wake', 'lane');  -- workers that serve the queue do not know this lane yet
    select l.id into v_lane from lane l where l.namespace = p_namespace and l.queue = p_queue and l.priority = p_priority;
  end if;
  return v_lane;
end $$;

-- enqueue_v1: one ad-hoc run, once per (namespace, key), in the caller's transaction. A second caller with the key gets
-- the id of the first; while the first is still open it waits, and makes the run itself if the first rolls back.
create or replace function slotkeeper.enqueue_v1(
  p_task text, p_payload text, p_key text, p_queue text, p_namespace text, p_run_at timestamptz, p_priority smallint,
  p_max_attempts smallint, out id bigint, out created boolean)
language plpgsql security definer
set search_path = pg_catalog, slotkeeper, pg_temp
as $$
#variable_conflict use_column
begin
  if not exists (select from queue_grant g
                  where g.may_enqueue and g.login in ('*', session_user)
                    and g.namespace in ('*', p_namespace) and g.queue in ('*', p_queue)) then
    raise exception 'login % may not enqueue in queue % of namespace %', session_user, p_queue, p_namespace
      using errcode = 'SK003', hint = 'grant it in slotkeeper.queue_grant';
  end if;
  perform p_payload::jsonb;  -- the view `job` shows it as such: a text that is not JSON would break it for everybody
  created := true;
  loop
    id := nextval('slotkeeper.run_id');
    if p_key is not null then
      insert into idempotency (namespace, key, run) values (p_namespace, p_key, id) on conflict do nothing;
      if not found then
        -- A following statement sees what the first caller has committed.
        select i.run into id from idempotency i where i.namespace = p_namespace and i.key = p_key;
        if found then
          created := false;
          return;
        end if;
        continue;  -- it expired in between
      end if;
    end if;
    insert into run (id, run_at, lane, max_attempts, trigger, task, payload)
    values (id, greatest(p_run_at, clock_timestamp()), slotkeeper.lane_of(p_namespace, p_queue, p_priority), p_max_attempts, 5,
            p_task, p_payload);
    perform pg_notify('slotkeeper_wake', '');  -- at most one hint per transaction; carries nothing, so it cannot fail the insert
    return;
  end loop;
end $$;

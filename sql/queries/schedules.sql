-- name: schedules.bind_cluster
-- Binds a cluster's name to its identity at first contact; returns the identity it is bound to.
select slotkeeper.bind_cluster_v1(%(name)s::text, %(identity)s::text, %(adopt)s::boolean) as identity;

-- name: schedules.lock
-- Locks the rows of these keys and says what they hold and the time after the lock.
select * from slotkeeper.lock_schedules_v1(%(cluster)s::text, %(namespaces)s::text[], %(names)s::text[]);

-- name: schedules.store
-- A new schedule, or the new spec of one that this transaction holds locked; returns its id.
select slotkeeper.store_schedule_v1(
  %(cluster)s::text, %(namespace)s::text, %(name)s::text, %(uid)s::text, %(generation)s::bigint, %(resource_version)s::text,
  %(suspended)s::boolean, %(trigger_key)s::text, %(spec)s::jsonb, %(payload)s::text, %(spec_hash)s::text, %(action)s::text,
  %(queue)s::text, %(priority)s::smallint, %(overlap)s::smallint, %(catch_up)s::smallint, %(max_runs)s::integer,
  %(late_reason)s::text, %(spread_seconds)s::integer, %(grace_seconds)s::integer, %(max_attempts)s::smallint,
  %(backoff_initial)s::integer, %(backoff_max)s::integer, %(attempt_deadline)s::bigint, %(active_deadline)s::bigint,
  %(moment)s::timestamptz, %(next_slot)s::timestamptz, %(next_due)s::timestamptz, %(timing_changed)s::boolean) as id;

-- name: schedules.suspend
-- Honours `suspend` of an object whose newest spec is invalid.
select slotkeeper.suspend_schedule_v1(%(id)s::bigint, %(suspended)s::boolean, %(moment)s::timestamptz,
                                      %(next_slot)s::timestamptz, %(next_due)s::timestamptz);

-- name: schedules.retire
-- The object is gone: a tombstone stays, and its runs are cancelled. False: another UID is stored.
select slotkeeper.retire_schedule_v1(%(id)s::bigint, %(uid)s::text, %(moment)s::timestamptz) as retired;

-- name: schedules.unwatch
-- Its namespace is no longer watched: no new slots, nothing cancelled.
select slotkeeper.unwatch_schedule_v1(%(id)s::bigint, %(moment)s::timestamptz);

-- name: schedules.trigger
-- One manual run per (schedule, key). False: this key has been seen.
select slotkeeper.trigger_v1(%(id)s::bigint, %(key)s::text) as created;

-- name: schedules.list
-- Every stored schedule of a cluster that is not retired.
select * from slotkeeper.schedules_v1(%(cluster)s::text, null, null);

-- name: schedules.find
-- The stored schedules with these keys, tombstones included; locks nothing.
select * from slotkeeper.schedules_v1(%(cluster)s::text, %(namespaces)s::text[], %(names)s::text[]);

-- name: schedules.now
-- The database's clock.
select clock_timestamp() as moment;

-- name: schedules.health
-- The health rows of a cluster, for status.
select * from slotkeeper.health where cluster = %(cluster)s::text;

-- name: schedules.unserved
-- Queues that nobody has served for so long, and since when runs wait there.
select * from slotkeeper.unserved_queues_v1(%(grace_seconds)s::integer);

-- name: schedules.leadership
-- True: this session is the leader of this cluster until it ends. One that is already only shows that it still lives.
select case when %(leads)s::boolean then true else pg_try_advisory_lock(1936420972, hashtext(%(cluster)s::text)) end as leader,
       pg_backend_pid() as server_process;

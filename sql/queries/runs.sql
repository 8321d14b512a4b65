-- name: runs.cancel
-- Cancels live runs by id.
select * from slotkeeper.cancel_v1(%(ids)s::bigint[]);

-- name: runs.requeue
-- Dead runs live again, by id.
select * from slotkeeper.requeue_v1(%(ids)s::bigint[]);

-- name: runs.find
-- The ids of runs of one schedule with one status.
select id::bigint as id from slotkeeper.job
 where namespace = %(namespace)s::text and schedule = %(schedule)s::text and status = any (%(statuses)s::text[])
   and (%(slot)s::timestamptz is null or slot = %(slot)s::timestamptz) and id ~ '^\d+$'
 order by slot;

-- name: holds.add
-- A new hold, or other words for the one on the same target. True: there was one already.
select slotkeeper.add_hold_v1(%(cluster)s::text, %(namespace)s::text, %(name)s::text, %(held_by)s::text, %(reason)s::text,
                              %(until)s::timestamptz) as replaced;

-- name: holds.remove
-- The hold on exactly this target goes. False: there was none.
select slotkeeper.remove_hold_v1(%(cluster)s::text, %(namespace)s::text, %(name)s::text) as removed;

-- name: holds.list
-- The holds of a cluster that are in force, the widest first.
select * from slotkeeper.holds_v1(%(cluster)s::text);

-- name: holds.release
-- Schedules whose hold has ended; with all also those whose holds are other ones now. How many have slots again.
select slotkeeper.release_held_v1(%(all)s::boolean) as released;

-- name: holds.lock_unheld
-- Schedules that a hold covers and that are not held yet, locked, with a time after the lock.
select * from slotkeeper.lock_unheld_v1(%(limit)s::integer);

-- name: holds.mark
-- These have no slots from here.
select slotkeeper.mark_held_v1(%(ids)s::bigint[]) as marked;

-- name: holds.outstanding
-- How many schedules are not yet as the holds want them.
select slotkeeper.holds_outstanding_v1() as schedules;

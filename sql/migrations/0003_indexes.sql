-- Indexes for what came with 0002 and for the dashboard, apart from it: they keep writers away from a table while it is read
-- once. Of history that is about a second for four million rows (measured), in which finishes wait. And the constraints that
-- 0002 added without looking at the rows that were there.

create index schedule_held on slotkeeper.schedule (held_until) where held;
create index owner_made_at on slotkeeper.owner (made_at) where kind <> 0;
create index run_dead_lane on slotkeeper.run_dead (lane);
-- History is written in the order of its time, so ranges of blocks are index enough, and cost a finish next to nothing.
create index run_done_finished_at on slotkeeper.run_done using brin (finished_at) with (autosummarize = on);
create index slot_skip_at on slotkeeper.slot_skip using brin (at) with (autosummarize = on);

alter table slotkeeper.pool validate constraint pool_concurrency_check;
alter table slotkeeper.hold validate constraint hold_check;

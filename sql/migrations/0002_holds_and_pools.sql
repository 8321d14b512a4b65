-- What holds, the condition NoWorker and pools need beside the tables of 0001.
--
-- A default that is computed gets its value in two steps, so that no table is written anew: `transaction_timestamp()` and
-- `session_user` are one value for all rows that are there, noted in the catalogue. Until `migrate` has created the functions
-- anew, those of before still run: what they do not know has a default.

alter table slotkeeper.lane add column unserved_since timestamptz;
comment on column slotkeeper.lane.unserved_since is
  'Since when no living worker serves it, as the operator saw it; null while one does. Written only when that changes.';

alter table slotkeeper.schedule add column held_until timestamptz;
comment on column slotkeeper.schedule.next_due is
  'next_slot + spread offset; null while suspended, unwatched, retired or never firing. While held: when the hold ends by itself.';
comment on column slotkeeper.schedule.held_until is
  'While held: when that ends by itself; null if only a command ends it. The slot on that second is not held.';
comment on column slotkeeper.schedule.timing_since is 'When the current timing was accepted, or the schedule last resumed or was released.';

-- Owners that are there count from now, so that their keys are kept for as long as those of new ones.
alter table slotkeeper.owner add column made_at timestamptz not null default transaction_timestamp();
alter table slotkeeper.owner alter column made_at set default clock_timestamp();

alter table slotkeeper.worker add column namespace text not null default '';
comment on column slotkeeper.worker.namespace is 'Where it runs: (namespace, pool) names its pool. What it claims from is in namespaces and queues.';

alter table slotkeeper.pool add column namespaces text[] not null default '{}';
-- squawk-ignore adding-field-with-default -- not volatile
alter table slotkeeper.pool add column login text default session_user;
comment on column slotkeeper.pool.namespaces is 'Whose queues it claims from; * stands for all, as in queues.';
comment on column slotkeeper.pool.login is 'Of the workers that declared it; null: declared by configuration, which no worker changes.';

-- A worker that lives on does not register again. Its pool is the one of that name which it declared, or which was declared
-- for its own namespace; a pool serves what its workers serve.
update slotkeeper.worker w
   set namespace = coalesce(
         (select p.namespace from slotkeeper.pool p
           where p.name = w.pool
           order by p.declared_by = w.name desc, p.namespace = any (w.namespaces) desc, p.namespace limit 1), '');
update slotkeeper.pool p set namespaces = array[p.namespace];
update slotkeeper.pool p
   set namespaces = w.namespaces, login = w.login
  from slotkeeper.worker w
 where w.id = (select n.id from slotkeeper.worker n where n.namespace = p.namespace and n.pool = p.name
                order by n.name = p.declared_by desc, n.id desc limit 1);

update slotkeeper.pool set concurrency = 1 where concurrency < 1;
alter table slotkeeper.pool add constraint pool_concurrency_check check (concurrency > 0) not valid;

-- Nothing wrote or read this table before: a row that somebody typed in held nothing, and must not begin to now.
delete from slotkeeper.hold;
-- squawk-ignore adding-field-with-default -- not volatile, and the table is empty
alter table slotkeeper.hold add column login text not null default session_user;
create unique index hold_cluster_namespace_name_key on slotkeeper.hold (cluster, namespace, name) nulls not distinct;
alter table slotkeeper.hold add constraint hold_cluster_namespace_name_key unique using index hold_cluster_namespace_name_key;
alter table slotkeeper.hold add constraint hold_check check (name is null or namespace is not null) not valid;
comment on table slotkeeper.hold is
  'Who holds what (a schedule; without a name a namespace; without a namespace a cluster''s everything), why and until when.
Acts like suspend.';

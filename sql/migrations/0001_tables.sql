-- The tables of slotkeeper, complete in shape. Why they look so: docs/database.md.
--
-- Small enumerations are stored as smallint, named once here:
--   run.state      0 ready, 1 running, 2 cancelling
--   run.trigger    0 Schedule, 1 CatchUp, 2 Backfill, 3 Manual, 4 Requeue, 5 Enqueue
--   run_done.outcome    0 done, 1 superseded, 2 cancelled
--   slot_skip.outcome   1 superseded, 3 skipped
--   state_delta.outcome 0 done, 1 superseded, 2 cancelled, 3 skipped, 4 dead, 5 recount (requeue, purge),
--                       6 an attempt that failed and will be repeated
--   owner.kind     0 a schedule's slots, 1 one manual trigger, 2 one re-run of a slot

create table slotkeeper.cluster (
  name     text primary key,
  identity text not null,
  bound_at timestamptz not null default clock_timestamp()
);
comment on table slotkeeper.cluster is 'Cluster name to the identity (UID of namespace kube-system) bound at first contact.';

create table slotkeeper.lane (
  id               integer generated always as identity primary key,
  namespace        text not null,
  queue            text not null,
  priority         smallint not null check (priority between -2 and 2),
  straggler_run_at timestamptz,
  straggler_id     bigint,
  noted_at         timestamptz not null default '-infinity',
  unique (namespace, queue, priority)
);
comment on table slotkeeper.lane is
  '(namespace, queue, priority) to a small id. The straggler columns are the keeper''s note of the lowest ready row.';

create table slotkeeper.schedule (
  id                bigint generated always as identity primary key,
  cluster           text not null,
  namespace         text not null,
  name              text not null,
  uid               text not null,
  generation        bigint not null,
  resource_version  text not null default '',
  version           integer not null default 1,
  owner             bigint not null unique,
  watermark         timestamptz not null,
  watermark_highest timestamptz not null,
  next_slot         timestamptz,
  next_due          timestamptz,
  suspended         boolean not null default false,
  held              boolean not null default false,
  unwatched         boolean not null default false,
  trigger_key       text,
  created_at        timestamptz not null default clock_timestamp(),
  timing_since      timestamptz not null default clock_timestamp(),
  retired_at        timestamptz,
  unique (cluster, namespace, name)
) with (fillfactor = 70);
create index schedule_due on slotkeeper.schedule (next_due) where next_due is not null;
comment on table slotkeeper.schedule is 'One row per JobSchedule; a deleted one stays as a tombstone that keeps the watermark.';
comment on column slotkeeper.schedule.watermark is 'Slots up to this instant are decided. It never falls.';
comment on column slotkeeper.schedule.next_due is 'next_slot + spread offset; null while suspended, held, unwatched, retired or never firing.';
comment on column slotkeeper.schedule.timing_since is 'When the current timing was accepted, or the schedule last resumed.';

create table slotkeeper.schedule_version (
  schedule            bigint not null references slotkeeper.schedule (id),
  version             integer not null,
  generation          bigint not null,
  uid                 text not null,
  spec                jsonb not null,
  payload             text not null,
  spec_hash           text not null,
  action              text not null,
  lane                integer not null references slotkeeper.lane (id),
  overlap             smallint not null check (overlap between 0 and 3),
  catch_up            smallint not null check (catch_up between 0 and 2),
  max_runs            integer not null,
  late_reason         text,
  spread_seconds      integer not null,
  grace_seconds       integer not null,
  max_attempts        smallint not null,
  backoff_initial     integer not null,
  backoff_max         integer not null,
  attempt_deadline    bigint,
  active_deadline     bigint,
  accepted_at         timestamptz not null default clock_timestamp(),
  primary key (schedule, version)
);
comment on table slotkeeper.schedule_version is
  'What a schedule said, by our own version number, which never restarts. A run keeps the version that made it.';
comment on column slotkeeper.schedule_version.action is 'The task name, or command, http, job.';
comment on column slotkeeper.schedule_version.overlap is '0 Skip, 1 Queue, 2 Replace, 3 Allow.';
comment on column slotkeeper.schedule_version.catch_up is '0 RunOnce, 1 RunAll, 2 Skip.';
comment on column slotkeeper.schedule_version.late_reason is 'Why a row of this version past its start_by did not run.';

create table slotkeeper.owner (
  id       bigint generated always as identity primary key,
  schedule bigint not null,
  kind     smallint not null,
  label    text not null default ''
);
create index owner_schedule on slotkeeper.owner (schedule) where kind <> 0;
create unique index owner_manual on slotkeeper.owner (schedule, label) where kind = 1;
comment on table slotkeeper.owner is 'What run.owner names: a schedule''s slots, one manual trigger, one re-run.';

create table slotkeeper.schedule_state (
  schedule          bigint primary key,
  last_slot         timestamptz,
  last_success_slot timestamptz,
  last_success_at   timestamptz,
  last_failure_slot timestamptz,
  last_failure_at   timestamptz,
  consecutive_dead  integer not null default 0,
  dead              integer not null default 0,
  done_count        bigint not null default 0,
  dead_count        bigint not null default 0,
  skipped_count     bigint not null default 0,
  last_skip_slot    timestamptz,
  last_skip_reason  text,
  last_skip_at      timestamptz,
  missed            bigint not null default 0,
  success_due       timestamptz,
  due_since         timestamptz,
  due_version       integer
) with (fillfactor = 50);
comment on column slotkeeper.schedule_state.success_due is
  'By when it should have succeeded again, computed from due_since and due_version; stale when they have moved on.';
comment on table slotkeeper.schedule_state is 'Last outcomes and counters, folded from state_delta; never scanned from history.';

create table slotkeeper.state_delta (
  id      bigint generated always as identity,
  owner   bigint not null,
  outcome smallint not null,
  slot    timestamptz not null,
  at      timestamptz not null,
  slots   bigint not null default 1
);
create index state_delta_id on slotkeeper.state_delta (id);
comment on table slotkeeper.state_delta is 'Outcomes not yet folded into schedule_state.';

create sequence slotkeeper.run_id as bigint;

-- Column order: what stays first, what a claim or a return changes last, so that WAL compression of an
-- update's common prefix works. fillfactor 40 keeps every claim a HOT update (measured: 45 left 8 % not HOT).
create table slotkeeper.run (
  id               bigint not null default nextval('slotkeeper.run_id'),
  owner            bigint,
  slot             timestamptz,
  created_at       timestamptz not null default clock_timestamp(),
  run_at           timestamptz not null,
  start_by         timestamptz,
  version          integer,
  lane             integer not null,
  max_attempts     smallint not null,
  trigger          smallint not null,
  exclusive        boolean not null default false,
  behind           boolean not null default false,
  cancel           boolean not null default false,
  state            smallint not null default 0,
  attempt          integer not null default 0,
  charged          smallint not null default 0,
  lost             smallint not null default 0,
  returns          smallint not null default 0,
  worker           bigint,
  first_started_at timestamptz,
  token            uuid,
  task             text,
  cancel_reason    text,
  payload          text,
  constraint run_scheduled_or_ad_hoc check ((owner is null) = (task is not null)),
  constraint run_owner_has_slot check ((owner is null) = (slot is null)),
  constraint run_charged check (charged between 0 and max_attempts)
) with (fillfactor = 40, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_insert_scale_factor = 0.2);
create unique index run_key on slotkeeper.run (id);
create unique index run_slot on slotkeeper.run (owner, slot) where owner is not null;
create index run_ready on slotkeeper.run (lane, run_at, id) where not behind;
create unique index run_one_at_a_time on slotkeeper.run (owner) where exclusive and not behind;
create index run_behind on slotkeeper.run (owner, slot) where behind;
create index run_start_by on slotkeeper.run (start_by) where start_by is not null;
create index run_cancel on slotkeeper.run (id) where cancel;
comment on table slotkeeper.run is 'Live runs only. No index mentions a column that a claim changes: every claim is a HOT update.';
comment on column slotkeeper.run.behind is 'Waits until the one run of its owner that is not behind has left.';
comment on column slotkeeper.run.charged is 'Attempts that count against max_attempts; attempt itself rises at every claim.';
comment on column slotkeeper.run.returns is 'Returns that were not charged (snooze, infrastructure error); drains are exempt.';

create table slotkeeper.worker (
  id            bigint generated always as identity primary key,
  name          text not null,
  pool          text not null,
  namespaces    text[] not null,
  queues        text[] not null,
  concurrency   integer not null,
  version       text not null,
  protocol      smallint not null,
  login         text not null default session_user,
  lease_seconds integer not null check (lease_seconds between 1 and 3600),
  started_at    timestamptz not null default clock_timestamp(),
  beat_at       timestamptz not null default clock_timestamp(),
  lease_until   timestamptz not null
) with (fillfactor = 50);
comment on table slotkeeper.worker is 'One row per worker process; a beat moves lease_until. Logged: an unlogged lease table is empty after a crash.';

create table slotkeeper.claim_batch (
  token      uuid not null,
  lane       integer not null,
  worker     bigint not null,
  lo         timestamptz not null,
  hi         timestamptz not null,
  claimed_at timestamptz not null,
  primary key (token, lane)
);
create index claim_batch_worker on slotkeeper.claim_batch (worker);
comment on table slotkeeper.claim_batch is
  'One row per claim and lane, so that the reaper finds a worker''s runs through run_ready without an index on worker.';

create table slotkeeper.run_error (
  run     bigint not null,
  attempt integer not null,
  at      timestamptz not null default clock_timestamp(),
  worker  text,
  kind    text not null,
  message text not null,
  token   uuid
) partition by range (at);
create index run_error_run on slotkeeper.run_error (run);
comment on table slotkeeper.run_error is 'One row per failed attempt: kind is the class of the error, message its cleaned text,
token that of the claim that recorded it.';

create table slotkeeper.run_done (
  id               bigint not null,
  owner            bigint,
  slot             timestamptz,
  created_at       timestamptz not null,
  run_at           timestamptz not null,
  version          integer,
  lane             integer not null,
  max_attempts     smallint not null,
  trigger          smallint not null,
  outcome          smallint not null,
  attempt          integer not null,
  charged          smallint not null,
  worker           bigint,
  first_started_at timestamptz,
  token            uuid,
  finished_at      timestamptz not null default clock_timestamp(),
  reason           text,
  task             text,
  payload          text
) partition by range (finished_at);
create index run_done_slot on slotkeeper.run_done (owner, slot) where owner is not null;
create index run_done_id on slotkeeper.run_done (id) where owner is null;
comment on table slotkeeper.run_done is 'History: done, superseded, cancelled. Partitioned by day, dropped by partition.';

create table slotkeeper.run_dead (
  id               bigint primary key,
  owner            bigint,
  slot             timestamptz,
  created_at       timestamptz not null,
  run_at           timestamptz not null,
  version          integer,
  lane             integer not null,
  max_attempts     smallint not null,
  trigger          smallint not null,
  attempt          integer not null,
  charged          smallint not null,
  lost             smallint not null,
  worker           bigint,
  first_started_at timestamptz,
  token            uuid,
  died_at          timestamptz not null default clock_timestamp(),
  reason           text not null,
  task             text,
  payload          text
);
create unique index run_dead_slot on slotkeeper.run_dead (owner, slot) where owner is not null;
create index run_dead_died_at on slotkeeper.run_dead (died_at);
comment on table slotkeeper.run_dead is 'The dead-letter list, until requeued or purged.';

create table slotkeeper.slot_skip (
  schedule   bigint not null,
  first_slot timestamptz not null,
  last_slot  timestamptz not null,
  slots      bigint not null check (slots >= 1),
  outcome    smallint not null,
  reason     text not null,
  run        bigint,
  version    integer not null,
  at         timestamptz not null default clock_timestamp()
) partition by range (at);
create index slot_skip_slot on slotkeeper.slot_skip (schedule, first_slot);
comment on table slotkeeper.slot_skip is 'Slots that did not run, with the reason; a long stretch is one range row.';

create table slotkeeper.idempotency (
  namespace  text not null,
  key        text not null check (octet_length(key) between 1 and 255),
  run        bigint not null,
  created_at timestamptz not null default clock_timestamp(),
  primary key (namespace, key)
);
create index idempotency_run on slotkeeper.idempotency (run);
comment on table slotkeeper.idempotency is 'Ad-hoc keys. Held while the run is live or dead, and seven days after its end.';

create table slotkeeper.pool (
  namespace   text not null,
  name        text not null,
  queues      text[] not null,
  concurrency integer not null,
  declared_by text not null,
  primary key (namespace, name)
);
comment on table slotkeeper.pool is 'Worker pools, declared by the controller''s configuration or by the first worker that names one.';

create table slotkeeper.queue_grant (
  login     text not null,
  namespace text not null,
  queue     text not null,
  may_claim boolean not null default false,
  may_enqueue boolean not null default false,
  primary key (login, namespace, queue)
);
comment on table slotkeeper.queue_grant is
  'Which database login may claim or enqueue where; * stands for all. The default install grants everything to everyone.';
insert into slotkeeper.queue_grant (login, namespace, queue, may_claim, may_enqueue) values ('*', '*', '*', true, true);

create table slotkeeper.hold (
  id         bigint generated always as identity primary key,
  cluster    text,
  namespace  text,
  name       text,
  held_by    text not null,
  reason     text not null,
  held_at    timestamptz not null default clock_timestamp(),
  held_until timestamptz
);
comment on table slotkeeper.hold is 'Who holds what (a schedule, a namespace, everything), why and until when. Acts like suspend.';

-- One row: what every process obeys, and what is done once per database.
create table slotkeeper.fleet (
  one_row             boolean primary key default true check (one_row),
  postmaster_start    timestamptz not null default pg_postmaster_start_time(),
  timeline            text not null default '',
  reap_paused_until   timestamptz not null default 'epoch',
  reap_pause_reason   text not null default '',
  tick_paused_until   timestamptz not null default 'epoch',
  swept_at            timestamptz not null default 'epoch',
  sweep_seconds       double precision not null default 0,
  orphans_at          timestamptz not null default 'epoch',
  orphans_seconds     double precision not null default 0,
  partitions_until    date not null default 'epoch',
  retention_at        timestamptz not null default 'epoch',
  done_days           integer not null default 30 check (done_days between 1 and 400),
  dead_days           integer not null default 90 check (dead_days between 1 and 400)
);
insert into slotkeeper.fleet default values;
comment on table slotkeeper.fleet is 'One row: the pause of reaping that every process obeys, the clock of the sweeps, and retention.';

-- A row must never be refused because its partition was not made in time; the default partitions stay empty.
create table slotkeeper.run_done_default partition of slotkeeper.run_done default;
create table slotkeeper.run_error_default partition of slotkeeper.run_error default;
create table slotkeeper.slot_skip_default partition of slotkeeper.slot_skip default;

create type slotkeeper.planned_run as (
  slot     timestamptz,
  run_at   timestamptz,
  start_by timestamptz,
  trigger  smallint,
  exempt   boolean
);
comment on type slotkeeper.planned_run is
  'A run that the ticker plans; exempt: its due time is still to come, so that overlap and superseding do not touch it.';

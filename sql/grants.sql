-- Who may call what. Runs last at every `slotkeeper migrate`, as slotkeeper_owner; every statement may be repeated.
-- Functions run with their owner's rights; nobody but the owner touches a table. EXECUTE is taken from PUBLIC first.
revoke all on all functions in schema slotkeeper from public;
revoke all on all tables in schema slotkeeper from public;
grant usage on schema slotkeeper
  to slotkeeper_controller, slotkeeper_worker, slotkeeper_enqueuer, slotkeeper_reader, slotkeeper_operator;

grant execute on function
  slotkeeper.bind_cluster_v1, slotkeeper.lock_schedules_v1, slotkeeper.store_schedule_v1, slotkeeper.suspend_schedule_v1,
  slotkeeper.retire_schedule_v1, slotkeeper.unwatch_schedule_v1, slotkeeper.trigger_v1, slotkeeper.schedules_v1,
  slotkeeper.versions_v1, slotkeeper.due_v1, slotkeeper.next_due_v1, slotkeeper.materialise_v1, slotkeeper.reap_v1,
  slotkeeper.fold_v1, slotkeeper.sweep_v1, slotkeeper.stale_success_due_v1, slotkeeper.store_success_due_v1, slotkeeper.ensure_partitions_v1, slotkeeper.retain_v1
  to slotkeeper_controller;
grant select on slotkeeper.job, slotkeeper.health to slotkeeper_controller;

grant execute on function
  slotkeeper.register_worker_v1, slotkeeper.lanes_v1, slotkeeper.beat_v1, slotkeeper.leave_v1, slotkeeper.work_v1,
  slotkeeper.finish_v1, slotkeeper.complete_v1, slotkeeper.reap_v1, slotkeeper.versions_v1, slotkeeper.enqueue_v1
  to slotkeeper_worker;

-- complete_v1 needs the run's token, which only its worker knows.
grant execute on function slotkeeper.enqueue_v1, slotkeeper.complete_v1 to slotkeeper_enqueuer;
grant select on slotkeeper.job, slotkeeper.health to slotkeeper_reader;

grant execute on function slotkeeper.cancel_v1, slotkeeper.requeue_v1, slotkeeper.trigger_v1 to slotkeeper_operator;
grant select on slotkeeper.job, slotkeeper.health to slotkeeper_operator;

-- Who may call what. Runs last at every `slotkeeper migrate`, as slotkeeper_owner; every statement may be repeated.
-- Functions run with their owner's rights; nobody but the owner touches a table. EXECUTE is taken from PUBLIC first.
revoke all on all functions in schema slotkeeper from public;
revoke all on all tables in schema slotkeeper from public;
grant usage on schema slotkeeper
  to slotkeeper_controller, slotkeeper_worker, slotkeeper_enqueuer, slotkeeper_reader, slotkeeper_operator;

grant execute on function
  slotkeeper.bind_cluster_v1, slotkeeper.lock_schedules_v1, slotkeeper.store_schedule_v1, slotkeeper.suspend_schedule_v1,
  slotkeeper.retire_schedule_v1, slotkeeper.unwatch_schedule_v1, slotkeeper.trigger_v1, slotkeeper.schedules_v1,
  slotkeeper.versions_v1, slotkeeper.due_v1, slotkeeper.upcoming_v1, slotkeeper.next_due_v1, slotkeeper.materialise_v1, slotkeeper.reap_v1,
  slotkeeper.fold_v1, slotkeeper.sweep_v1, slotkeeper.stale_success_due_v1, slotkeeper.store_success_due_v1, slotkeeper.ensure_partitions_v1, slotkeeper.retain_v1,
  slotkeeper.stale_success_due_v2, slotkeeper.drop_history_v1, slotkeeper.retain_v2
  to slotkeeper_controller;
grant execute on function slotkeeper.reap_v2 to slotkeeper_controller, slotkeeper_worker;
grant execute on function slotkeeper.unserved_queues_v1, slotkeeper.served_queues_v1 to slotkeeper_controller;
grant execute on function
  slotkeeper.note_zone_rules_v1, slotkeeper.zone_rules_v1, slotkeeper.zoned_schedules_v1, slotkeeper.correct_next_slots_v1
  to slotkeeper_controller;
grant execute on function slotkeeper.pools_v1, slotkeeper.declare_pool_v1 to slotkeeper_controller;
grant select on slotkeeper.job, slotkeeper.health to slotkeeper_controller;
grant execute on function
  slotkeeper.schema_version_v1, slotkeeper.queues_v1, slotkeeper.vital_signs_v1, slotkeeper.schedule_totals_v1
  to slotkeeper_controller;
grant execute on function
  slotkeeper.web_schedules_v1, slotkeeper.web_schedule_v1, slotkeeper.web_schedule_counts_v1, slotkeeper.web_live_v1,
  slotkeeper.web_live_until_v1, slotkeeper.web_ended_v1, slotkeeper.web_ended_count_v1, slotkeeper.web_runs_v1,
  slotkeeper.web_runs_count_v1, slotkeeper.web_slots_v1, slotkeeper.web_queues_v1, slotkeeper.web_workers_v1,
  slotkeeper.web_first_slot_v1, slotkeeper.web_kept_since_v1
  to slotkeeper_controller;

grant execute on function
  slotkeeper.register_worker_v1, slotkeeper.lanes_v1, slotkeeper.beat_v1, slotkeeper.leave_v1, slotkeeper.work_v1,
  slotkeeper.finish_v1, slotkeeper.complete_v1, slotkeeper.reap_v1, slotkeeper.versions_v1, slotkeeper.enqueue_v1
  to slotkeeper_worker;

grant execute on function slotkeeper.schema_version_v1, slotkeeper.own_queues_v1 to slotkeeper_worker;

-- complete_v1 needs the run's token, which only its worker knows.
grant execute on function slotkeeper.enqueue_v1, slotkeeper.complete_v1 to slotkeeper_enqueuer;
grant select on slotkeeper.job, slotkeeper.health to slotkeeper_reader;
-- `slotkeeper external-metrics` needs no more than this.
grant execute on function slotkeeper.pools_v1 to slotkeeper_reader;

grant execute on function slotkeeper.cancel_v1, slotkeeper.requeue_v1, slotkeeper.trigger_v1 to slotkeeper_operator;
-- A hold decides what was due before it, as an edit does.
grant execute on function
  slotkeeper.add_hold_v1, slotkeeper.remove_hold_v1, slotkeeper.holds_v1, slotkeeper.holds_outstanding_v1,
  slotkeeper.schedules_v1, slotkeeper.versions_v1, slotkeeper.materialise_v1
  to slotkeeper_operator;
grant execute on function slotkeeper.release_held_v1, slotkeeper.lock_unheld_v1, slotkeeper.mark_held_v1
  to slotkeeper_operator, slotkeeper_controller;
grant execute on function slotkeeper.pools_v1 to slotkeeper_operator;
grant select on slotkeeper.job, slotkeeper.health to slotkeeper_operator;

-- The group roles (NOLOGIN) and the schema. Runs first at every `slotkeeper migrate`, as the login that
-- migrates; every statement may be repeated. Everything after it runs as slotkeeper_owner.
--
--   slotkeeper_owner       owns the schema; `migrate` takes this role
--   slotkeeper_controller  operator, ticker, keeper
--   slotkeeper_worker      workers: claim, beat, finish, reap
--   slotkeeper_enqueuer    applications that enqueue in their own transactions
--   slotkeeper_reader      the public views `job` and `health`
--   slotkeeper_operator    people: requeue, cancel, trigger, hold
do $$
declare
  role_name text;
begin
  foreach role_name in array array['slotkeeper_owner', 'slotkeeper_controller', 'slotkeeper_worker',
                                   'slotkeeper_enqueuer', 'slotkeeper_reader', 'slotkeeper_operator'] loop
    begin
      if not exists (select from pg_catalog.pg_roles where rolname = role_name) then
        execute pg_catalog.format('create role %I nologin', role_name);
      end if;
    exception when duplicate_object or unique_violation then
      null;  -- another database of this server is being migrated at this moment: roles are shared
    end;
  end loop;
  if not pg_catalog.pg_has_role(current_user, 'slotkeeper_owner', 'member') then
    execute pg_catalog.format('grant slotkeeper_owner to %I', current_user);
  end if;
end $$;

create schema if not exists slotkeeper authorization slotkeeper_owner;

-- name: scaling.pools
-- Per pool how many workers it wants, and why.
select * from slotkeeper.pools_v1(
  %(horizon_seconds)s::double precision, %(drain_seconds)s::double precision, %(most_workers)s::integer);

-- name: scaling.declare_pool
-- A pool of the configuration, which no worker changes.
select slotkeeper.declare_pool_v1(
  %(namespace)s::text, %(name)s::text, %(namespaces)s::text[], %(queues)s::text[], %(concurrency)s::integer);

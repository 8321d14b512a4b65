-- name: session.statement_timeout
-- Ends the statements of this transaction that take longer.
select set_config('statement_timeout', %(milliseconds)s::text, true);

-- name: worker.listen
-- Hints that there may be something to claim; polling finds it without them.
listen slotkeeper_wake;

-- name: zones.note_rules
-- Keeps what a release of the tz database says of a zone, once.
select slotkeeper.note_zone_rules_v1(%(zone)s::text, %(version)s::text, %(since)s::timestamptz, %(until)s::timestamptz,
                                     %(instants)s::timestamptz[], %(offset_minutes)s::integer[]);

-- name: zones.rules
-- What a release said of a zone, if that was kept.
select * from slotkeeper.zone_rules_v1(%(zone)s::text, %(version)s::text);

-- name: zones.schedules
-- The next schedules by id, and whether their next slot depends on the rules of a zone.
select * from slotkeeper.zoned_schedules_v1(%(after)s::bigint, %(limit)s::integer);

-- name: zones.correct
-- Another next slot for schedules that have not moved since they were read; how many that were.
select slotkeeper.correct_next_slots_v1(%(ids)s::bigint[], %(versions)s::integer[], %(watermarks)s::timestamptz[],
                                        %(next_slots)s::timestamptz[], %(next_dues)s::timestamptz[]) as corrected;

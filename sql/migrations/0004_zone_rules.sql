-- 0004_zone_rules.sql: what each release of the tz database said of the zones in use, so that the next one can be compared.
create table slotkeeper.zone_rules (
  zone           text not null,
  version        text not null,
  since          timestamptz not null,
  until          timestamptz not null,
  instants       timestamptz[] not null,
  offset_minutes integer[] not null,
  primary key (zone, version)
);
comment on table slotkeeper.zone_rules is
  'Offsets of a zone in [since, until) by one release of the tz database: offset_minutes[k] holds from instants[k] on.';

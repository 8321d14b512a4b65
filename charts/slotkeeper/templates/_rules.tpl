{{/*
The groups of rules. job="…" tells this release's pods from another's in the same Prometheus. Every replica of the controller,
and every worker, reports the same figures of the database: hence max by.
*/}}
{{- define "slotkeeper.ruleGroups" -}}
{{- $rule := .Values.prometheusRule }}
{{- $controllerJob := $rule.controllerJob | default (printf "%s/%s-controller" (include "slotkeeper.namespace" .) (include "slotkeeper.fullname" .)) }}
{{- $workerJob := $rule.workerJob | default (printf "%s/%s-worker" (include "slotkeeper.namespace" .) (include "slotkeeper.fullname" .)) }}
{{- if .Values.metrics.serviceMonitor.enabled }}
{{- $controllerJob = $rule.controllerJob | default (printf "%s-controller" (include "slotkeeper.fullname" .)) }}
{{- $workerJob = $rule.workerJob | default (printf "%s-worker" (include "slotkeeper.fullname" .)) }}
{{- end }}
{{- $controller := printf "job=%q" $controllerJob }}
{{- $all := printf "job=~%q" (printf "%s|%s" $controllerJob $workerJob) }}
{{- $group := printf "%s.%s" (include "slotkeeper.namespace" .) (include "slotkeeper.fullname" .) }}
{{- $schedule := "{{ $labels.namespace }}/{{ $labels.schedule }}" }}
{{- $queue := "{{ $labels.namespace }}/{{ $labels.queue }}" }}
{{- $threshold := dict }}
{{- range $name, $alert := $rule.alerts }}
{{- $_ := set $threshold $name (get $alert "threshold") }}
{{- end }}
{{- if .Values.controller.enabled }}
{{- if gt (int .Values.metrics.maxScheduleSeries) 0 }}
- name: {{ $group }}.schedules
  rules:
    # The current instant; or, while no controller is scraped, the last one of an hour: a dead controller must not silence an
    # alert, and while one lives, a deleted, suspended or held schedule must not be remembered.
    - record: slotkeeper:schedule_success_due:timestamp_seconds
      expr: |-
        {{- include "slotkeeper.lastKnown" (dict "metric" "slotkeeper_schedule_success_due_timestamp_seconds" "job" $controller) | nindent 8 }}
    - record: slotkeeper:schedule_last_success:timestamp_seconds
      expr: |-
        {{- include "slotkeeper.lastKnown" (dict "metric" "slotkeeper_schedule_last_success_timestamp_seconds" "job" $controller) | nindent 8 }}
    - record: slotkeeper:schedule_created:timestamp_seconds
      expr: |-
        {{- include "slotkeeper.lastKnown" (dict "metric" "slotkeeper_schedule_created_timestamp_seconds" "job" $controller) | nindent 8 }}
    # Since the creation, while there was no success since.
    - record: slotkeeper:schedule_since_last_success:seconds
      expr: |-
        time() - (
          slotkeeper:schedule_last_success:timestamp_seconds{ {{- $controller -}} } >= slotkeeper:schedule_created:timestamp_seconds{ {{- $controller -}} }
          or slotkeeper:schedule_created:timestamp_seconds{ {{- $controller -}} }
        )
    {{- include "slotkeeper.alert" (dict "rule" $rule "name" "SlotkeeperScheduleOverdue"
        "expr" (printf "(time() - slotkeeper:schedule_success_due:timestamp_seconds{%s} > 0)\nand on (namespace, schedule) slotkeeper:schedule_last_success:timestamp_seconds{%s}" $controller $controller)
        "summary" (printf "The schedule %s has not succeeded in time" $schedule)
        "description" (printf "A success of %s has been overdue for {{ $value | humanizeDuration }}: since the last one a second slot and its grace have passed, or maxSuccessAgeSeconds." $schedule)) | nindent 4 }}
    {{- include "slotkeeper.alert" (dict "rule" $rule "name" "SlotkeeperScheduleNeverSucceeded"
        "expr" (printf "(time() - slotkeeper:schedule_success_due:timestamp_seconds{%s} > 0)\nunless on (namespace, schedule) slotkeeper:schedule_last_success:timestamp_seconds{%s}" $controller $controller)
        "summary" (printf "The schedule %s has never succeeded" $schedule)
        "description" (printf "The first success of %s has been overdue for {{ $value | humanizeDuration }}." $schedule)) | nindent 4 }}
    {{- include "slotkeeper.alert" (dict "rule" $rule "name" "SlotkeeperSlotsMissed"
        "expr" (printf "max by (namespace, schedule) (slotkeeper_schedule_missed_slots{%s}) > %v" $controller $threshold.SlotkeeperSlotsMissed)
        "summary" (printf "Slots of the schedule %s do not run" $schedule)
        "description" (printf "{{ $value }} slots of %s were skipped or superseded since its last success." $schedule)) | nindent 4 }}
{{- end }}
{{- include "slotkeeper.ruleGroup" (list (printf "%s.controller" $group)
    (include "slotkeeper.alert" (dict "rule" $rule "name" "SlotkeeperControllerSilent"
        "expr" (printf "absent(slotkeeper_build_info{%s})" $controller)
        "summary" "No slotkeeper controller answers Prometheus"
        "description" "Slots may not become runs, and no alert about a schedule can be trusted for longer than an hour."))
    (include "slotkeeper.alert" (dict "rule" $rule "name" "SlotkeeperTickerBehind"
        "expr" (printf "max by (job) (slotkeeper_ticker_lag_seconds{%s}) > %v" $controller $threshold.SlotkeeperTickerBehind)
        "summary" "Slots become runs too late"
        "description" "A slot has been due for {{ $value | humanizeDuration }} and is not a run yet."))) }}
{{- end }}
{{- /*
What a counter began with counts too: a process that first tells of a queue and pool with the event has no increase. But not
what it had when this Prometheus, or scraping, began.
*/}}
{{- $expired := printf "slotkeeper_lease_expirations_total{%s}" $all }}
{{- $dead := printf "slotkeeper_queue_runs{%s,state=\"dead\"}" $all }}
{{- /*
More than the least of the last hour, by the same job's count: workers stop counting earlier than controllers. A queue that no
job knew in the hour before that had none; a range, because a gap in scraping is no queue unknown.
*/}}
{{- include "slotkeeper.ruleGroup" (list (printf "%s.queues" $group)
    (include "slotkeeper.alert" (dict "rule" $rule "name" "SlotkeeperRunsDead"
        "expr" (printf "max by (namespace, queue) (\n  max by (job, namespace, queue) (%s)\n  - on (job, namespace, queue) (\n    min by (job, namespace, queue) (min_over_time(%s[1h])) and on (namespace, queue) max_over_time(%s[1h] offset 1h)\n    or max by (job, namespace, queue) (0 * %s)\n  )\n) > %v" $dead $dead $dead $dead $threshold.SlotkeeperRunsDead)
        "summary" (printf "Runs of the queue %s have died" $queue)
        "description" (printf "{{ $value }} runs of %s have used up their attempts, or failed for good, within the last hour." $queue)))
    (include "slotkeeper.alert" (dict "rule" $rule "name" "SlotkeeperQueueLagging"
        "expr" (printf "max by (namespace, queue) (slotkeeper_queue_oldest_ready_age_seconds{%s}) > %v" $all $threshold.SlotkeeperQueueLagging)
        "summary" (printf "Runs of the queue %s wait too long" $queue)
        "description" (printf "The oldest run of %s that could start has waited {{ $value | humanizeDuration }}." $queue)))
    (include "slotkeeper.alert" (dict "rule" $rule "name" "SlotkeeperLeasesExpired"
        "expr" (printf "sum by (namespace, queue, pool) (\n  (max_over_time(%s[10m]) unless max_over_time(%s[1h] offset 10m))\n    and on (job) max_over_time(slotkeeper_build_info{%s}[1h] offset 10m)\n  or increase(%s[10m])\n) > %v" $expired $expired $all $expired $threshold.SlotkeeperLeasesExpired)
        "summary" (printf "Workers lose runs of the queue %s" $queue)
        "description" (printf "In ten minutes about {{ $value | humanize }} runs of %s were taken from workers of the pool {{ $labels.pool }} that gave no sign of life." $queue)))
    (include "slotkeeper.alert" (dict "rule" $rule "name" "SlotkeeperDatabaseUnreachable"
        "expr" (printf "count by (job) (min by (job, instance) (slotkeeper_database_up{%s}) == 0)" $all)
        "summary" "slotkeeper does not reach its database"
        "description" "{{ $value }} pods of {{ $labels.job }} do not reach Postgres."))) }}
{{- end }}

{{/* Of a list, the group's name and then rules, some of them empty: a group, if any rule is left. */}}
{{- define "slotkeeper.ruleGroup" -}}
{{- with rest . | join "" | trim }}
- name: {{ first $ }}
  rules:
    {{- . | nindent 4 }}
{{- end }}
{{- end }}

{{/* Of (metric, job). */}}
{{- define "slotkeeper.lastKnown" -}}
max by (job, namespace, schedule) ({{ .metric }}{ {{- .job -}} })
or max by (job, namespace, schedule) (last_over_time({{ .metric }}{ {{- .job -}} }[1h]))
   and on () absent(slotkeeper_schedules_left_out{ {{- .job -}} })
{{- end }}

{{/* Of (rule, name, expr, summary, description): an alert as its values want it. */}}
{{- define "slotkeeper.alert" -}}
{{- $alert := get .rule.alerts .name }}
{{- if $alert.enabled }}

- alert: {{ .name }}
  expr: |-
    {{- .expr | nindent 4 }}
  for: {{ get $alert "for" }}
  labels:
    severity: {{ $alert.severity }}
    {{- with .rule.alertLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    summary: {{ .summary | squote }}
    description: {{ .description | squote }}
    {{- if .rule.runbookBase }}
    runbook_url: {{ printf "%s/%s.md" (trimSuffix "/" .rule.runbookBase) .name }}
    {{- else }}
    runbook: docs/runbooks/{{ .name }}.md
    {{- end }}
{{- end }}
{{- end }}

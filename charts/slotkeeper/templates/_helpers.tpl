{{/*
A value that is null counts as its default, whatever Helm makes of it; 0, false and empty count as they are. First in every file of
objects: who renders first mends the values for all. In maps that are Kubernetes' own, one key may be taken away by a null.
*/}}
{{- define "slotkeeper.defaults" -}}
{{- include "slotkeeper.fill" (dict "values" .Values "defaults" (.Files.Get "files/defaults.yaml" | fromYaml)) }}
{{- end }}

{{/* Of (values, defaults). */}}
{{- define "slotkeeper.fill" -}}
{{- range $name, $default := .defaults }}
{{- if not (hasKey $.values $name) }}
{{- $_ := set $.values $name $default }}
{{- else if kindIs "invalid" (get $.values $name) }}
{{- $_ := set $.values $name $default }}
{{- else if and (kindIs "map" $default) (kindIs "map" (get $.values $name)) }}
{{- if not (has $name (list "podSecurityContext" "securityContext" "livenessProbe" "readinessProbe" "startupProbe" "behavior" "labels")) }}
{{- include "slotkeeper.fill" (dict "values" (get $.values $name) "defaults" $default) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where the objects are. */}}
{{- define "slotkeeper.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{- define "slotkeeper.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* The release's name, with the chart's unless it is in it. 40 characters leave room for -worker and a pool's name. */}}
{{- define "slotkeeper.fullname" -}}
{{- $name := include "slotkeeper.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Never changes: a Deployment's selector is immutable. */}}
{{- define "slotkeeper.selectorLabels" -}}
app.kubernetes.io/name: {{ include "slotkeeper.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "slotkeeper.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "slotkeeper.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Of (root, image): the image of a pool where it names one, else the chart's. */}}
{{- define "slotkeeper.image" -}}
{{- $image := mergeOverwrite (deepCopy .root.Values.image) (.image | default dict) }}
{{- $tag := $image.tag | default .root.Chart.AppVersion -}}
image: {{ printf "%s%s%s" $image.repository (ternary "@" ":" (hasPrefix "sha256:" $tag)) $tag }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end }}

{{- define "slotkeeper.controllerServiceAccount" -}}
{{- if .Values.controller.serviceAccount.create }}
{{- .Values.controller.serviceAccount.name | default (printf "%s-controller" (include "slotkeeper.fullname" .)) }}
{{- else }}
{{- .Values.controller.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "slotkeeper.workerServiceAccount" -}}
{{- if .Values.workers.serviceAccount.create }}
{{- .Values.workers.serviceAccount.name | default (printf "%s-worker" (include "slotkeeper.fullname" .)) }}
{{- else }}
{{- .Values.workers.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{/* Refuses contradictions and gaps with a sentence that names the value. */}}
{{- define "slotkeeper.checkDatabase" -}}
{{- $database := .Values.database }}
{{- if and $database.existingSecret (or $database.dsn $database.directDsn $database.password) }}
{{- fail "database.existingSecret is set beside database.dsn, directDsn or password: keep one of them" }}
{{- end }}
{{- if and $database.host (or $database.dsn $database.directDsn $database.directDsnKey) }}
{{- fail "database.host is set beside database.dsn, directDsn or directDsnKey: give the DSN whole or in parts" }}
{{- end }}
{{- if and .Values.trialPostgres.enabled (or $database.existingSecret $database.dsn $database.host) }}
{{- fail "trialPostgres.enabled is set beside database.existingSecret, dsn or host: keep one of them" }}
{{- end }}
{{- if and .Values.migrations.existingSecret .Values.migrations.dsn }}
{{- fail "migrations.existingSecret and migrations.dsn are both set: keep one of them" }}
{{- end }}
{{- if and .Values.migrations.user (not $database.host) }}
{{- fail "migrations.user is set without database.host: name the server there, or give the whole DSN" }}
{{- end }}
{{- if and .Values.trialPostgres.enabled (eq .Values.migrations.mode "hook") }}
{{- fail "migrations.mode is hook, which runs before trialPostgres is there: set it to job" }}
{{- end }}
{{- if and .Values.controller.enabled (not (include "slotkeeper.hasDatabase" .)) }}
{{- fail "no database: set database.existingSecret to a Secret whose key database.dsnKey holds a DSN, or database.host, or database.dsn" }}
{{- end }}
{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.serviceMonitor.enabled }}
{{- fail "metrics.podMonitor.enabled and metrics.serviceMonitor.enabled are both set: every pod would be scraped twice" }}
{{- end }}
{{- end }}

{{- define "slotkeeper.hasDatabase" -}}
{{- if or .Values.database.existingSecret .Values.database.dsn .Values.database.host .Values.trialPostgres.enabled }}yes{{ end }}
{{- end }}

{{- define "slotkeeper.trialPostgres" -}}
{{ include "slotkeeper.fullname" . }}-trial-postgres
{{- end }}

{{- define "slotkeeper.migrationsMode" -}}
{{- .Values.migrations.mode | default (ternary "job" "hook" .Values.trialPostgres.enabled) }}
{{- end }}

{{/*
Of (root, own, made): where a component finds Postgres, as YAML. own: existingSecret, dsnKey, user, passwordKey and dsn of
the component's values, may be empty. made: the Secret that holds what stands in the values.
*/}}
{{- define "slotkeeper.database" -}}
{{- $database := .root.Values.database }}
{{- $own := .own }}
{{- $found := dict }}
{{- if and $own.existingSecret $own.user }}
{{- $found = dict "user" $own.user "passwordSecret" $own.existingSecret "passwordKey" $own.passwordKey }}
{{- else if $own.existingSecret }}
{{- $found = dict "secret" $own.existingSecret "key" $own.dsnKey }}
{{- else if $own.dsn }}
{{- $found = dict "secret" .made "key" "dsn" }}
{{- else if .root.Values.trialPostgres.enabled }}
{{- $found = dict "user" "slotkeeper" "passwordSecret" (include "slotkeeper.trialPostgres" .root) "passwordKey" "password" }}
{{- else if $database.host }}
{{- $found = dict "user" ($own.user | default $database.user) }}
{{- if $database.existingSecret }}
{{- $_ := set $found "passwordSecret" $database.existingSecret }}
{{- $_ := set $found "passwordKey" $database.passwordKey }}
{{- else if $database.password }}
{{- $_ := set $found "passwordSecret" .made }}
{{- $_ := set $found "passwordKey" "password" }}
{{- end }}
{{- else if $database.existingSecret }}
{{- $found = dict "secret" $database.existingSecret "key" $database.dsnKey "directKey" $database.directDsnKey }}
{{- else }}
{{- $found = dict "secret" .made "key" "dsn" "directKey" (ternary "direct-dsn" "" (not (empty $database.directDsn))) }}
{{- end }}
{{- toYaml $found }}
{{- end }}

{{/* A value of a libpq keyword string, and of a variable in which Kubernetes expands $(NAME). */}}
{{- define "slotkeeper.keyword" -}}
'{{ . | replace "\\" "\\\\" | replace "'" "\\'" | replace "$(" "$$(" }}'
{{- end }}

{{/* Of (root, found, direct): the keyword string without its password, which libpq finds in PGPASSWORD. */}}
{{- define "slotkeeper.keywords" -}}
{{- $database := .root.Values.database }}
{{- $host := $database.host }}
{{- $port := $database.port }}
{{- $name := $database.name }}
{{- if .root.Values.trialPostgres.enabled }}
{{- $host = include "slotkeeper.trialPostgres" .root | trim }}
{{- $port = 5432 }}
{{- $name = "slotkeeper" }}
{{- else if and .direct $database.directHost }}
{{- $host = $database.directHost }}
{{- $port = $database.directPort }}
{{- end -}}
host={{ include "slotkeeper.keyword" $host }} port={{ $port }} dbname={{ include "slotkeeper.keyword" $name }} user={{ include "slotkeeper.keyword" .found.user }}
{{- with $database.sslMode }} sslmode={{ . }}{{ end }}
{{- if $database.caSecret }} sslrootcert={{ include "slotkeeper.keyword" (printf "/etc/slotkeeper/database-ca/%s" $database.caKey) }}{{ end }}
{{- end }}

{{/* Of (root, own, made, direct): the variables. direct: "" pooled only, "also" with the way to the server, "only" that. */}}
{{- define "slotkeeper.databaseVariables" -}}
{{- $found := include "slotkeeper.database" . | fromYaml }}
{{- $database := .root.Values.database }}
{{- if $found.user }}
- {name: SLOTKEEPER_DSN, value: {{ include "slotkeeper.keywords" (dict "root" .root "found" $found "direct" (eq .direct "only")) | quote }}}
{{- if and (eq .direct "also") $database.directHost }}
- {name: SLOTKEEPER_DIRECT_DSN, value: {{ include "slotkeeper.keywords" (dict "root" .root "found" $found "direct" true) | quote }}}
{{- end }}
{{- if $found.passwordSecret }}
{{ include "slotkeeper.secretVariable" (dict "name" "PGPASSWORD" "secret" $found.passwordSecret "key" $found.passwordKey) }}
{{- end }}
{{- else }}
{{- $key := $found.key }}
{{- if and (eq .direct "only") $found.directKey }}
{{- $key = $found.directKey }}
{{- end }}
{{ include "slotkeeper.secretVariable" (dict "name" "SLOTKEEPER_DSN" "secret" $found.secret "key" $key) }}
{{- if and (eq .direct "also") $found.directKey }}
{{ include "slotkeeper.secretVariable" (dict "name" "SLOTKEEPER_DIRECT_DSN" "secret" $found.secret "key" $found.directKey) }}
{{- end }}
{{- end }}
{{- end }}

{{/* What stands in the values and belongs into a Secret, as YAML. */}}
{{- define "slotkeeper.databaseData" -}}
{{- $database := .Values.database }}
{{- if $database.dsn }}
dsn: {{ $database.dsn | quote }}
{{- with $database.directDsn }}
direct-dsn: {{ . | quote }}
{{- end }}
{{- else if and $database.host $database.password }}
password: {{ $database.password | quote }}
{{- end }}
{{- end }}

{{- define "slotkeeper.databaseSecret" -}}
{{ include "slotkeeper.fullname" . }}-database
{{- end }}

{{- define "slotkeeper.databaseCaMount" -}}
{{- if .Values.database.caSecret }}
- {name: database-ca, mountPath: /etc/slotkeeper/database-ca, readOnly: true}
{{- end }}
{{- end }}

{{- define "slotkeeper.databaseCaVolume" -}}
{{- with .Values.database.caSecret }}
- {name: database-ca, secret: {secretName: {{ . }}}}
{{- end }}
{{- end }}

{{/* Of (name, secret, key): one variable from a Secret. */}}
{{- define "slotkeeper.secretVariable" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef: {name: {{ .secret }}, key: {{ .key }}}
{{- end }}

{{/* Of (probe, path): a probe of the values with what it asks. */}}
{{- define "slotkeeper.probe" -}}
{{- toYaml (merge (dict "httpGet" (dict "path" .path "port" "http")) .probe) }}
{{- end }}

{{/* Of (component's values, its selector as YAML): the spread over nodes and zones, then constraints of the values. */}}
{{- define "slotkeeper.spread" -}}
{{- $constraints := list }}
{{- $labels := .labels | fromYaml }}
{{- range .values.spreadOver }}
{{- $constraints = append $constraints (dict "maxSkew" 1 "topologyKey" . "whenUnsatisfiable" "ScheduleAnyway"
    "labelSelector" (dict "matchLabels" $labels) "matchLabelKeys" (list "pod-template-hash")) }}
{{- end }}
{{- with concat $constraints .values.topologySpreadConstraints }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* Of (budget, name, labels as YAML, root). */}}
{{- define "slotkeeper.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ include "slotkeeper.namespace" .root }}
  labels: {{- include "slotkeeper.labels" .root | nindent 4 }}
spec:
  maxUnavailable: {{ .budget.maxUnavailable }}
  # Pods that are not ready hold up nobody's drain.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- .labels | nindent 6 }}
{{- end }}

{{- define "slotkeeper.aggregateClusterRoles" -}}
{{- $given := .Values.rbac.aggregateClusterRoles }}
{{- if ternary (not .Values.controller.namespaces) $given (kindIs "invalid" $given) }}yes{{ end }}
{{- end }}

{{- define "slotkeeper.controllerLabels" -}}
{{ include "slotkeeper.selectorLabels" . }}
app.kubernetes.io/component: controller
{{- end }}

{{/* Of (root, pool): what selects the pods of a pool. */}}
{{- define "slotkeeper.poolLabels" -}}
{{ include "slotkeeper.selectorLabels" .root }}
app.kubernetes.io/component: worker
slotkeeper.dev/pool: {{ .pool.name }}
{{- end }}

{{/* Helm 4 and server-side apply refuse a variable that is named twice; here the sentence says which value. */}}
{{- define "slotkeeper.extraEnv" -}}
{{- range .extraEnv }}
{{- if hasPrefix "SLOTKEEPER_" .name }}
{{- fail (printf "extraEnv names %s: the chart's values set slotkeeper's flags; use them or extraArgs" .name) }}
{{- else if has .name (list "POD_NAME" "PGPASSWORD") }}
{{- fail (printf "extraEnv names %s, which the chart sets itself: rename it, or put a password of yours into a DSN" .name) }}
{{- end }}
{{- end }}
{{- with .extraEnv }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* What a pod has wherever it may run. Of a component's values. */}}
{{- define "slotkeeper.placement" -}}
{{- with .priorityClassName -}}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

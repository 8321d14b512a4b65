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
{{- if and $database.existingSecret (or $database.dsn $database.directDsn) }}
{{- fail "database.existingSecret and database.dsn are both set: keep one of them" }}
{{- end }}
{{- if and .Values.migrations.existingSecret .Values.migrations.dsn }}
{{- fail "migrations.existingSecret and migrations.dsn are both set: keep one of them" }}
{{- end }}
{{- if and .Values.controller.enabled (not (or $database.existingSecret $database.dsn)) }}
{{- fail "no database: set database.existingSecret to a Secret whose key database.dsnKey holds a DSN, or database.dsn" }}
{{- end }}
{{- end }}

{{- define "slotkeeper.databaseSecret" -}}
{{- .Values.database.existingSecret | default (printf "%s-database" (include "slotkeeper.fullname" .)) }}
{{- end }}

{{/* Of (name, secret, key): one variable from a Secret. */}}
{{- define "slotkeeper.secretVariable" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef: {name: {{ .secret }}, key: {{ .key }}}
{{- end }}

{{/* Helm 4 and server-side apply refuse a variable that is named twice; here the sentence says which value. */}}
{{- define "slotkeeper.extraEnv" -}}
{{- range .extraEnv }}
{{- if hasPrefix "SLOTKEEPER_" .name }}
{{- fail (printf "extraEnv names %s: the chart's values set slotkeeper's flags; use them or extraArgs" .name) }}
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
{{- with .topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

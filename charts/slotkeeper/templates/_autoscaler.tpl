{{/* Of (pool, name, root): what scales the Deployment of a pool; empty where you do. */}}
{{- define "slotkeeper.autoscaler" -}}
{{- $autoscaling := .pool.autoscaling }}
{{- if eq $autoscaling.kind "hpa-external" }}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{- include "slotkeeper.autoscalerMetadata" . | nindent 2 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .name }}}
  minReplicas: {{ $autoscaling.minReplicas }}
  maxReplicas: {{ $autoscaling.maxReplicas }}
  # The metric is the number of workers itself, so each of them stands for 1 of it.
  metrics:
    - type: External
      external:
        metric:
          name: slotkeeper_workers_wanted
          selector: {matchLabels: {pool: {{ .pool.name }}}}
        target: {type: AverageValue, averageValue: "1"}
  {{- with $autoscaling.behavior }}
  behavior: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- else if ne $autoscaling.kind "own" }}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{- include "slotkeeper.autoscalerMetadata" . | nindent 2 }}
spec:
  scaleTargetRef: {name: {{ .name }}}
  pollingInterval: {{ $autoscaling.keda.pollingInterval }}
  cooldownPeriod: {{ $autoscaling.keda.cooldownPeriod }}
  minReplicaCount: {{ $autoscaling.minReplicas }}
  maxReplicaCount: {{ $autoscaling.maxReplicas }}
  # Without an answer the pool stays as it is.
  fallback: {failureThreshold: 3, replicas: {{ $autoscaling.maxReplicas }}, behavior: currentReplicas}
  {{- with $autoscaling.behavior }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior: {{- toYaml . | nindent 8 }}
  {{- end }}
  triggers:
    {{- if eq $autoscaling.kind "keda" }}
    - type: metrics-api
      metricType: AverageValue
      metadata:
        url: {{ include "slotkeeper.scalingUrl" . }}
        valueLocation: workers_wanted
        targetValue: "1"
        {{- if $autoscaling.keda.tokenSecret }}
        authMode: bearer
      authenticationRef: {name: {{ .name }}}
        {{- end }}
    {{- else }}
    - type: prometheus
      metricType: AverageValue
      metadata:
        serverAddress: {{ required (printf "the pool %s scales by keda-prometheus: set autoscaling.prometheus.serverAddress" .pool.name) $autoscaling.prometheus.serverAddress }}
        query: max(slotkeeper_pool_workers_wanted{namespace="{{ include "slotkeeper.namespace" .root }}",pool="{{ .pool.name }}"})
        threshold: "1"
        # No figure is an error, not 0 workers.
        ignoreNullValues: "false"
    {{- end }}
{{- if and (eq $autoscaling.kind "keda") $autoscaling.keda.tokenSecret }}
---
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata: {{- include "slotkeeper.autoscalerMetadata" . | nindent 2 }}
spec:
  secretTargetRef:
    - {parameter: token, name: {{ $autoscaling.keda.tokenSecret }}, key: {{ $autoscaling.keda.tokenKey }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "slotkeeper.autoscalerMetadata" -}}
name: {{ .name }}
namespace: {{ include "slotkeeper.namespace" .root }}
labels:
  {{- include "slotkeeper.labels" .root | nindent 2 }}
  app.kubernetes.io/component: worker
  slotkeeper.dev/pool: {{ .pool.name }}
{{- end }}

{{- define "slotkeeper.scalingUrl" -}}
{{- $root := .root }}
{{- $url := .pool.autoscaling.keda.url }}
{{- if not $url }}
{{- if not $root.Values.controller.enabled }}
{{- fail (printf "the pool %s scales by keda, and this release has no controller: set autoscaling.keda.url to the one that there is" .pool.name) }}
{{- end }}
{{- $url = printf "http://%s-controller.%s.svc:%v" (include "slotkeeper.fullname" $root) (include "slotkeeper.namespace" $root) $root.Values.listen.port }}
{{- end }}
{{- printf "%s/scaling/v1/namespaces/%s/pools/%s" $url (include "slotkeeper.namespace" $root) .pool.name }}
{{- end }}

{{- define "slotkeeper.scalingArguments" -}}
- --scaling-horizon-seconds={{ .Values.scaling.horizonSeconds }}
- --scaling-drain-seconds={{ .Values.scaling.drainSeconds }}
{{- end }}

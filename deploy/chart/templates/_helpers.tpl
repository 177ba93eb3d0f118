{{- define "epdns.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "epdns.fullname" -}}
{{- $name := include "epdns.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "epdns.serviceAccountName" -}}
{{- default (ternary (include "epdns.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{/* What tells the Pods of this release from others. It never changes. */}}
{{- define "epdns.selectorLabels" -}}
app.kubernetes.io/name: {{ include "epdns.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* What tells the Pod of "helm test" from others: not what selects the Service's Pods. */}}
{{- define "epdns.testLabels" -}}
app.kubernetes.io/name: {{ printf "%s-test" (include "epdns.name" . | trunc 58 | trimSuffix "-") | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Labels of objects. Those here beat commonLabels. */}}
{{- define "epdns.labels" -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" (default .Chart.AppVersion .Values.image.tag | replace "+" "_" | trunc 63 | trimAll "-_.")
  "app.kubernetes.io/managed-by" .Release.Service }}
{{- toYaml (merge (include "epdns.selectorLabels" . | fromYaml) $own .Values.commonLabels) }}
{{- end }}

{{/* Labels of Pods: without versions, so that a new chart alone does not replace them. */}}
{{- define "epdns.podLabels" -}}
{{- toYaml (merge (include "epdns.selectorLabels" . | fromYaml) .Values.podLabels .Values.commonLabels) }}
{{- end }}

{{- define "epdns.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The address with brackets, if it is IPv6. */}}
{{- define "epdns.listenHost" -}}
{{- if contains ":" .Values.listenAddress }}{{ printf "[%s]" .Values.listenAddress }}{{ else }}{{ .Values.listenAddress }}{{ end }}
{{- end }}

{{/* The configuration as a map, whichever form it was given in. */}}
{{- define "epdns.configMap" -}}
{{- if kindIs "string" .Values.config }}
{{- $parsed := fromYaml .Values.config }}
{{- if hasKey $parsed "Error" }}{{ fail (printf "config: %s" $parsed.Error) }}{{ end }}
{{- toYaml $parsed }}
{{- else }}
{{- toYaml (merge (deepCopy .Values.config) (dict "apiVersion" "epdns/v1alpha1" "kind" "Config")) }}
{{- end }}
{{- end }}

{{/* The name of the first zone, which is asked for to see that all works. */}}
{{- define "epdns.zone" -}}
{{- $config := include "epdns.configMap" . | fromYaml }}
{{- $zones := default (list) $config.zones }}
{{- if and $zones (kindIs "slice" $zones) (kindIs "map" (first $zones)) }}
{{- default "registry.local" (first $zones).name }}
{{- else }}registry.local
{{- end }}
{{- end }}

{{/* Values that contradict each other. What the types of single ones are is in values.schema.json. */}}
{{- define "epdns.validate" -}}
{{- $config := include "epdns.configMap" . | fromYaml }}
{{- range $key, $value := dict "listen" "dnsPort and listenAddress" "http" "httpPort" "stateDir" "state" }}
{{- if hasKey $config $key }}
{{- fail (printf "config.%s: the chart sets this by the value %s" $key $value) }}
{{- end }}
{{- end }}
{{- $source := default (dict) $config.source }}
{{- if and .Values.namespaces $source.namespaces }}
{{- fail "config.source.namespaces: the value namespaces has them already; leave one of the two out" }}
{{- end }}
{{- if and (eq .Values.kind "DaemonSet") .Values.autoscaling.enabled }}
{{- fail "autoscaling.enabled: a DaemonSet has one Pod on each node; take kind: Deployment, or no autoscaling" }}
{{- end }}
{{- if and .Values.hostNetwork .Values.networkPolicy.enabled }}
{{- fail "networkPolicy.enabled: a NetworkPolicy does not hold for Pods in the network of the nodes (hostNetwork)" }}
{{- end }}
{{- if and .Values.hostNetwork (ne .Values.kind "DaemonSet") }}
{{- fail "hostNetwork: two Pods of a Deployment on one node would want the same ports; take kind: DaemonSet" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}
{{- fail "autoscaling.minReplicas: more than maxReplicas" }}
{{- end }}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled }}
{{- fail "serviceMonitor.enabled: with podMonitor.enabled as well each Pod would be scraped twice; take one of the two" }}
{{- end }}
{{- if and .Values.resourceQuota.enabled (not .Values.priorityClassName) }}
{{- fail "resourceQuota.enabled: the quota is of a priorityClassName, and there is none" }}
{{- end }}
{{- end }}

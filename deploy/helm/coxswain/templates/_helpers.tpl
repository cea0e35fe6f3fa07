{{- define "coxswain.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{- define "coxswain.selector" -}}
app.kubernetes.io/name: coxswain
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "coxswain.llamaLabels" -}}
app.kubernetes.io/name: llama-server
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "coxswain.batchesLabels" -}}
app.kubernetes.io/name: coxswain-batches
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "coxswain.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The labels of the pods with llama-servers. */}}
{{- define "coxswain.serverLabels" -}}
{{- if .Values.llama.enabled }}{{ include "coxswain.llamaLabels" . }}
{{- else }}{{ toYaml (.Values.servers.labels | default (dict "app.kubernetes.io/name" "llama-server")) }}{{ end }}
{{- end }}

{{- define "coxswain.serverPorts" -}}
{{- if .Values.llama.enabled }}[8080]{{ else }}{{ toJson .Values.servers.ports }}{{ end }}
{{- end }}

{{/* Whether agents beside the servers report them; "" for no. */}}
{{- define "coxswain.hasAgents" -}}
{{- if and .Values.llama.enabled .Values.llama.agents }}yes{{ end }}
{{- end }}

{{/* Whether the admin port is open to other pods; "" for no. */}}
{{- define "coxswain.opensAdmin" -}}
{{- if or .Values.batches.enabled (include "coxswain.hasAgents" .) }}yes{{ end }}
{{- end }}

{{/* The name of the InferencePool that the chart makes for a pool. */}}
{{- define "coxswain.poolName" -}}
{{- include "coxswain.name" .root }}{{ with .pool }}-{{ . }}{{ end }}
{{- end }}

{{/* What each pool of the values has of `servers`, by name; "" is the name of the only one. */}}
{{- define "coxswain.groups" -}}
{{- $groups := dict }}
{{- range $pool, $one := .Values.pools }}
{{- $ports := ternary (list) (list 8080) (not (empty $one.service)) }}
{{- $_ := set $groups $pool (merge (dict) (omit $one "settings") (dict "ports" $ports)) }}
{{- end }}
{{- if not $groups }}
{{- $labels := include "coxswain.serverLabels" . | fromYaml }}
{{- $ports := include "coxswain.serverPorts" . | fromJsonArray }}
{{- $named := ternary (dict) (pick .Values.servers "pool" "service") .Values.inferencePool.create }}
{{- $_ := set $groups "" (merge (dict "labels" $labels "ports" $ports) $named) }}
{{- end }}
{{- toYaml $groups }}
{{- end }}

{{/* Which pods are followed: the entries of discovery.kubernetes. */}}
{{- define "coxswain.sources" -}}
{{- $root := . }}
{{- range $pool, $one := include "coxswain.groups" . | fromYaml }}
{{- if $one.pool }}
- pool: {{ $one.pool }}
{{- else if $one.service }}
- service: {{ $one.service }}
  {{- if $one.ports }}
  ports: {{ toJson $one.ports }}
  {{- end }}
{{- else if $root.Values.inferencePool.create }}
- pool: {{ include "coxswain.poolName" (dict "root" $root "pool" $pool) }}
{{- else }}
{{- $labels := list }}
{{- range $key, $value := $one.labels }}
{{- $labels = append $labels (printf "%s=%s" $key $value) }}
{{- end }}
- selector: {{ $labels | sortAlpha | join "," | quote }}
  ports: {{ toJson $one.ports }}
{{- end }}
{{- if $pool }}
  in_pool: {{ $pool }}
{{- end }}
{{- end }}
{{- end }}

{{/* The further ports of pools, sorted. */}}
{{- define "coxswain.poolPorts" -}}
{{- $ports := list }}
{{- range .Values.pools }}
{{- with .port }}{{ $ports = append $ports (int .) }}{{ end }}
{{- end }}
{{- if ne (len $ports) (len (uniq $ports)) }}{{ fail "two pools have the same port" }}{{ end }}
{{- toJson $ports }}
{{- end }}

{{/* What the chart sets; .Values.settings goes before it. */}}
{{- define "coxswain.settings" -}}
{{- if or (not (include "coxswain.hasAgents" .)) .Values.servers.objectives }}
discovery:
  {{- if not (include "coxswain.hasAgents" .) }}
  kubernetes: {{- include "coxswain.sources" . | nindent 4 }}
  {{- end }}
  {{- if .Values.servers.objectives }}
  kubernetes_objectives: true
  {{- end }}
{{- end }}
{{- with .Values.pools }}
pools:
  {{- range $pool, $one := . }}
  {{ $pool }}: {{- toYaml (merge (dict) (default dict $one.settings) (pick $one "port")) | nindent 4 }}
  {{- end }}
{{- end }}
listen:
  http: 0.0.0.0:9090
  {{- if include "coxswain.opensAdmin" . }}
  admin: 0.0.0.0:9003
  {{- end }}
  http_hosts: [{{ include "coxswain.name" . }}, {{ include "coxswain.name" . }}.{{ .Release.Namespace }}.svc]
{{- if .Values.envoy.enabled }}
  grpc: 127.0.0.1:9002
envoy:
  max_heap_bytes: 1073741824
  metrics: 127.0.0.1:9902
  stats: ["127.0.0.1:9902"]
  {{- if .Values.batches.enabled }}
  batches: {{ include "coxswain.name" . }}-batches:9006
  {{- end }}
{{- if .Values.batches.enabled }}
objectives:
  batch: {criticality: sheddable}
{{- end }}
queue:
  max_body_bytes: 268435456
{{- else }}
  grpc: 0.0.0.0:9002
  insecure: {{ not .Values.gatewayTLS.clientCA }}
{{- if .Values.gatewayTLS.secretName }}
grpc_tls:
  cert_file: /etc/coxswain/tls/tls.crt
  key_file: /etc/coxswain/tls/tls.key
  {{- if .Values.gatewayTLS.clientCA }}
  client_ca_file: /etc/coxswain/tls/ca.crt
  {{- end }}
{{- end }}
{{- end }}
{{- if ne .Values.mode "single" }}
fronts: 2
{{- end }}
{{- if eq .Values.mode "cluster" }}
cluster:
  name: {{ include "coxswain.name" . }}
  kubernetes: true
  lease_s: 10
{{- end }}
{{- if .Values.keda.enabled }}
keda:
  listen: 0.0.0.0:9005
{{- end }}
drain_timeout_s: 30
log: {format: json}
{{- end }}

{{- define "coxswain.clusterEnv" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- {name: COXSWAIN_CLUSTER__ADVERTISE, value: "$(POD_IP):9004"}
- {name: COXSWAIN_CLUSTER__MEMBER, value: "$(POD_NAME)"}
- name: COXSWAIN_CLUSTER_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ .Values.clusterTokenSecret | default (printf "%s-members" (include "coxswain.name" .)) }}
      key: cluster-token
{{- end }}

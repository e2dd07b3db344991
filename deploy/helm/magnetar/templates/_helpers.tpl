{{- define "magnetar.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "magnetar.cluster" -}}
{{- .Values.clusterName | default .Release.Name -}}
{{- end -}}

{{- define "magnetar.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- define "magnetar.labels" -}}
app.kubernetes.io/name: magnetar
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "magnetar.selector" -}}
app.kubernetes.io/name: magnetar
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "magnetar.metadataUrl" -}}
{{- if .Values.metadata.url -}}
{{- .Values.metadata.url -}}
{{- else if not .Values.zookeeper.enabled -}}
{{- fail "zookeeper.enabled is false: say with metadata.url where metadata lives, such as zk:HOST:2181/CHROOT" -}}
{{- else -}}
{{- $name := include "magnetar.name" . -}}
{{- $hosts := list -}}
{{- range until (int .Values.zookeeper.replicaCount) -}}
{{- $hosts = append $hosts (printf "%s-zookeeper-%d.%s-zookeeper:2181" $name . $name) -}}
{{- end -}}
zk:{{ join "," $hosts }}/{{ include "magnetar.cluster" . }}
{{- end -}}
{{- end -}}

{{- define "magnetar.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10000
runAsGroup: 10000
fsGroup: 10000
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "magnetar.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* A broker that may not place a ledger would start, and refuse every topic. */}}
{{- define "magnetar.checkCopies" -}}
{{- $ensemble := int (.Values.broker.config.managedLedgerDefaultEnsembleSize | default 2) -}}
{{- if gt $ensemble (int .Values.bookie.replicaCount) -}}
{{- fail (printf "broker.config.managedLedgerDefaultEnsembleSize is %d and bookie.replicaCount only %d: lower the first (with the write and ack quorums) or raise the second" $ensemble (int .Values.bookie.replicaCount)) -}}
{{- end -}}
{{- end -}}

{{- define "magnetar.environment" -}}
- {name: metadataStoreUrl, value: {{ include "magnetar.metadataUrl" .root | quote }}}
{{- if .root.Values.metadata.configurationUrl }}
- {name: configurationMetadataStoreUrl, value: {{ .root.Values.metadata.configurationUrl | quote }}}
{{- end }}
- {name: clusterName, value: {{ include "magnetar.cluster" .root | quote }}}
{{- range $key, $value := .config }}
- {name: {{ printf "PULSAR_PREFIX_%s" $key }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

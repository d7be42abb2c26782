{{- /* The name of every object. pkg/admission has the same. */ -}}
{{- define "admission-local.name" -}}
gardener-extension-admission-local
{{- end -}}

{{- /* The labels that select the pods. Immutable in a Deployment: never add one. */ -}}
{{- define "admission-local.selectorLabels" -}}
app.kubernetes.io/name: {{ include "admission-local.name" . }}
{{- end -}}

{{- /* The labels of every object. Without the chart's version, so that a new version changes no more than it must. */ -}}
{{- define "admission-local.labels" -}}
{{ include "admission-local.selectorLabels" . }}
app.kubernetes.io/part-of: gardener
{{- end -}}

{{- /* An image as a reference, from a reference or a map of repository, tag and digest; empty if there is none. */ -}}
{{- define "admission-local.image" -}}
{{- if kindIs "map" . -}}
{{- .repository -}}
{{- with .tag }}:{{ . }}{{ end -}}
{{- with .digest }}@{{ . }}{{ end -}}
{{- else if . -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{- /* The ports of the program (pkg/apis/config/v1alpha1 has the defaults). */ -}}
{{- define "admission-local.healthPort" -}}
{{- dig "healthProbes" "port" 8081 .Values.server -}}
{{- end -}}
{{- define "admission-local.metricsPort" -}}
{{- dig "metrics" "port" 8080 .Values.server -}}
{{- end -}}
{{- define "admission-local.webhookPort" -}}
{{- dig "webhooks" "port" 10443 .Values.server -}}
{{- end -}}

{{- /*
What Go's garbage collector aims at: 90 percent of the memory limit, so that a heap that grows is collected before the kernel ends
the container. Empty if there is no limit, or one in other units than these.
*/ -}}
{{- define "admission-local.goMemoryLimit" -}}
{{- $limit := dig "limits" "memory" "" (.Values.resources | default dict) | toString -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- $unit := regexReplaceAll "^[0-9]+" $limit "" -}}
{{- if and (regexMatch "^[0-9]+" $limit) (hasKey $units $unit) -}}
{{- div (mul (regexFind "^[0-9]+" $limit | int64) (get $units $unit) 9) 10 -}}
{{- end -}}
{{- end -}}

{{- /* The configuration of the program: what the values set, and no more, as the program knows its own defaults. */ -}}
{{- define "admission-local.config" -}}
{{- $owner := required "gardener.virtualCluster.namespace is not set: gardener-operator sets it" .Values.gardener.virtualCluster.namespace -}}
{{- $config := dict "apiVersion" "config.local.provider.extensions.gardener.cloud/v1alpha1" "kind" "AdmissionConfiguration" -}}
{{- range $section := list "logLevel" "logFormat" "clientConnection" "server" "machines" -}}
{{- with index $.Values $section }}{{ $_ := set $config $section . }}{{ end -}}
{{- end -}}
{{- $lease := dict "resourceName" (printf "%s-leader-election" (include "admission-local.name" .)) "resourceNamespace" .Release.Namespace -}}
{{- $_ := set $config "leaderElection" (merge $lease .Values.leaderElection) -}}
{{- $_ := set $config "webhooks" (dict "servicePort" 443 "certificateNamespace" .Values.certificateNamespace "ownerNamespace" $owner) -}}
{{- toYaml $config -}}
{{- end -}}

{{- /* The RoleBinding or ClusterRoleBinding of a role of the same name for the ServiceAccount. */ -}}
{{- define "admission-local.binding" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ include "admission-local.name" .root }}{{ .suffix }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "admission-local.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ include "admission-local.name" .root }}{{ .suffix }}
subjects:
- kind: ServiceAccount
  name: {{ include "admission-local.name" .root }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- define "cloud-controller.selectorLabels" -}}
app.kubernetes.io/name: cloud-controller
app.kubernetes.io/component: provider-local-load-balancers
{{- end -}}

{{- define "cloud-controller.labels" -}}
{{ include "cloud-controller.selectorLabels" . }}
app.kubernetes.io/part-of: gardener
gardener.cloud/role: controlplane
{{- end -}}

{{- /*
Labels of what is in the shoot.
*/ -}}
{{- define "cloud-controller.shootLabels" -}}
{{ include "cloud-controller.selectorLabels" . }}
app.kubernetes.io/part-of: gardener
gardener.cloud/role: system-component
origin: gardener
{{- end -}}

{{- define "cloud-controller.kubeconfigPath" -}}
/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig
{{- end -}}

{{- /*
Where the kubeconfig of a cluster other than the seed is.
*/ -}}
{{- define "cloud-controller.machineClusterPath" -}}
/etc/cloud-controller/machine-cluster
{{- end -}}

{{- define "cloud-controller.config" -}}
apiVersion: config.local.provider.extensions.gardener.cloud/v1alpha1
kind: CloudControllerConfiguration
seed:
  {{- if .Values.machineCluster.remote }}
  kubeconfig: {{ include "cloud-controller.machineClusterPath" . }}/kubeconfig
  {{- with .Values.machineCluster.allowedCIDRs }}
  allowedCIDRs: {{ toJson . }}
  {{- end }}
  namespace: {{ .Values.machineCluster.namespace }}
  {{- else }}
  namespace: {{ .Release.Namespace }}
  {{- end }}
  {{- if .Values.machineCluster.oneNode }}
  oneNode: true
  {{- end }}
  {{- if .Values.machineCluster.nodePorts }}
  nodePorts: true
  {{- end }}
shoot:
  kubeconfig: {{ include "cloud-controller.kubeconfigPath" . }}/kubeconfig
server:
  port: {{ .Values.port }}
  certificateDirectory: /etc/cloud-controller/server
{{- end -}}

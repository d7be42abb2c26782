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

{{- define "cloud-controller.config" -}}
apiVersion: config.local.provider.extensions.gardener.cloud/v1alpha1
kind: CloudControllerConfiguration
seed:
  namespace: {{ .Release.Namespace }}
shoot:
  kubeconfig: {{ include "cloud-controller.kubeconfigPath" . }}/kubeconfig
server:
  port: {{ .Values.port }}
  certificateDirectory: /etc/cloud-controller/server
{{- end -}}

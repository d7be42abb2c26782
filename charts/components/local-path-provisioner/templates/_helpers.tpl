{{- define "local-path-provisioner.selectorLabels" -}}
app.kubernetes.io/name: local-path-provisioner
app.kubernetes.io/component: provider-local-storage
{{- end -}}

{{- /*
By the role, Gardener counts it among the system components of the shoot.
*/ -}}
{{- define "local-path-provisioner.labels" -}}
{{ include "local-path-provisioner.selectorLabels" . }}
app.kubernetes.io/part-of: gardener
gardener.cloud/role: system-component
origin: gardener
{{- end -}}

{{- /*
All that is asked of a folder is in the arguments that the program adds to the two commands.
*/ -}}
{{- define "local-path-provisioner.config" -}}
{{- dict
  "nodePathMap" (list (dict "node" "DEFAULT_PATH_FOR_NON_LISTED_NODES" "paths" (list .Values.path)))
  "setupCommand" "/local-path-helper"
  "teardownCommand" "/local-path-helper"
| toPrettyJson -}}
{{- end -}}

{{- /*
The pod that makes or removes one folder. The provisioner adds the node, the mount of the folder's parent, tolerations for
everything, the ServiceAccount, the command and its arguments. It runs as root, since kubelet makes the parent for root,
and with two capabilities, since a volume holds folders of other users, also such with the sticky bit.
*/ -}}
{{- define "local-path-provisioner.helperPod" -}}
apiVersion: v1
kind: Pod
metadata:
  name: local-path-helper
  labels:
    app.kubernetes.io/name: local-path-helper
    app.kubernetes.io/component: provider-local-storage
    gardener.cloud/role: system-component
    origin: gardener
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  priorityClassName: system-node-critical
  securityContext:
    runAsUser: 0
    runAsGroup: 0
    seccompProfile:
      type: RuntimeDefault
  containers:
  # The provisioner asks for the log of the container of this name.
  - name: helper-pod
    image: {{ .Values.image }}
    imagePullPolicy: {{ .Values.imagePullPolicy }}
    env:
    # No other folder is touched, whatever a PersistentVolume names.
    - name: VOLUMES_ROOT
      value: {{ .Values.path }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop:
        - ALL
        add:
        - DAC_OVERRIDE
        - FOWNER
{{- end -}}

{{- /*
The name by which claims and volumes know who provides them. It is that of all others who deploy this program, so that
existing volumes stay in good hands.
*/ -}}
{{- define "local-path-provisioner.provisioner" -}}
rancher.io/local-path
{{- end -}}

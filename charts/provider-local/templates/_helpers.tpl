{{- /*
Where the release stands: "garden" (the garden runtime cluster) or "seed". gardener-operator sends the string "true",
others a boolean.
*/ -}}
{{- define "provider-local.place" -}}
{{- $gardener := .Values.gardener | default dict -}}
{{- $runtimeCluster := $gardener.runtimeCluster | default dict -}}
{{- $clusterTypes := $gardener.clusterTypes | default dict -}}
{{- if or (eq (toString $runtimeCluster.enabled) "true") (eq (toString $clusterTypes.gardenRuntimeCluster) "true") -}}
garden
{{- else -}}
seed
{{- end -}}
{{- end -}}

{{- /*
The name of every object begins with this. It depends on the place and on nothing else, so that the releases of both
places can stand in one cluster, even in one namespace, and never name the same object.
*/ -}}
{{- define "provider-local.name" -}}
gardener-extension-provider-local-{{ include "provider-local.place" . }}
{{- end -}}

{{- /* The program of the place, and the name of its container and of its binary in the image. */ -}}
{{- define "provider-local.program" -}}
{{- eq (include "provider-local.place" .) "garden" | ternary "operator-extension" "gardenlet-extension" -}}
{{- end -}}

{{- /* The labels that select the pods of the place. Immutable in a Deployment: never add one. */ -}}
{{- define "provider-local.selectorLabels" -}}
app.kubernetes.io/name: gardener-extension-provider-local
app.kubernetes.io/component: {{ include "provider-local.place" . }}
{{- end -}}

{{- /* The labels of every object. Without the chart's version, so that a new version changes no more than it must. */ -}}
{{- define "provider-local.labels" -}}
{{ include "provider-local.selectorLabels" . }}
app.kubernetes.io/part-of: gardener
{{- end -}}

{{- /* An image as a reference, from a reference or a map of repository, tag and digest; empty if there is none. */ -}}
{{- define "provider-local.image" -}}
{{- if kindIs "map" . -}}
{{- .repository -}}
{{- with .tag }}:{{ . }}{{ end -}}
{{- with .digest }}@{{ . }}{{ end -}}
{{- else if . -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{- /* The folder of all buckets as the program sees it, and as the nodes do (pkg/apis/config/v1alpha1 has the defaults). */ -}}
{{- define "provider-local.backupDirectory" -}}
{{- .Values.backup.directory | default "/var/lib/gardener/backupbuckets" -}}
{{- end -}}
{{- define "provider-local.backupHostPath" -}}
{{- .Values.backup.hostPath | default "/etc/gardener/local-backupbuckets" -}}
{{- end -}}

{{- /*
The ports of the program (pkg/apis/config/v1alpha1 has the defaults). On the node of a self-hosted control plane, where
pods share the ports of the host, gardenlet says which ones are free.
*/ -}}
{{- define "provider-local.healthPort" -}}
{{- dig "healthProbes" "port" (index (.Values.usablePorts | default (list 8081)) 0) .Values.server -}}
{{- end -}}
{{- define "provider-local.metricsPort" -}}
{{- dig "metrics" "port" (index (.Values.usablePorts | default (list 0 8080)) 1) .Values.server -}}
{{- end -}}
{{- define "provider-local.webhookPort" -}}
{{- dig "webhooks" "port" (index (.Values.usablePorts | default (list 0 0 10443)) 2) .Values.server -}}
{{- end -}}

{{- /* The port of the stand-in for the kubelets of fake Nodes, in a seed with the mock provider; empty if there is none. */ -}}
{{- define "provider-local.kubeletPort" -}}
{{- $mock := .Values.mock | default dict -}}
{{- if and (eq (include "provider-local.place" .) "seed") $mock.enabled (not (dig "nodes" "disabled" false $mock)) -}}
{{- dig "nodes" "kubeletPort" (index (.Values.usablePorts | default (list 0 0 0 10250)) 3) $mock -}}
{{- end -}}
{{- end -}}

{{- /* The cache of pulled charts (pkg/apis/config/v1alpha1 has the defaults); twice its bound, as a pull needs room. */ -}}
{{- define "provider-local.chartCacheDirectory" -}}
{{- dig "cache" "directory" "/var/cache/provider-local/charts" .Values.charts -}}
{{- end -}}
{{- define "provider-local.chartCacheLimit" -}}
{{- dig "cache" "sizeLimit" "256Mi" .Values.charts -}}
{{- end -}}

{{- /* Where CoreDNS is (pkg/apis/config/v1alpha1 has the default). */ -}}
{{- define "provider-local.coreDNSNamespace" -}}
{{- .Values.dns.coreDNS.namespace | default "gardener-extension-provider-local-coredns" -}}
{{- end -}}

{{- /*
The part of the configuration that both places share: what the values set, and no more, as the program knows its own
defaults.
*/ -}}
{{- define "provider-local.commonConfig" -}}
{{- $config := dict "apiVersion" "config.local.provider.extensions.gardener.cloud/v1alpha1" "kind" "ExtensionConfiguration" -}}
{{- range $section := list "logLevel" "logFormat" "clientConnection" "controllers" "loadBalancers" "mock" -}}
{{- with index $.Values $section }}{{ $_ := set $config $section . }}{{ end -}}
{{- end -}}
{{- with dig (dig "seed" "name" "" (.Values.gardener | default dict)) dict .Values.seedLoadBalancers }}{{ $_ := set $config "loadBalancers" . }}{{ end -}}
{{- with include "provider-local.kubeletPort" . -}}
{{- $_ := set $config "mock" (mergeOverwrite (deepCopy $.Values.mock) (dict "nodes" (dict "kubeletPort" (int .)))) -}}
{{- end -}}
{{- $server := deepCopy .Values.server -}}
{{- if .Values.usablePorts -}}
{{- $ports := dict "healthProbes" (dict "port" (include "provider-local.healthPort" . | int)) "metrics" (dict "port" (include "provider-local.metricsPort" . | int)) "webhooks" (dict "port" (include "provider-local.webhookPort" . | int)) -}}
{{- $server = merge $server $ports -}}
{{- end -}}
{{- with $server }}{{ $_ := set $config "server" . }}{{ end -}}
{{- $charts := deepCopy .Values.charts -}}
{{- with $charts.cache }}{{ $_ := unset . "sizeLimit" }}{{ end -}}
{{- if not $charts.cache }}{{ $_ := unset $charts "cache" }}{{ end -}}
{{- if not $charts.sources }}{{ $_ := unset $charts "sources" }}{{ end -}}
{{- with $charts }}{{ $_ := set $config "charts" . }}{{ end -}}
{{- $lease := dict "resourceName" (printf "%s-leader-election" (include "provider-local.name" .)) "resourceNamespace" .Release.Namespace -}}
{{- $_ := set $config "leaderElection" (merge $lease .Values.leaderElection) -}}
{{- with omit .Values.backup "prepareDirectory" }}{{ $_ := set $config "backup" . }}{{ end -}}
{{- $coreDNS := omit .Values.dns.coreDNS "image" -}}
{{- with include "provider-local.image" .Values.dns.coreDNS.image }}{{ $_ := set $coreDNS "image" . }}{{ end -}}
{{- $priority := eq (include "provider-local.place" .) "garden" | ternary (dig "runtimeCluster" "priorityClassName" "" (.Values.gardener | default dict)) "gardener-system-900" -}}
{{- if and $priority (not $coreDNS.priorityClassName) -}}
{{- $_ := set $coreDNS "priorityClassName" $priority -}}
{{- end -}}
{{- $gardener := .Values.gardener | default dict -}}
{{- if $gardener.selfHostedShootCluster }}{{ $_ := set $config "selfHostedShootCluster" true }}{{ end -}}
{{- with dig "seed" "networks" "services" (dig "shoot" "spec" "networking" "services" "" $gardener) $gardener -}}
{{- if $coreDNS.clusterIP }}{{ $_ := set $coreDNS "serviceNetwork" . }}{{ end -}}
{{- end -}}
{{- $dns := omit .Values.dns "coreDNS" "zones" -}}
{{- with .Values.dns.zones }}{{ $_ := set $dns "zones" . }}{{ end -}}
{{- with $coreDNS }}{{ $_ := set $dns "coreDNS" . }}{{ end -}}
{{- with $dns }}{{ $_ := set $config "dns" . }}{{ end -}}
{{- toYaml $config -}}
{{- end -}}

{{- /*
What only gardenlet-extension has. Its own image holds the programs that run beside machine-controller-manager and as
cloud-controller too.
*/ -}}
{{- define "provider-local.seedConfig" -}}
{{- $config := dict -}}
{{- range $section := list "webhooks" "nodes" "ingress" -}}
{{- with index $.Values $section }}{{ $_ := set $config $section . }}{{ end -}}
{{- end -}}
{{- $own := include "provider-local.image" .Values.image -}}
{{- $cloudController := omit .Values.controlPlane.cloudController "image" -}}
{{- $_ := set $cloudController "image" (include "provider-local.image" .Values.controlPlane.cloudController.image | default $own) -}}
{{- $localPath := dict "image" (include "provider-local.image" .Values.controlPlane.localPathProvisioner.image) -}}
{{- if and (not $localPath.image) (not (dig "controlPlane" "disabled" false .Values.controllers)) -}}
{{- fail "controlPlane.localPathProvisioner.image is needed unless controllers.controlPlane.disabled is true: set it in spec.deployment.extension.values of the Extension, as `make push-charts` does" -}}
{{- end -}}
{{- $_ := set $config "controlPlane" (dict "cloudController" $cloudController "localPathProvisioner" $localPath) -}}
{{- $machines := omit .Values.machines "controllerImage" "registryMirrors" -}}
{{- with .Values.machines.registryMirrors }}{{ $_ := set $machines "registryMirrors" . }}{{ end -}}
{{- $_ := set $machines "controllerImage" (include "provider-local.image" .Values.machines.controllerImage | default $own) -}}
{{- $_ := set $config "machines" $machines -}}
{{- toYaml $config -}}
{{- end -}}

{{- /*
What Go's garbage collector aims at: 90 percent of the memory limit, so that a heap that grows is collected before the kernel ends
the container. Empty if there is no limit, or one in other units than these.
*/ -}}
{{- define "provider-local.goMemoryLimit" -}}
{{- $limit := dig "limits" "memory" "" (.Values.resources | default dict) | toString -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- $unit := regexReplaceAll "^[0-9]+" $limit "" -}}
{{- if and (regexMatch "^[0-9]+" $limit) (hasKey $units $unit) -}}
{{- div (mul (regexFind "^[0-9]+" $limit | int64) (get $units $unit) 9) 10 -}}
{{- end -}}
{{- end -}}

{{- /* The configuration of the program. */ -}}
{{- define "provider-local.config" -}}
{{- $garden := eq (include "provider-local.place" .) "garden" -}}
{{- $deploy := dig "deploy" true .Values.dns.coreDNS -}}
{{- if and $deploy (not (include "provider-local.image" .Values.dns.coreDNS.image)) -}}
{{- fail (printf "dns.coreDNS.image is needed as long as dns.coreDNS.deploy is true: set it in spec.deployment.extension.%s of the Extension, as `make push-charts` does" ($garden | ternary "runtimeClusterValues" "values")) -}}
{{- end -}}
{{ include "provider-local.commonConfig" . }}
{{- if $garden }}
extensionClasses:
- garden
{{- else }}
{{ include "provider-local.seedConfig" . }}
extensionClasses:
- seed
- shoot
{{- end -}}
{{- end -}}

{{- /* The RoleBinding or ClusterRoleBinding of a role of the same name for the ServiceAccount. */ -}}
{{- define "provider-local.binding" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ include "provider-local.name" .root }}{{ .suffix }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "provider-local.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ include "provider-local.name" .root }}{{ .suffix }}
subjects:
- kind: ServiceAccount
  name: {{ include "provider-local.name" .root }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}

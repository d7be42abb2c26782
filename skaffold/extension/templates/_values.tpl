{{- /* The images that the chart provider-local needs in the garden runtime cluster. */ -}}
{{- define "extension.runtimeClusterValues" -}}
image: {{ get .Values.images "operator-extension" }}
dns:
  coreDNS:
    image: {{ .Values.images.coredns }}
{{- end -}}

{{- /* The image that the chart admission-local/runtime needs. */ -}}
{{- define "extension.admissionValues" -}}
image: {{ get .Values.images "operator-extension" }}
{{- end -}}

{{- /* The images that it needs in a seed. gardenlet-extension is three programs in one. */ -}}
{{- define "extension.values" -}}
image: {{ get .Values.images "gardenlet-extension" }}
dns:
  # Those of the garden and of the seeds: no shoot is to choose a name there.
  reservedDomains:
  - virtual-garden.local.gardener.cloud
  - runtime-garden.local.gardener.cloud
  - dashboard.local.gardener.cloud
  - discovery.local.gardener.cloud
  - seed.local.gardener.cloud
  coreDNS:
    image: {{ .Values.images.coredns }}
controlPlane:
  localPathProvisioner:
    image: {{ get .Values.images "local-path-provisioner" }}
  cloudController:
    image: {{ get .Values.images "gardenlet-extension" }}
machines:
  controllerImage: {{ get .Values.images "gardenlet-extension" }}
{{- end -}}

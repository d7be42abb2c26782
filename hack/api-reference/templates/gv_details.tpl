{{- define "gvDetails" -}}
# {{ .GroupVersionString }}

<!-- Written by `make generate` from the types. Do not edit. -->

{{ regexReplaceAll "(?m)^\\s*SPDX-.*$" .Doc "" | trim }}

| kind | |
| --- | --- |
{{- range .SortedTypes }}{{ if .GVK }}
| [{{ .Name }}](#{{ .Name | lower }}) | {{ regexReplaceAll "\\s+" (regexSplit "\\.(\\s|$)" (.Doc | toString) 2 | first) " " }} |
{{- end }}{{ end }}
{{ range .SortedTypes }}
{{- template "type" . }}
{{- end }}
{{- end -}}

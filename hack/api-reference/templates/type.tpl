{{- define "type" -}}
{{- if markdownShouldRenderType . }}
## {{ .Name }}
{{ if .IsAlias }}
Underlying type: {{ markdownRenderTypeLink .UnderlyingType }}
{{ end }}
{{ .Doc }}
{{ if .References }}
Used by: {{ range $index, $reference := .SortedReferences }}{{ if $index }}, {{ end }}{{ markdownRenderTypeLink $reference }}{{ end }}
{{ end }}
{{- if .Members }}
| field | type | |
| --- | --- | --- |
{{- if .GVK }}
| `apiVersion` | _string_ | `{{ .GVK.Group }}/{{ .GVK.Version }}` |
| `kind` | _string_ | `{{ .GVK.Kind }}` |
{{- end }}
{{- range .Members }}
| `{{ .Name }}` | _{{ markdownRenderType .Type }}_ | {{ template "type_members" . }} |
{{- end }}
{{ end }}
{{- if .EnumValues }}
| value | |
| --- | --- |
{{- range .EnumValues }}
| `{{ .Name }}` | {{ markdownRenderFieldDoc .Doc | replace "<br />" " " | trim }} |
{{- end }}
{{ end }}
{{- end -}}
{{- end -}}

{{- define "gvList" -}}
{{- range $index, $gv := . }}{{ if $index }}{{ "\n" }}{{ end }}{{ template "gvDetails" $gv }}{{ end -}}
{{- end -}}

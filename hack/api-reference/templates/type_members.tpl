{{- define "type_members" -}}
{{ markdownRenderFieldDoc .Doc | replace "<br />" " " | trim }}
{{- end -}}

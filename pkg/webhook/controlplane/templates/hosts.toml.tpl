{{- with .Server -}}
server = {{ printf "%q" . }}
{{- end }}
{{- range .Hosts }}

[host.{{ printf "%q" . }}]
  capabilities = ["pull", "resolve"]
{{- end }}

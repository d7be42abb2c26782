{{- define "coredns.selectorLabels" -}}
app.kubernetes.io/name: coredns
app.kubernetes.io/component: provider-local-dns
{{- end -}}

{{- define "coredns.labels" -}}
{{ include "coredns.selectorLabels" . }}
app.kubernetes.io/part-of: gardener
{{- end -}}

{{- /*
Nothing that a user writes gets in here: the records come by the plugin "custom", which watches the ConfigMaps
coredns-custom-*. Of two blocks of the same zone the first whose view fits answers.
*/ -}}
{{- define "coredns.corefile" -}}
{{- range .Values.zones }}
{{ . }}:9053 {
    view external {
        expr {{ $.Values.externalExpression }}
    }
    errors
    prometheus :9153
    loadbalance
    custom literal
}
{{ . }}:9053 {
    errors
    prometheus :9153
    loadbalance
    custom rewrite
}
{{- end }}
.:9053 {
    errors
    health :8080 {
        lameduck 5s
    }
    ready :8181
    prometheus :9153
    loadbalance
    forward . /etc/resolv.conf
}
{{- end -}}

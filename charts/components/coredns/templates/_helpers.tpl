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
coredns-custom-*. Of two blocks of the same zone and port the first whose view fits answers.

The plugin "ready" asks the plugins of its own block only, so it stands beside a "custom": a pod is not ready before it
knows the records.

Names outside of the zones are looked up for the clients of this cluster and its surroundings only: all others are refused, so
this is no open resolver.

Port 9054 is for the machine that this cluster runs on: everybody who asks there gets the view from outside, whatever the
protocol. It is a second listener of the same server with the same records, which are in memory once. It has no block for
names outside of the zones, so that these are refused: the name server of the machine forwards the zones to here, and
this server forwards other names to the name servers of its node, which often is the machine's again. A query that was
sent here by mistake would go round in circles until everybody runs out of sockets.
*/ -}}
{{- define "coredns.corefile" -}}
{{- range $index, $zone := .Values.zones }}
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
    {{- if eq $index 0 }}
    ready :8181
    {{- end }}
    prometheus :9153
    loadbalance
    custom rewrite
}
{{ . }}:9054 {
    errors
    prometheus :9153
    loadbalance
    custom literal
}
{{- end }}
.:9053 {
    view clients {
        expr {{ range $index, $network := .Values.clientNetworks }}{{ if $index }} || {{ end }}incidr(client_ip(), '{{ $network }}'){{ end }}
    }
    errors
    health :8080 {
        lameduck 5s
    }
    prometheus :9153
    loadbalance
    forward . /etc/resolv.conf {
        max_concurrent 1000
    }
}
{{- end -}}

// Stands in for etcd-druid's generated client, which no proxy serves: only etcd-druid's examples import it, but its go.mod is
// needed to resolve the build list.
module github.com/gardener/etcd-druid/client

go 1.26.0

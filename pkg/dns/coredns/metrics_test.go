// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

func TestBatchesAndWritesAreCounted(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	g.Expect(err).NotTo(HaveOccurred())
	c := newCluster()
	p := New(Options{
		SetupOptions: SetupOptions{
			DNS: configv1alpha1.DNSConfiguration{
				Zones: []string{testZone}, CoreDNS: configv1alpha1.CoreDNSConfiguration{Namespace: testNamespace, ClusterDomain: "cluster.local", BatchWindow: &metav1.Duration{}},
			},
			Place: "garden", Metrics: m.DNS,
		},
		Client: c.Client, Reader: c.Client, Cache: c,
	})
	want := func(owner, name string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.update(p.desired.set(record(owner, name+"."+testZone, "A", "10.0.0.1"))...)
	}

	for _, name := range []string{"a", "b", "c"} {
		want(name, name)
	}
	write := func() error { return p.writeShard(t.Context(), "coredns-custom-garden-0") }
	g.Expect(write()).To(Succeed())
	g.Expect(write()).To(Succeed(), "with nothing to write")
	want("d", "d")
	c.writes.fail(errors.New("no"))
	g.Expect(write()).NotTo(Succeed())

	g.Expect(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP provider_local_dns_batch_names Names that changed since the last write for CoreDNS and went into the next one together.
# TYPE provider_local_dns_batch_names histogram
provider_local_dns_batch_names_bucket{le="1"} 1
provider_local_dns_batch_names_bucket{le="2"} 1
provider_local_dns_batch_names_bucket{le="5"} 2
provider_local_dns_batch_names_bucket{le="10"} 2
provider_local_dns_batch_names_bucket{le="20"} 2
provider_local_dns_batch_names_bucket{le="50"} 2
provider_local_dns_batch_names_bucket{le="100"} 2
provider_local_dns_batch_names_bucket{le="200"} 2
provider_local_dns_batch_names_bucket{le="500"} 2
provider_local_dns_batch_names_bucket{le="1000"} 2
provider_local_dns_batch_names_bucket{le="2000"} 2
provider_local_dns_batch_names_bucket{le="5000"} 2
provider_local_dns_batch_names_bucket{le="+Inf"} 2
provider_local_dns_batch_names_sum 4
provider_local_dns_batch_names_count 2
# HELP provider_local_dns_names Names that this instance has CoreDNS serve.
# TYPE provider_local_dns_names gauge
provider_local_dns_names 4
`), "provider_local_dns_batch_names", "provider_local_dns_names")).To(Succeed())
	g.Expect(testutil.GatherAndCount(registry, "provider_local_dns_flush_duration_seconds")).To(Equal(2), "one series for success, one for error")
	g.Expect(testutil.GatherAndCount(registry, "provider_local_dns_configmap_writes_total")).To(Equal(2))
}

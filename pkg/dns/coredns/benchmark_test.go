// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
)

var update = flag.Bool("update", false, "write the files of testdata again")

// BenchmarkApply reports what it costs to write that many records as 50 workers do, each waiting until its record
// resolves: time and bytes per record would grow with the number if writes were not batched and sharded. The records of
// three zones are of as many shoots in turn, behind gateways that share an address.
func BenchmarkApply(b *testing.B) {
	for _, test := range []struct{ number, zones int }{{100, 1}, {1000, 1}, {1000, 3}, {10000, 1}, {10000, 3}} {
		number := test.number
		b.Run(fmt.Sprintf("%d/zones=%d", number, test.zones), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				g := NewWithT(b)
				gateways := []client.Object{service("istio-ingress", "istio-ingressgateway", gatewayIP, "10.4.0.10")}
				for zone := 0; test.zones > 1 && zone < test.zones; zone++ {
					gateways = append(gateways, service(loadbalancer.GatewayNamespace(fmt.Sprint(zone)), "istio-ingressgateway", gatewayIP, "10.4.0.10"))
				}
				c := newCluster(gateways...)
				p := newProvider(b, c, seedClasses(g), func(o *Options) {
					o.DNS.CoreDNS.BatchWindow.Duration = 50 * time.Millisecond
					o.DNS.CoreDNS.ConfirmTimeout.Duration = time.Minute
					// The server is measured elsewhere; this one just remembers.
					o.Exchange = agreeing{c}.Exchange
				})
				g.Eventually(p.started).Should(BeClosed())
				c.tellServices(g)
				for zone := range test.zones {
					c.tell(inZones(fmt.Sprintf("shoot--%d", zone), fmt.Sprint(zone)), false)
				}
				b.StartTimer()

				work := make(chan int)
				var group sync.WaitGroup
				for range 50 {
					group.Go(func() {
						for i := range work {
							name := strings.TrimSuffix(numbered(i).name, ".")
							wanted := record(name, name, "A", gatewayIP)
							wanted.Owner.Namespace = fmt.Sprintf("shoot--%d", i%test.zones)
							if err := p.apply(ctx, wanted); err != nil {
								b.Error(err)
							}
						}
					})
				}
				for i := range number {
					work <- i
				}
				close(work)
				group.Wait()

				b.StopTimer()
				b.ReportMetric(float64(c.writes.bytes)/float64(number), "written-B/record")
				b.ReportMetric(float64(c.writes.number), "writes")
				b.ReportMetric(float64(len(c.configMaps(g))), "ConfigMaps")
				p.stop()
				b.StartTimer()
			}
		})
	}
}

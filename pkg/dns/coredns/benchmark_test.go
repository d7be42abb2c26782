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
)

var update = flag.Bool("update", false, "write the files of testdata again")

// BenchmarkApply reports what it costs to write that many records as 50 workers do, each waiting until its record
// resolves: time and bytes per record would grow with the number if writes were not batched and sharded.
func BenchmarkApply(b *testing.B) {
	for _, number := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(number), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				g := NewWithT(b)
				c := newCluster(service("istio-ingress", "istio-ingressgateway", gatewayIP, "10.4.0.10"))
				p := newProvider(b, c, func(o *Options) {
					o.BatchWindow = 50 * time.Millisecond
					o.ConfirmTimeout = time.Minute
					// The server is measured elsewhere; this one just remembers.
					o.Exchanger = agreeing{c}
				})
				g.Eventually(p.started).Should(BeClosed())
				c.tellServices(g)
				b.StartTimer()

				work := make(chan int)
				var group sync.WaitGroup
				for range 50 {
					group.Go(func() {
						for i := range work {
							name := strings.TrimSuffix(numbered(i).name, ".")
							if err := p.apply(ctx, record(name, name, "A", gatewayIP)); err != nil {
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

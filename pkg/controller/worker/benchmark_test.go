// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

func BenchmarkRenderFiftyPools(b *testing.B) {
	g := NewWithT(b)
	in := newInput(b)
	template := in.worker.Spec.Pools[0]
	in.worker.Spec.Pools = nil
	for i := range 50 {
		p := *template.DeepCopy()
		p.Name = fmt.Sprintf("pool-%d", i)
		in.worker.Spec.Pools = append(in.worker.Spec.Pools, p)
	}
	cluster, err := extensioncluster.Get(b.Context(), newSeed(b, nil, newCluster(b, in.shoot, in.profile)), namespace)
	g.Expect(err).NotTo(HaveOccurred())

	b.ReportAllocs()
	for b.Loop() {
		if machines, err := in.opts.machinesOf(in.worker, cluster, nil); err != nil || len(machines) != 100 {
			b.Fatal(len(machines), err)
		}
	}
}

// BenchmarkReconcileUnchanged includes what the fake client takes for each request.
func BenchmarkReconcileUnchanged(b *testing.B) {
	c := newSeed(b, newWorker()).succeed()
	b.ReportAllocs()
	for b.Loop() {
		c.clock.Step(time.Minute)
		c.ask("reconcile")
		c.mustReconcile()
	}
	b.ReportMetric(float64(len(c.requests)), "requests/op")
}

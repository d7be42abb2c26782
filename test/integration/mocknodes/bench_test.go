// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mocknodes_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/mock/nodes"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
)

// BenchmarkNodes creates Nodes in an API server and etcd of its own, without controllers, and waits until all are Ready and have
// their first Lease. It says how many are Ready per second, how many requests and how much memory each takes, and how late
// the latest renewal of a Lease is after a minute, the time between two renewals being 20 seconds. MOCK_NODES is the number
// of Nodes, 1000 by default.
func BenchmarkNodes(b *testing.B) {
	count := 1000
	if text := os.Getenv("MOCK_NODES"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	e, err := environment.StartShoot(kubernetesscheme.Scheme)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := e.Stop(); err != nil {
			b.Error(err)
		}
	})
	for b.Loop() {
		benchmarkNodes(b, e, int32(count))
	}
}

func benchmarkNodes(b *testing.B, e *environment.Environment, count int32) {
	// Watches are not counted.
	requests := &atomic.Int64{}
	config := rest.CopyConfig(e.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet {
				requests.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	fleet := nodes.New(nodes.Options{
		Connect: func(context.Context, string) (*rest.Config, error) { return config, nil },
		Kubelet: nodes.KubeletEndpoint{Host: kubeletHost, Port: 10250},
	})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- fleet.Start(ctx) }()
	clients, err := corev1client.NewForConfig(e.Config)
	if err != nil {
		b.Fatal(err)
	}
	watch, err := clients.Nodes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}

	before := heap()
	start := time.Now()
	w := newWorker("bench", count)
	if err := fleet.Apply(ctx, logr.Discard(), w, cluster()); err != nil {
		b.Fatal(err)
	}
	ready := map[string]bool{}
	for event := range watch.ResultChan() {
		if node, ok := event.Object.(*corev1.Node); ok && isReady(node) {
			ready[node.Name] = true
		}
		if len(ready) == int(count) {
			break
		}
	}
	took := time.Since(start)
	watch.Stop()
	b.ReportMetric(float64(count)/took.Seconds(), "nodes/s")
	b.ReportMetric(0, "ns/op")

	// Each has had its first Lease, and most have had a second and third.
	time.Sleep(time.Minute)
	used := heap() - before
	leases := &coordinationv1.LeaseList{}
	if err := e.Client.List(ctx, leases, client.InNamespace(corev1.NamespaceNodeLease), client.HasLabels{nodes.LabelWorker}); err != nil {
		b.Fatal(err)
	}
	latest := time.Duration(0)
	for _, lease := range leases.Items {
		latest = max(latest, time.Since(lease.Spec.RenewTime.Time))
	}
	if len(leases.Items) < int(count) {
		b.Errorf("%d of %d Nodes have a Lease", len(leases.Items), count)
	}
	b.ReportMetric(float64(used)/float64(count), "B/node")
	b.ReportMetric(latest.Seconds(), "s-since-renewal")
	fmt.Fprintf(os.Stderr, "%d nodes Ready in %s, %d requests\n", count, took, requests.Load())

	start = time.Now()
	if err := fleet.Delete(ctx, logr.Discard(), w, false); err != nil {
		b.Error(err)
	}
	b.ReportMetric(float64(count)/time.Since(start).Seconds(), "deleted/s")
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func heap() uint64 {
	runtime.GC()
	stats := &runtime.MemStats{}
	runtime.ReadMemStats(stats)
	return stats.HeapAlloc
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

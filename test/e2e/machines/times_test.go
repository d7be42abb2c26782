// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// tick is how often the recorder looks, and so how exact its times are.
const tick = 100 * time.Millisecond

// recorder writes down when machines come and go, as somebody sees it who looks at the objects.
type recorder struct {
	shoot *shoot

	mu    sync.Mutex
	times map[string]*times
}

// times are those of one machine. What did not happen yet is zero.
type times struct {
	created, running, registered, ready time.Time
	deleted, left, podGone, gone        time.Time

	// unready is since when its Node, which was ready, is not, and lapse the longest time that it was not.
	unready time.Time
	lapse   time.Duration
}

// record looks until the suite ends.
func record(s *shoot) *recorder {
	r := &recorder{shoot: s, times: map[string]*times{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				r.look(ctx)
			}
		}
	}()
	DeferCleanup(func() {
		cancel()
		<-done
		AddReportEntry("times per machine", r.String())
	})
	return r
}

func (r *recorder) look(ctx context.Context) {
	machines, pods, nodes := &machinev1alpha1.MachineList{}, &corev1.PodList{}, &corev1.NodeList{}
	// An API server that can't be asked, as at the end, is asked again.
	if l.Client.List(ctx, machines, client.InNamespace(namespace)) != nil ||
		l.Client.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels(machine.Selector())) != nil ||
		r.shoot.client.List(ctx, nodes) != nil {
		return
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	present := map[string]bool{}
	for _, m := range machines.Items {
		present[m.Name] = true
		seen, ok := r.times[m.Name]
		if !ok {
			seen = &times{created: now}
			r.times[m.Name] = seen
		}
		if m.DeletionTimestamp != nil {
			mark(&seen.deleted, now)
		}
	}
	podNames, nodeNames := r.marks(now, pods, nodes)
	for name, seen := range r.times {
		if !seen.ready.IsZero() && !nodeNames[machine.PodName(name)] {
			mark(&seen.left, now)
		}
		if !seen.running.IsZero() && !podNames[machine.PodName(name)] {
			mark(&seen.podGone, now)
		}
		if !present[name] {
			mark(&seen.gone, now)
		}
	}
}

// marks writes down what pods and Nodes tell of their machines, and returns which there are.
func (r *recorder) marks(now time.Time, pods *corev1.PodList, nodes *corev1.NodeList) (podNames, nodeNames map[string]bool) {
	podNames, nodeNames = map[string]bool{}, map[string]bool{}
	for _, pod := range pods.Items {
		podNames[pod.Name] = true
		if seen, ok := r.times[machine.Name(pod.Name)]; ok && pod.Status.Phase == corev1.PodRunning {
			mark(&seen.running, now)
		}
	}
	for _, node := range nodes.Items {
		nodeNames[node.Name] = true
		if seen, ok := r.times[machine.Name(node.Name)]; ok {
			mark(&seen.registered, now)
			seen.see(now, isReady(&node))
		}
	}
	return podNames, nodeNames
}

// see writes down whether the Node is ready.
func (t *times) see(now time.Time, ready bool) {
	switch {
	case ready:
		mark(&t.ready, now)
		t.unready = time.Time{}
	case !t.ready.IsZero():
		mark(&t.unready, now)
		t.lapse = max(t.lapse, now.Sub(t.unready))
	}
}

func mark(at *time.Time, now time.Time) {
	if at.IsZero() {
		*at = now
	}
}

// of are the times of a machine.
func (r *recorder) of(name string) times {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seen, ok := r.times[name]; ok {
		return *seen
	}
	return times{}
}

// toReady is how long a machine took until its Node was ready; zero if it isn't.
func (t times) toReady() time.Duration {
	if t.ready.IsZero() {
		return 0
	}
	return t.ready.Sub(t.created)
}

// String is a table, in the order in which the machines came.
func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "\nmachine\tpod runs\tNode registered\tNode ready\t|\tNode gone\tpod gone\tMachine gone")
	since := func(begin, end time.Time) string {
		if begin.IsZero() || end.IsZero() {
			return "-"
		}
		return fmt.Sprintf("%.1fs", end.Sub(begin).Seconds())
	}
	names := slices.SortedFunc(maps.Keys(r.times), func(a, b string) int {
		return cmp.Or(r.times[a].created.Compare(r.times[b].created), cmp.Compare(a, b))
	})
	for _, name := range names {
		t := r.times[name]
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t|\t%s\t%s\t%s\n", name,
			since(t.created, t.running), since(t.created, t.registered), since(t.created, t.ready),
			since(t.deleted, t.left), since(t.deleted, t.podGone), since(t.deleted, t.gone))
	}
	_ = table.Flush()
	return out.String()
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

func TestMachinesAreMeasuredByTheCodeOfTheAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		code string
	}{
		"no error is OK":                   {nil, "OK"},
		"an API server that is down":       {apierrors.NewServiceUnavailable("a"), "Unavailable"},
		"an answer that has no other code": {apierrors.NewResourceExpired("a"), "Unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			registry := prometheus.NewRegistry()
			m, err := metrics.NewMachines(registry)
			g.Expect(err).NotTo(HaveOccurred())
			c := interceptor.NewClient(newClient(run), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if tc.err != nil {
					return tc.err
				}
				return c.Get(ctx, key, obj, opts...)
			}})
			measured := newDriver(c, func(d *driver) { d.metrics = m })
			_, err = measured.CreateMachine(t.Context(), createRequest(newClass()))
			g.Expect(err == nil).To(Equal(tc.err == nil))
			_, err = measured.DeleteMachine(t.Context(), deleteRequest())
			g.Expect(err == nil).To(Equal(tc.err == nil))

			families, err := registry.Gather()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(families).To(HaveLen(1))
			var seen []string
			for _, metric := range families[0].GetMetric() {
				g.Expect(metric.GetHistogram().GetSampleCount()).To(BeEquivalentTo(1))
				seen = append(seen, metric.GetLabel()[0].GetValue()+" "+metric.GetLabel()[1].GetValue())
			}
			g.Expect(seen).To(HaveExactElements(tc.code+" create", tc.code+" delete"))
		})
	}
}

// TestAnEventOfAnotherKindIsAnError has a server of a user's that sends a Secret for a Pod.
func TestAnEventOfAnotherKindIsAnError(t *testing.T) {
	g := NewWithT(t)
	c := interceptor.NewClient(newClient(run), interceptor.Funcs{Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
		watcher := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 2})
		watcher.Action(watch.Bookmark, &corev1.Pod{})
		watcher.Add(&corev1.Secret{})
		return watcher, nil
	}})
	calls := 0
	_, err := watchOnce(t.Context(), c, client.ObjectKey{Namespace: "a", Name: "b"}, &corev1.PodList{}, func(*corev1.Pod) bool { calls++; return false })
	g.Expect(err).To(MatchError(ContainSubstring("the server sent a *v1.Secret")))
	g.Expect(calls).To(Equal(1), "for what is there before the watch")
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
	reconcilers "github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const seedName = "lb-" + uid

// bench is a reconciler between two fake API servers, whose caches show what the test puts there.
type bench struct {
	*reconciler
	t           *testing.T
	shoot, seed *fakeCluster
	recorder    *record.FakeRecorder
}

// fakeCluster is an API server with a cache.
type fakeCluster struct {
	client.Client
	cache client.Client
	seen  []string
	// refusals are the answers to the next requests of a kind.
	refusals map[string][]error
}

func newFakeCluster(objects ...client.Object) *fakeCluster {
	c := &fakeCluster{refusals: map[string][]error{}}
	c.Client = fake.NewClientBuilder().WithObjects(objects...).Build()
	c.show(objects...)
	return c
}

// show has the cache show exactly these objects.
func (c *fakeCluster) show(objects ...client.Object) {
	c.cache = fake.NewClientBuilder().WithObjects(objects...).
		WithIndex(&corev1.Service{}, byService, indexServed).
		WithIndex(&discoveryv1.EndpointSlice{}, byService, indexServed).Build()
}

// note notes a request and returns how it is refused, if it is.
func (c *fakeCluster) note(verb string, obj client.Object) error {
	request := verb + " services"
	if _, ok := obj.(*discoveryv1.EndpointSlice); ok {
		request = verb + " endpointslices"
	}
	c.seen = append(c.seen, request)
	if refusals := c.refusals[request]; len(refusals) > 0 {
		c.refusals[request] = refusals[1:]
		return refusals[0]
	}
	return nil
}

// client reads from the cache, and writes to the API server.
func (c *fakeCluster) client() client.Client {
	return interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return c.cache.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return c.cache.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, next client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := c.note("create", obj); err != nil {
				return err
			}
			obj.SetCreationTimestamp(metav1.Now())
			return next.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, next client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := c.note("patch", obj); err != nil {
				return err
			}
			return next.Patch(ctx, obj, patch, opts...)
		},
		Delete: func(ctx context.Context, next client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := c.note("delete", obj); err != nil {
				return err
			}
			return next.Delete(ctx, obj, opts...)
		},
		SubResourcePatch: func(ctx context.Context, _ client.Client, _ string, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			if err := c.note("patch", obj); err != nil {
				return err
			}
			data, err := patch.Data(obj)
			if err != nil {
				return err
			}
			// Unlike an API server, the fake ignores the metadata in a patch of a status.
			if err := c.Status().Patch(ctx, obj, client.RawPatch(patch.Type(), data)); err != nil {
				return err
			}
			return c.Patch(ctx, obj, client.RawPatch(patch.Type(), data))
		},
	})
}

// live reads from the API server.
func (c *fakeCluster) live() client.Reader {
	return interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := c.note("get", obj); err != nil {
				return err
			}
			return next.Get(ctx, key, obj, opts...)
		},
	})
}

// requests returns the requests since the last call, as "VERB RESOURCE".
func (c *fakeCluster) requests() []string {
	out := append([]string{}, c.seen...)
	c.seen = nil
	return out
}

// newBench makes a bench with a machine and, unless it is nil, a Service of the shoot.
func newBench(t *testing.T, service *corev1.Service) *bench {
	t.Helper()
	inShoot := []client.Object{newNode("a")}
	if service != nil {
		inShoot = append(inShoot, service)
	}
	b := &bench{t: t, shoot: newFakeCluster(inShoot...), seed: newFakeCluster(newPod("a", "10.0.0.1")), recorder: record.NewFakeRecorder(100)}
	b.start()
	return b
}

// start makes a reconciler without a memory.
func (b *bench) start() {
	b.reconciler = &reconciler{
		shoot: newCluster(b.shoot.client(), b.shoot.live()), seed: newCluster(b.seed.client(), b.seed.live()), namespace: namespace, events: b.recorder,
	}
}

// catchUp has the cache of the seed show what there is.
func (b *bench) catchUp() {
	b.t.Helper()
	g := NewWithT(b.t)
	services, endpointSlices := &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}
	g.Expect(b.seed.List(b.t.Context(), services)).To(Succeed())
	g.Expect(b.seed.List(b.t.Context(), endpointSlices)).To(Succeed())
	objects := []client.Object{newPod("a", "10.0.0.1")}
	for i := range services.Items {
		objects = append(objects, &services.Items[i])
	}
	for i := range endpointSlices.Items {
		objects = append(objects, &endpointSlices.Items[i])
	}
	b.seed.show(objects...)
}

// service returns the Service of the shoot as the API server has it, nil if it is gone.
func (b *bench) service() *corev1.Service {
	b.t.Helper()
	service, err := reconcilers.Find[corev1.Service](b.t.Context(), b.shoot, client.ObjectKeyFromObject(newService()))
	NewWithT(b.t).Expect(err).NotTo(HaveOccurred())
	return service
}

// inTheSeed returns the Service of the seed as the API server has it, nil if it is gone.
func (b *bench) inTheSeed() *corev1.Service {
	b.t.Helper()
	service, err := reconcilers.Find[corev1.Service](b.t.Context(), b.seed, b.inSeed(seedName))
	NewWithT(b.t).Expect(err).NotTo(HaveOccurred())
	return service
}

// change changes an object of the seed.
func (b *bench) change(obj client.Object, change func()) {
	b.t.Helper()
	change()
	NewWithT(b.t).Expect(b.seed.Update(b.t.Context(), obj)).To(Succeed())
}

// give gives the seed's Service an address, or a reason why it has none, and shows it.
func (b *bench) give(address, reason string) {
	b.t.Helper()
	service := b.inTheSeed()
	service.Status = corev1.ServiceStatus{}
	if address != "" {
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	}
	if reason != "" {
		service.Status.Conditions = []metav1.Condition{{Type: loadbalancer.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: "there are none left"}}
	}
	NewWithT(b.t).Expect(b.seed.Status().Update(b.t.Context(), service)).To(Succeed())
	b.catchUp()
}

// reconcile reconciles the Service.
func (b *bench) reconcile() (reconcile.Result, error) {
	return b.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(newService())})
}

// mustReconcile does so and returns the requests to the seed.
func (b *bench) mustReconcile() []string {
	b.t.Helper()
	_, err := b.reconcile()
	NewWithT(b.t).Expect(err).NotTo(HaveOccurred())
	return b.seed.requests()
}

// reasons returns the reasons of the Events since the last call.
func (b *bench) reasons() []string {
	out := []string{}
	for len(b.recorder.Events) > 0 {
		out = append(out, strings.Fields(<-b.recorder.Events)[1])
	}
	return out
}

// showDeletion tells that the cache of the seed has shown an object and does not any more.
func showDeletion(b *bench, obj client.Object) {
	b.reconciler.seed.forgetDeleted().Delete(event.DeleteEvent{Object: obj})
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/test/requests"
)

const namespace = "shoot--local--foo"

// server is a fake API server, with or without Calico's API.
type server struct {
	client.WithWatch
	t      testing.TB
	calico bool
	// fail may return an error for a request.
	fail func(verb, kind string) error
	// requests are all of them, as "VERB KIND".
	requests []string
}

func newServer(t testing.TB, calico bool, objects ...client.Object) *server {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, networkingv1.AddToScheme, extensionsv1alpha1.AddToScheme} {
		NewWithT(t).Expect(add(scheme)).To(Succeed())
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if kind.Kind == "Namespace" || kind.Kind == "Cluster" {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	mapper.Add(machine.IPPoolKind, meta.RESTScopeRoot)

	s := &server{t: t, calico: calico}
	s.WithWatch = interceptor.NewClient(fakeclient.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).
		WithTypeConverters(requests.TypeConverters()...).
		WithStatusSubresource(&extensionsv1alpha1.Infrastructure{}).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return s.request("get", obj, func() error { return c.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return s.request("list", list, func() error { return c.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return s.request("create", obj, func() error {
				if _, ok := obj.(*corev1.Namespace); ok {
					obj.SetUID("made") // as an API server does it
				}
				return c.Create(ctx, obj, opts...)
			})
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return s.request("apply", obj.(runtime.Object), func() error { return c.Apply(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return s.request("patch", obj, func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return s.request("delete", obj, func() error { return c.Delete(ctx, obj, opts...) })
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteAllOfOption) error {
			return s.request("delete all", obj, func() error { return c.DeleteAllOf(ctx, obj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return s.request("status", obj, func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
		},
	})
	return s
}

func (s *server) request(verb string, obj runtime.Object, do func() error) error {
	kind, err := s.GroupVersionKindFor(obj)
	NewWithT(s.t).Expect(err).NotTo(HaveOccurred())
	s.requests = append(s.requests, verb+" "+kind.Kind)
	if s.fail != nil {
		if err := s.fail(verb, kind.Kind); err != nil {
			return err
		}
	}
	if kind.Group == machine.IPPoolKind.Group && !s.calico {
		return &meta.NoKindMatchError{GroupKind: kind.GroupKind()}
	}
	return do()
}

// only returns the requests about what is not the Infrastructure and its Cluster, which the manager's cache serves.
func (s *server) only() []string {
	var out []string
	for _, request := range s.requests {
		switch request {
		case "get Infrastructure", "get Cluster", "patch Infrastructure", "status Infrastructure":
		default:
			out = append(out, request)
		}
	}
	return out
}

func (s *server) has(obj client.Object) bool {
	s.t.Helper()
	err := s.Get(s.t.Context(), client.ObjectKeyFromObject(obj), obj)
	if apierrors.IsNotFound(err) {
		return false
	}
	NewWithT(s.t).Expect(err).NotTo(HaveOccurred())
	return true
}

func (s *server) pool(name string) *unstructured.Unstructured {
	s.t.Helper()
	pool := newPool(name)
	if !s.has(pool) {
		return nil
	}
	return pool
}

func (s *server) policy(namespace, name string) *networkingv1.NetworkPolicy {
	s.t.Helper()
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if !s.has(policy) {
		return nil
	}
	return policy
}

// serversPolicies are the names of the NetworkPolicies for clients.
func serversPolicies() []string {
	var out []string
	for name := range clients() {
		out = append(out, ServersPolicy+name)
	}
	return out
}

// environment is a seed with an Infrastructure, and another cluster.
type environment struct {
	*server
	other      *server
	clusters   fakeClusters
	shoot      *gardencorev1beta1.Shoot
	reconciler reconcile.Reconciler
	clock      *testclock.FakePassiveClock
	// asked is when an operation was asked for last.
	asked time.Time
	// servers are where API servers of machines' clusters may be.
	servers []netip.Prefix
}

// fakeClusters are the seed unless there is another one.
type fakeClusters struct {
	seed, other client.Client
	err         error
	asked       int
}

func (f *fakeClusters) Get(_ context.Context, _ corev1.SecretReference, technicalID string) (*cluster.Cluster, error) {
	f.asked++
	if f.err != nil {
		return nil, f.err
	}
	if f.other != nil {
		return &cluster.Cluster{Client: f.other, Config: &rest.Config{}, Namespace: "infra-" + technicalID, Remote: true}, nil
	}
	return &cluster.Cluster{Client: f.seed, Config: &rest.Config{}, Namespace: technicalID}, nil
}

type fakeManager struct {
	manager.Manager
	client client.Client
}

func (m *fakeManager) GetClient() client.Client    { return m.client }
func (m *fakeManager) GetAPIReader() client.Reader { return m.client }

func newShoot() *gardencorev1beta1.Shoot {
	return &gardencorev1beta1.Shoot{
		TypeMeta:   metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden-local", Name: "foo"},
		Spec: gardencorev1beta1.ShootSpec{Networking: &gardencorev1beta1.Networking{
			Nodes: new("10.0.0.0/16"), Pods: new("10.3.0.0/16"), Services: new("10.4.0.0/16"), IPFamilies: []gardencorev1beta1.IPFamily{ipv4},
		}},
	}
}

// newEnvironment has machines in the seed if remote is false.
func newEnvironment(t testing.TB, remote, calico bool) *environment {
	t.Helper()
	seed := &gardencorev1beta1.Seed{
		TypeMeta:   metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Seed"},
		ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Spec:       gardencorev1beta1.SeedSpec{Networks: gardencorev1beta1.SeedNetworks{Nodes: new("172.18.0.0/24"), Pods: "10.8.0.0/16", Services: "10.2.0.0/16", BlockCIDRs: []string{"172.30.1.0/24"}}},
	}
	e := &environment{
		asked: time.Now(),
		server: newServer(t, calico,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, UID: "seed"}},
			&extensionsv1alpha1.Infrastructure{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "foo", Generation: 1},
				Spec: extensionsv1alpha1.InfrastructureSpec{
					DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"},
					SecretRef:   corev1.SecretReference{Namespace: namespace, Name: "cloudprovider"},
				},
			},
			&extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		),
		other: newServer(t, calico),
		shoot: newShoot(),
		clock: testclock.NewFakePassiveClock(time.Now()),
	}
	e.clusters.seed = e.server
	if remote {
		e.clusters.other = e.other
	}
	raw := rawOf(t, seed)
	e.change(&extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, func(obj client.Object) {
		obj.(*extensionsv1alpha1.Cluster).Spec.Seed = &raw
	})
	e.setShoot(func(*gardencorev1beta1.Shoot) {})
	e.restart()
	return e
}

func rawOf(t testing.TB, obj any) runtime.RawExtension {
	t.Helper()
	data, err := json.Marshal(obj)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return runtime.RawExtension{Raw: data}
}

// restart makes a new reconciler, as a new process would.
func (e *environment) restart() {
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassShoot}, extensionsv1alpha1.ExtensionClassShoot)
	NewWithT(e.t).Expect(err).NotTo(HaveOccurred())
	opts := Options{Shared: reconciler.Shared{Classes: classes}, Clusters: &e.clusters, CoreDNSNamespace: "coredns"}
	r := newReconciler(&fakeManager{client: e.server}, opts, ranges{
		loadBalancers: prefixes("172.18.255.1/32"), egress: prefixes("192.168.7.0/24"), resolvers: prefixes("10.9.0.10/32"), allowed: prefixes("198.51.100.0/24"),
		servers: e.servers,
	})
	r.Clock = e.clock
	e.reconciler = r
}

func (e *environment) change(obj client.Object, change func(client.Object)) {
	e.t.Helper()
	g := NewWithT(e.t)
	g.Expect(e.Get(e.t.Context(), client.ObjectKeyFromObject(obj), obj)).To(Succeed())
	change(obj)
	g.Expect(e.Update(e.t.Context(), obj)).To(Succeed())
}

func (e *environment) setShoot(change func(*gardencorev1beta1.Shoot)) {
	e.t.Helper()
	change(e.shoot)
	e.change(&extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, func(obj client.Object) {
		obj.(*extensionsv1alpha1.Cluster).Spec.Shoot = rawOf(e.t, e.shoot)
	})
}

// ask annotates the Infrastructure with an operation.
func (e *environment) ask(operation string) {
	e.t.Helper()
	e.asked = e.asked.Add(time.Minute)
	e.change(&extensionsv1alpha1.Infrastructure{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "foo"}}, func(obj client.Object) {
		obj.SetAnnotations(requests.Asking(operation, e.asked))
	})
}

func (e *environment) delete() {
	e.t.Helper()
	NewWithT(e.t).Expect(e.Delete(e.t.Context(), e.infrastructure())).To(Succeed())
}

func (e *environment) reconcile() (reconcile.Result, error) {
	e.requests, e.other.requests = nil, nil
	return e.reconciler.Reconcile(e.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "foo"}})
}

func (e *environment) mustReconcile() reconcile.Result {
	e.t.Helper()
	result, err := e.reconcile()
	NewWithT(e.t).Expect(err).NotTo(HaveOccurred())
	return result
}

func (e *environment) infrastructure() *extensionsv1alpha1.Infrastructure {
	e.t.Helper()
	infra := &extensionsv1alpha1.Infrastructure{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "foo"}}
	if !e.has(infra) {
		return nil
	}
	return infra
}

func (e *environment) providerStatus() localv1alpha1.InfrastructureStatus {
	e.t.Helper()
	status := localv1alpha1.InfrastructureStatus{}
	NewWithT(e.t).Expect(json.Unmarshal(e.infrastructure().Status.ProviderStatus.Raw, &status)).To(Succeed())
	return status
}

// calicoPool is one that is not of this extension.
func calicoPool(name, cidr string, fields map[string]any) *unstructured.Unstructured {
	pool := newPool(name)
	pool.Object["spec"] = map[string]any{"cidr": cidr}
	for field, value := range fields {
		pool.Object["spec"].(map[string]any)[field] = value
	}
	return pool
}

func invalid(name string) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "create", schema.GroupResource{Resource: "ippools"}, name, "overlaps", 0, true)
}

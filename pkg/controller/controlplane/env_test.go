// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/yaml"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/managedresources"

	"github.com/gardener/gardener-extension-provider-local/charts/components"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
	"github.com/gardener/gardener-extension-provider-local/test/requests"
)

const (
	grmFinalizer = "resources.gardener.cloud/gardener-resource-manager"
	namespace    = "shoot--local--foo"
)

// cluster is a fake seed with one ControlPlane and a test of what the controller does to it.
type cluster struct {
	client.WithWatch
	t     testing.TB
	clock *testclock.FakeClock
	opts  Options
	// fail may return an error for a request.
	fail func(verb string, obj client.Object) error
	// served is what a cache serves instead of the ManagedResource with the webhooks.
	served *resourcesv1alpha1.ManagedResource
	// change is in the webhooks from the next restart on.
	change string
	// requests are those that would reach an API server, in the form "VERB KIND". The secrets manager deletes in parallel.
	requests []string
	lock     sync.Mutex

	reconciler *reconciler.Reconciler[*extensionsv1alpha1.ControlPlane]
}

// fakeManager is as much of a manager as the controller asks for.
type fakeManager struct {
	manager.Manager
	client client.Client
	reader client.Reader
}

func (m *fakeManager) GetClient() client.Client    { return m.client }
func (m *fakeManager) GetAPIReader() client.Reader { return m.reader }

// webhooks stand for those of package webhook.
type webhooks struct {
	writer *resources.Writer
	// change is empty at first.
	change string
}

func (w *webhooks) Apply(ctx context.Context, namespace string) error {
	return w.writer.Apply(ctx, resources.ManagedResource{Namespace: namespace, Name: WebhooksName, Objects: []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "webhooks", Annotations: map[string]string{"change": w.change}}},
	}})
}

func (w *webhooks) Delete(ctx context.Context, namespace string) (bool, error) {
	return w.writer.Delete(ctx, client.ObjectKey{Namespace: namespace, Name: WebhooksName})
}

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, resourcesv1alpha1.AddToScheme, extensionsv1alpha1.AddToScheme} {
		NewWithT(t).Expect(add(scheme)).To(Succeed())
	}
	return scheme
}

func newShoot() *gardencorev1beta1.Shoot {
	return &gardencorev1beta1.Shoot{
		TypeMeta:   metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden-local", Name: "foo"},
		Spec: gardencorev1beta1.ShootSpec{
			Kubernetes: gardencorev1beta1.Kubernetes{Version: "1.34.1"},
			Provider:   gardencorev1beta1.Provider{Type: "local", Workers: []gardencorev1beta1.Worker{{Name: "worker"}}},
		},
	}
}

func hibernate(shoot *gardencorev1beta1.Shoot) {
	shoot.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)}
}

func newOptions(t testing.TB) Options {
	t.Helper()
	g := NewWithT(t)
	renderer, err := chart.NewRenderer("1.34.1")
	g.Expect(err).NotTo(HaveOccurred())
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"seed", "shoot"}, "seed", "shoot")
	g.Expect(err).NotTo(HaveOccurred())
	return Options{
		Shared:               reconciler.Shared{Classes: classes},
		Renderer:             renderer,
		LocalPathProvisioner: Component{Chart: chart.Embedded(components.FS, components.LocalPathProvisioner), Image: "local-path-provisioner:1"},
		CloudController:      Component{Chart: chart.Embedded(components.FS, components.CloudController), Image: "gardenlet-extension:1"},
	}
}

// withoutCredentials leaves out the password, which is renewed all the time.
func withoutCredentials(namespace string) []secretConfig {
	return slices.DeleteFunc(secretConfigs(namespace), func(config secretConfig) bool { return config.GetName() == dummyAuthName })
}

// withCredentials has all secrets.
func (c *cluster) withCredentials() *cluster {
	c.opts.secretConfigs = nil
	c.restart()
	return c
}

// newCluster has a ControlPlane in the namespace of a shoot.
func newCluster(t testing.TB, mutate ...func(*gardencorev1beta1.Shoot)) *cluster {
	t.Helper()
	c := &cluster{t: t, clock: testclock.NewFakeClock(time.Now()), opts: newOptions(t)}
	c.opts.secretConfigs = withoutCredentials
	c.WithWatch = fake.NewClientBuilder().WithScheme(testScheme(t)).WithTypeConverters(requests.TypeConverters()...).
		WithObjects(
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
			&extensionsv1alpha1.ControlPlane{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "foo", UID: "uid", Generation: 1},
				Spec:       extensionsv1alpha1.ControlPlaneSpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"}},
			},
			&extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace, Annotations: map[string]string{
				"generic-token-kubeconfig.secret.gardener.cloud/name": "generic-token-kubeconfig-1234",
			}}},
		).
		WithStatusSubresource(&extensionsv1alpha1.ControlPlane{}, &resourcesv1alpha1.ManagedResource{}).Build()
	c.setShoot(mutate...)
	c.restart()
	return c
}

// newServedCluster has a shoot whose webhooks are applied.
func newServedCluster(t testing.TB, mutate ...func(*gardencorev1beta1.Shoot)) *cluster {
	t.Helper()
	c := newCluster(t, mutate...)
	c.mustReconcile()
	c.healthy()
	return c
}

// setShoot writes the shoot into the Cluster.
func (c *cluster) setShoot(mutate ...func(*gardencorev1beta1.Shoot)) {
	c.t.Helper()
	g := NewWithT(c.t)
	shoot := newShoot()
	for _, mutate := range mutate {
		mutate(shoot)
	}
	raw, err := json.Marshal(shoot)
	g.Expect(err).NotTo(HaveOccurred())

	cluster := &extensionsv1alpha1.Cluster{}
	g.Expect(c.Get(c.t.Context(), client.ObjectKey{Name: namespace}, cluster)).To(Succeed())
	cluster.Spec.Shoot = runtime.RawExtension{Raw: raw}
	g.Expect(c.Update(c.t.Context(), cluster)).To(Succeed())
}

// restart makes a new reconciler, as a new process would.
func (c *cluster) restart() {
	observed := interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if mr, ok := obj.(*resourcesv1alpha1.ManagedResource); ok && c.served != nil && key == client.ObjectKeyFromObject(c.served) {
				c.served.DeepCopyInto(mr)
				return nil
			}
			return c.request("get", obj, func() error { return inner.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return c.request("list", &corev1.Secret{}, func() error { return inner.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			obj.SetCreationTimestamp(metav1.NewTime(c.clock.Now()))
			return c.request("create", obj, func() error { return inner.Create(ctx, obj, opts...) })
		},
		Apply: func(ctx context.Context, inner client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return c.request("apply", obj.(client.Object), func() error { return inner.Apply(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, inner client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return c.request("patch", obj, func() error { return inner.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return c.request("delete", obj, func() error { return inner.Delete(ctx, obj, opts...) })
		},
		DeleteAllOf: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.DeleteAllOfOption) error {
			return c.request("deletecollection", obj, func() error { return inner.DeleteAllOf(ctx, obj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, inner client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return c.request("status", obj, func() error { return inner.SubResource(sub).Patch(ctx, obj, patch, opts...) })
		},
	})
	live := interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return c.request("live", obj, func() error { return inner.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return c.request("live", &corev1.Node{}, func() error { return inner.List(ctx, list, opts...) })
		},
	})

	opts := c.opts
	opts.Resources = resources.New(observed)
	opts.Clock = c.clock
	opts.ShootClusters = reconciler.NewClusters(observed)
	if opts.ShootWebhooks == nil {
		opts.ShootWebhooks = &webhooks{writer: opts.Resources, change: c.change}
	}
	c.reconciler = newReconciler(&fakeManager{client: observed, reader: live}, opts)
}

// request counts what is not answered by the manager's cache, where Secrets are not.
func (c *cluster) request(verb string, obj client.Object, do func() error) error {
	_, isSecret := obj.(*corev1.Secret)
	_, isMetadata := obj.(*metav1.PartialObjectMetadata)
	if verb != "get" || isSecret || isMetadata {
		kind := obj.GetObjectKind().GroupVersionKind().Kind
		if gvk, err := c.GroupVersionKindFor(obj); err == nil {
			kind = gvk.Kind
		}
		c.lock.Lock()
		c.requests = append(c.requests, verb+" "+kind)
		c.lock.Unlock()
	}
	if c.fail != nil {
		if err := c.fail(verb, obj); err != nil {
			return err
		}
	}
	return do()
}

func (c *cluster) reconcile() (reconcile.Result, error) {
	c.requests = nil
	return c.reconciler.Wrap(c.reconciler).Reconcile(c.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "foo"}})
}

// isQueuedAtStart reports whether an instance reconciles the ControlPlane when it starts.
func (c *cluster) isQueuedAtStart() bool {
	c.t.Helper()
	cp := c.controlPlane()
	return !slices.ContainsFunc(c.reconciler.Predicates(), func(p predicate.Predicate) bool { return !p.Create(event.CreateEvent{Object: cp}) })
}

func (c *cluster) mustReconcile() reconcile.Result {
	c.t.Helper()
	result, err := c.reconcile()
	NewWithT(c.t).Expect(err).NotTo(HaveOccurred())
	return result
}

func (c *cluster) controlPlane() *extensionsv1alpha1.ControlPlane {
	c.t.Helper()
	cp := &extensionsv1alpha1.ControlPlane{}
	NewWithT(c.t).Expect(c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: "foo"}, cp)).To(Succeed())
	return cp
}

func (c *cluster) isGone() bool {
	c.t.Helper()
	return apierrors.IsNotFound(c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: "foo"}, &extensionsv1alpha1.ControlPlane{}))
}

// managedResource returns nil if there is none.
func (c *cluster) managedResource(name string) *resourcesv1alpha1.ManagedResource {
	c.t.Helper()
	mr := &resourcesv1alpha1.ManagedResource{}
	err := c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, mr)
	if apierrors.IsNotFound(err) {
		return nil
	}
	NewWithT(c.t).Expect(err).NotTo(HaveOccurred())
	return mr
}

// managedResources returns the names of all.
func (c *cluster) managedResources() []string {
	c.t.Helper()
	list := &resourcesv1alpha1.ManagedResourceList{}
	NewWithT(c.t).Expect(c.List(c.t.Context(), list)).To(Succeed())
	var out []string
	for _, mr := range list.Items {
		out = append(out, mr.Name)
	}
	return out
}

// objects returns what a ManagedResource holds, by "KIND NAMESPACE/NAME".
func (c *cluster) objects(name string) map[string]client.Object {
	c.t.Helper()
	g := NewWithT(c.t)
	secret := &corev1.Secret{}
	g.Expect(c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: c.managedResource(name).Spec.SecretRefs[0].Name}, secret)).To(Succeed())
	g.Expect(secret.Data).To(HaveKey("data.yaml.br"))
	objects, err := managedresources.ExtractObjectsFromSecret(yaml.NewDecodingSerializer(unstructured.UnstructuredJSONScheme), secret)
	g.Expect(err).NotTo(HaveOccurred())

	out := map[string]client.Object{}
	for _, object := range objects {
		out[object.GetObjectKind().GroupVersionKind().Kind+" "+object.GetNamespace()+"/"+object.GetName()] = object
	}
	return out
}

// secrets returns those of the secrets manager, by the name in their label.
func (c *cluster) secrets() map[string][]corev1.Secret {
	c.t.Helper()
	list := &corev1.SecretList{}
	NewWithT(c.t).Expect(c.List(c.t.Context(), list, client.MatchingLabels{"manager-identity": "provider-local-controlplane"})).To(Succeed())
	out := map[string][]corev1.Secret{}
	for _, secret := range list.Items {
		out[secret.Labels["name"]] = append(out[secret.Labels["name"]], secret)
	}
	return out
}

// healthy does what GRM does once it has applied the webhooks.
func (c *cluster) healthy() {
	c.t.Helper()
	mr := c.managedResource(WebhooksName)
	mr.Status.ObservedGeneration = mr.Generation
	for _, condition := range []gardencorev1beta1.ConditionType{resourcesv1alpha1.ResourcesApplied, resourcesv1alpha1.ResourcesHealthy} {
		mr.Status.Conditions = append(mr.Status.Conditions, gardencorev1beta1.Condition{Type: condition, Status: gardencorev1beta1.ConditionTrue})
	}
	mr.Status.Conditions = append(mr.Status.Conditions, gardencorev1beta1.Condition{Type: resourcesv1alpha1.ResourcesProgressing, Status: gardencorev1beta1.ConditionFalse})
	NewWithT(c.t).Expect(c.Status().Update(c.t.Context(), mr)).To(Succeed())
}

// serve does what GRM does first, or last, with ManagedResources.
func (c *cluster) serve(finalizers []string, names ...string) {
	c.t.Helper()
	for _, name := range names {
		mr := c.managedResource(name)
		mr.Finalizers = finalizers
		NewWithT(c.t).Expect(c.Update(c.t.Context(), mr)).To(Succeed())
	}
}

// operation is what the reconciler would hand to an actuator that is made by newActuator.
func (c *cluster) operation() *operation {
	c.t.Helper()
	decoded, err := extensioncluster.Get(c.t.Context(), c, namespace)
	NewWithT(c.t).Expect(err).NotTo(HaveOccurred())
	return &operation{Log: log(), Object: c.controlPlane(), Cluster: decoded, Type: gardencorev1beta1.LastOperationTypeCreate}
}

func (c *cluster) newActuator() *actuator {
	opts := c.opts
	opts.Resources, opts.Clock = resources.New(c), c.clock
	return &actuator{Options: opts, client: c, reader: c, nodes: utilcache.NewExpiringWithClock(c.clock), emptied: lru.New(1)}
}

// ask sets the operation annotation.
func (c *cluster) ask(operation string) {
	c.t.Helper()
	c.annotate(map[string]string{"gardener.cloud/operation": operation})
}

func (c *cluster) annotate(annotations map[string]string) {
	c.t.Helper()
	cp := c.controlPlane()
	cp.Annotations = annotations
	NewWithT(c.t).Expect(c.Update(c.t.Context(), cp)).To(Succeed())
}

func (c *cluster) delete() {
	c.t.Helper()
	NewWithT(c.t).Expect(c.Delete(c.t.Context(), c.controlPlane())).To(Succeed())
}

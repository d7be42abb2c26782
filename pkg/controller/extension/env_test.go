// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
	"github.com/gardener/gardener-extension-provider-local/test/requests"
)

const grmFinalizer = "resources.gardener.cloud/gardener-resource-manager"

// cluster is a fake cluster with one Extension and a test of what the controller does to it.
type cluster struct {
	client.WithWatch
	t   testing.TB
	key client.ObjectKey
	// kind is that of the Extension.
	kind kind
	// stale is the ManagedResource as the cache has it, if that lags behind.
	stale *resourcesv1alpha1.ManagedResource
	// fail may return an error for a write of an object.
	fail func(verb string, obj client.Object) error
	// statusWrites counts writes of the Extension's status.
	statusWrites int

	reconciler reconcile.Reconciler
	// forceDeleteTest is the switch by which a shoot may ask for leftovers.
	forceDeleteTest bool
}

// fakeManager is as much of a manager as the controllers ask for.
type fakeManager struct {
	manager.Manager
	client client.Client
	reader client.Reader
}

func (m *fakeManager) GetClient() client.Client    { return m.client }
func (m *fakeManager) GetAPIReader() client.Reader { return m.reader }

func kindOf(t testing.TB, extensionType string) kind {
	t.Helper()
	for _, kind := range kinds() {
		if kind.extensionType == extensionType {
			return kind
		}
	}
	t.Fatalf("there is no type %s", extensionType)
	return kind{}
}

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, resourcesv1alpha1.AddToScheme, extensionsv1alpha1.AddToScheme} {
		NewWithT(t).Expect(add(scheme)).To(Succeed())
	}
	return scheme
}

// newCluster has an Extension of type local-ext-shoot and class garden in the namespace garden, and no Cluster.
func newCluster(t testing.TB) *cluster {
	t.Helper()
	return newGardenCluster(t, TypeShoot, extensionsv1alpha1.ExtensionClassGarden)
}

// newGardenCluster has an Extension in the namespace garden, and no Cluster.
func newGardenCluster(t testing.TB, extensionType string, class extensionsv1alpha1.ExtensionClass) *cluster {
	t.Helper()
	c := &cluster{t: t, kind: kindOf(t, extensionType)}
	return c.with(map[string]string{}, nil, &extensionsv1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "ext", Generation: 1},
		Spec:       extensionsv1alpha1.ExtensionSpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: extensionType, Class: &class}},
	})
}

// newShootCluster has an Extension of type local-ext-shoot without class in the namespace of a shoot.
func newShootCluster(t testing.TB, shoot *gardencorev1beta1.Shoot) *cluster {
	t.Helper()
	return newShootClusterOf(t, TypeShoot, shoot)
}

// newShootClusterOf has an Extension without class in the namespace of a shoot, and the Cluster unless shoot is nil.
func newShootClusterOf(t testing.TB, extensionType string, shoot *gardencorev1beta1.Shoot) *cluster {
	t.Helper()
	c := &cluster{t: t, kind: kindOf(t, extensionType), forceDeleteTest: true}
	return c.with(map[string]string{"gardener.cloud/role": "shoot"}, shoot, &extensionsv1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--local--foo", Name: "ext", Generation: 1},
		Spec:       extensionsv1alpha1.ExtensionSpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: extensionType}},
	})
}

func (c *cluster) with(namespaceLabels map[string]string, shoot *gardencorev1beta1.Shoot, ex *extensionsv1alpha1.Extension) *cluster {
	c.t.Helper()
	c.key = client.ObjectKeyFromObject(ex)
	objects := []client.Object{ex, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ex.Namespace, Labels: namespaceLabels}}}
	if shoot != nil {
		shoot.TypeMeta = metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"}
		raw, err := json.Marshal(shoot)
		NewWithT(c.t).Expect(err).NotTo(HaveOccurred())
		objects = append(objects, &extensionsv1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: ex.Namespace},
			Spec:       extensionsv1alpha1.ClusterSpec{Shoot: runtime.RawExtension{Raw: raw}},
		})
	}

	c.WithWatch = fake.NewClientBuilder().WithScheme(testScheme(c.t)).WithObjects(objects...).WithTypeConverters(requests.TypeConverters()...).
		WithStatusSubresource(&extensionsv1alpha1.Extension{}, &resourcesv1alpha1.ManagedResource{}).Build()
	c.restart()
	return c
}

// restart makes a new reconciler, as a new process would.
func (c *cluster) restart() {
	disturbed := interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if mr, ok := obj.(*resourcesv1alpha1.ManagedResource); ok && c.stale != nil {
				c.stale.DeepCopyInto(mr)
				return nil
			}
			return inner.Get(ctx, key, obj, opts...)
		},
		Create: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return c.unless("create", obj, func() error { return inner.Create(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, inner client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return c.unless("patch", obj, func() error { return inner.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return c.unless("delete", obj, func() error { return inner.Delete(ctx, obj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, inner client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			c.statusWrites++
			return inner.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
	set, err := class.New(c.kind.classes, c.kind.classes...)
	NewWithT(c.t).Expect(err).NotTo(HaveOccurred())
	opts := Options{Shared: reconciler.Shared{Classes: set}, Resources: resources.New(disturbed), ForceDeleteTest: c.forceDeleteTest}
	r := newReconciler(&fakeManager{client: disturbed, reader: c.WithWatch}, opts, c.kind)
	r.Quiet = -1 // What is waited for is said at once.
	c.reconciler = r
}

func (c *cluster) unless(verb string, obj client.Object, do func() error) error {
	if c.fail != nil {
		if err := c.fail(verb, obj); err != nil {
			return err
		}
	}
	return do()
}

func (c *cluster) reconcile() (reconcile.Result, error) {
	return c.reconciler.Reconcile(c.t.Context(), reconcile.Request{NamespacedName: c.key})
}

func (c *cluster) mustReconcile() reconcile.Result {
	c.t.Helper()
	result, err := c.reconcile()
	NewWithT(c.t).Expect(err).NotTo(HaveOccurred())
	return result
}

func (c *cluster) extension() *extensionsv1alpha1.Extension {
	c.t.Helper()
	ex := &extensionsv1alpha1.Extension{}
	NewWithT(c.t).Expect(c.Get(c.t.Context(), c.key, ex)).To(Succeed())
	return ex
}

// managedResource returns nil if there is none.
func (c *cluster) managedResource() *resourcesv1alpha1.ManagedResource {
	c.t.Helper()
	mr := &resourcesv1alpha1.ManagedResource{}
	err := c.Get(c.t.Context(), client.ObjectKey{Namespace: c.key.Namespace, Name: c.kind.extensionType}, mr)
	if apierrors.IsNotFound(err) {
		return nil
	}
	NewWithT(c.t).Expect(err).NotTo(HaveOccurred())
	return mr
}

func (c *cluster) secrets() []corev1.Secret {
	c.t.Helper()
	list := &corev1.SecretList{}
	NewWithT(c.t).Expect(c.List(c.t.Context(), list)).To(Succeed())
	return list.Items
}

// serve does what GRM does first, or last, with a ManagedResource.
func (c *cluster) serve(finalizers ...string) {
	c.t.Helper()
	mr := c.managedResource()
	mr.Finalizers = finalizers
	NewWithT(c.t).Expect(c.Update(c.t.Context(), mr)).To(Succeed())
}

// report writes the conditions that GRM would write.
func (c *cluster) report(applied, healthy gardencorev1beta1.ConditionStatus) {
	c.t.Helper()
	mr := c.managedResource()
	mr.Status.ObservedGeneration = mr.Generation
	mr.Status.Conditions = []gardencorev1beta1.Condition{
		{Type: resourcesv1alpha1.ResourcesApplied, Status: applied},
		{Type: resourcesv1alpha1.ResourcesHealthy, Status: healthy, Message: "as the test wants it"},
	}
	NewWithT(c.t).Expect(c.Status().Update(c.t.Context(), mr)).To(Succeed())
}

// hibernate changes the shoot in the Cluster.
func (c *cluster) hibernate(enabled bool) {
	c.t.Helper()
	hibernated := shoot(nil)
	hibernated.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: &enabled}
	c.setShoot(hibernated)
}

// setShoot replaces the shoot in the Cluster.
func (c *cluster) setShoot(shoot *gardencorev1beta1.Shoot) {
	c.t.Helper()
	cluster := &extensionsv1alpha1.Cluster{}
	NewWithT(c.t).Expect(c.Get(c.t.Context(), client.ObjectKey{Name: c.key.Namespace}, cluster)).To(Succeed())
	shoot.TypeMeta = metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"}
	raw, err := json.Marshal(shoot)
	NewWithT(c.t).Expect(err).NotTo(HaveOccurred())
	cluster.Spec.Shoot.Raw = raw
	NewWithT(c.t).Expect(c.Update(c.t.Context(), cluster)).To(Succeed())
}

// ask sets the operation annotation.
func (c *cluster) ask(operation string) {
	c.t.Helper()
	ex := c.extension()
	ex.Annotations = requests.Asking(operation, time.Now().Add(time.Minute))
	NewWithT(c.t).Expect(c.Update(c.t.Context(), ex)).To(Succeed())
}

func (c *cluster) delete() {
	c.t.Helper()
	NewWithT(c.t).Expect(c.Delete(c.t.Context(), c.extension())).To(Succeed())
}

func (c *cluster) isGone() bool {
	c.t.Helper()
	return apierrors.IsNotFound(c.Get(c.t.Context(), c.key, &extensionsv1alpha1.Extension{}))
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// events is a cache whose events a test makes itself.
type events struct {
	*informertest.FakeInformers
	scheme    *runtime.Scheme
	lock      sync.Mutex
	informers map[string]*informer
}

type informer struct {
	*controllertest.FakeInformer
	lock     sync.Mutex
	handlers []toolscache.ResourceEventHandler
}

func (e *events) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	gvk, err := apiutil.GVKForObject(obj, e.scheme)
	if err != nil {
		return nil, err
	}
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.informers[gvk.Kind] == nil {
		e.informers[gvk.Kind] = &informer{FakeInformer: controllertest.NewFakeInformer(controllertest.Synced)}
	}
	return e.informers[gvk.Kind], nil
}

func (e *events) watched() []string {
	e.lock.Lock()
	defer e.lock.Unlock()
	return slices.Sorted(maps.Keys(e.informers))
}

func (i *informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, opts toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	i.lock.Lock()
	defer i.lock.Unlock()
	i.handlers = append(i.handlers, handler)
	return i.FakeInformer.AddEventHandlerWithOptions(handler, opts)
}

func (e *events) handlers(kind string) []toolscache.ResourceEventHandler {
	e.lock.Lock()
	defer e.lock.Unlock()
	i := e.informers[kind]
	if i == nil {
		return nil
	}
	i.lock.Lock()
	defer i.lock.Unlock()
	return slices.Clone(i.handlers)
}

// newManager returns a manager on the objects of c, with events instead of watches.
func newManager(t *testing.T, c client.Client) (manager.Manager, *events) {
	t.Helper()
	events := &events{FakeInformers: &informertest.FakeInformers{}, scheme: testScheme(t), informers: map[string]*informer{}}
	mgr, err := manager.New(&rest.Config{Host: "localhost:0"}, manager.Options{
		Scheme:         events.scheme,
		Metrics:        metricsserver.Options{BindAddress: "0"},
		NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return events, nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return c, nil },
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return &liveManager{Manager: mgr, reader: c}, events
}

// liveManager reads past the cache from the objects of the test too.
type liveManager struct {
	manager.Manager
	reader client.Reader
}

func (m *liveManager) GetAPIReader() client.Reader { return m.reader }

func start(t *testing.T, mgr manager.Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Eventually(done, 10*time.Second).Should(Receive(BeNil()), "the manager ends with its context")
	})
}

func classes(t *testing.T, classes ...extensionsv1alpha1.ExtensionClass) class.Set {
	t.Helper()
	set, err := class.New(classes, extensionsv1alpha1.ExtensionClassGarden, extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return set
}

func options(c client.Client, classes class.Set) Options {
	return Options{
		Shared:    reconciler.Shared{Controller: controller.Options{SkipNameValidation: new(true)}, Classes: classes},
		Resources: resources.New(c),
	}
}

func TestWhatIsWatched(t *testing.T) {
	for name, tt := range map[string]struct {
		classes []extensionsv1alpha1.ExtensionClass
		ignore  bool
		kinds   []string
	}{
		"class garden": {[]extensionsv1alpha1.ExtensionClass{"garden"}, false, []string{"Extension", "ManagedResource"}},
		"class garden has no Cluster even without annotation": {[]extensionsv1alpha1.ExtensionClass{"garden"}, true, []string{"Extension", "ManagedResource"}},
		"class shoot":                    {[]extensionsv1alpha1.ExtensionClass{"seed", "shoot"}, false, []string{"Cluster", "Extension", "ManagedResource"}},
		"class shoot without annotation": {[]extensionsv1alpha1.ExtensionClass{"seed", "shoot"}, true, []string{"Cluster", "Extension", "ManagedResource"}},
		"class seed has no Cluster":      {[]extensionsv1alpha1.ExtensionClass{"seed"}, true, []string{"Extension", "ManagedResource"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			mgr, events := newManager(t, c)
			opts := options(c, classes(t, tt.classes...))
			opts.IgnoreOperationAnnotation = tt.ignore
			g.Expect(AddToManager(mgr, opts)).To(Succeed())

			start(t, mgr)
			<-mgr.Elected()
			g.Eventually(events.watched).Should(Equal(tt.kinds), "controllers start their watches soon")
		})
	}
}

func TestAnExtensionIsDeletedAsSoonAsItsManagedResourceIsGone(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	mgr, events := newManager(t, c.WithWatch)
	g.Expect(AddToManager(mgr, options(c.WithWatch, classes(t, extensionsv1alpha1.ExtensionClassGarden)))).To(Succeed())
	start(t, mgr)
	for _, kind := range []string{"Extension", "ManagedResource"} {
		g.Eventually(func() []toolscache.ResourceEventHandler { return events.handlers(kind) }).Should(HaveLen(1), "the controller starts its watches soon")
	}
	extensions, managedResources := events.handlers("Extension")[0], events.handlers("ManagedResource")[0]

	extensions.OnAdd(c.extension(), true)
	g.Eventually(func() bool { return c.managedResource() != nil }).Should(BeTrue(), "a new Extension is reconciled")
	g.Eventually(func() *gardencorev1beta1.LastOperation { return c.extension().Status.LastOperation }).
		Should(HaveField("State", gardencorev1beta1.LastOperationStateSucceeded), "it succeeds soon")

	c.serve(grmFinalizer)
	before := c.extension()
	c.delete()
	extensions.OnUpdate(before, c.extension())
	g.Eventually(c.managedResource).Should(HaveField("DeletionTimestamp", Not(BeNil())), "the deletion waits for the ManagedResource")

	mr := c.managedResource()
	c.serve()
	managedResources.OnDelete(mr)
	g.Eventually(c.isGone, reconciler.DefaultQuiet/2).Should(BeTrue(), "the event wakes it, long before the retry would")
}

func TestAnExtensionSucceedsAsSoonAsItsDeploymentIsReady(t *testing.T) {
	g := NewWithT(t)
	c := newShootClusterOf(t, TypeShootAfterWorker, shoot(nil))
	mgr, events := newManager(t, c.WithWatch)
	g.Expect(AddToManager(mgr, options(c.WithWatch, classes(t, extensionsv1alpha1.ExtensionClassShoot)))).To(Succeed())
	start(t, mgr)
	for _, kind := range []string{"Extension", "ManagedResource"} {
		g.Eventually(func() []toolscache.ResourceEventHandler { return events.handlers(kind) }).Should(HaveLen(3), "each of the controllers starts its watches soon")
	}

	for _, handler := range events.handlers("Extension") {
		handler.OnAdd(c.extension(), true)
	}
	g.Eventually(func() *gardencorev1beta1.LastOperation { return c.extension().Status.LastOperation }).
		Should(HaveField("State", processing), "it waits for the Deployment and says so")

	before := c.managedResource()
	c.report(yes, yes)
	for _, handler := range events.handlers("ManagedResource") {
		handler.OnUpdate(before, c.managedResource())
	}
	g.Eventually(func() gardencorev1beta1.LastOperationState { return c.extension().Status.LastOperation.State }, retryWait/3).
		Should(Equal(succeeded), "the event wakes it, long before the retry would")
}

func TestAnotherObjectUnderTheNameOfOneInTheQueueIsLeftAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		classes []extensionsv1alpha1.ExtensionClass
		cluster func() *cluster
	}{
		"one of class shoot, by the instance for class garden": {
			[]extensionsv1alpha1.ExtensionClass{"garden"}, func() *cluster { return newShootCluster(t, shoot(nil)) },
		},
		"one of class garden, by the instance in a seed": {
			[]extensionsv1alpha1.ExtensionClass{"seed", "shoot"}, func() *cluster { return newCluster(t) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := tt.cluster()
			own, _ := classes(t, tt.classes...).Only(c.kind.classes...)
			_, err := newReconciler(&fakeManager{client: c, reader: c}, options(c, own), c.kind).Reconcile(t.Context(), reconcile.Request{NamespacedName: c.key})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(c.extension().Finalizers).To(BeEmpty())
			g.Expect(c.extension().Status.LastOperation).To(BeNil())
			g.Expect(c.managedResource()).To(BeNil())
		})
	}
}

func TestWhichExtensionsWakeWhenAManagedResourceIsGone(t *testing.T) {
	garden, seed := extensionsv1alpha1.ExtensionClassGarden, extensionsv1alpha1.ExtensionClassSeed
	now := metav1.Now()

	extension := func(change func(*extensionsv1alpha1.Extension)) *extensionsv1alpha1.Extension {
		ex := &extensionsv1alpha1.Extension{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", Finalizers: []string{"f/f"}},
			Spec:       extensionsv1alpha1.ExtensionSpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: TypeShoot, Class: &garden}},
			Status:     extensionsv1alpha1.ExtensionStatus{DefaultStatus: extensionsv1alpha1.DefaultStatus{LastOperation: &gardencorev1beta1.LastOperation{Type: gardencorev1beta1.LastOperationTypeReconcile, State: succeeded}}},
		}
		change(ex)
		return ex
	}

	for name, tt := range map[string]struct {
		extension *extensionsv1alpha1.Extension
		healing   bool
		wakes     bool
	}{
		"one that has succeeded":               {extension(func(*extensionsv1alpha1.Extension) {}), false, false},
		"one that has succeeded, with healing": {extension(func(*extensionsv1alpha1.Extension) {}), true, true},
		"one that is deleted":                  {extension(func(ex *extensionsv1alpha1.Extension) { ex.DeletionTimestamp = &now }), false, true},
		"one that is to migrate": {extension(func(ex *extensionsv1alpha1.Extension) {
			ex.Annotations = map[string]string{"gardener.cloud/operation": "migrate"}
		}), false, true},
		"one that is to be reconciled": {extension(func(ex *extensionsv1alpha1.Extension) {
			ex.Annotations = map[string]string{"gardener.cloud/operation": "reconcile"}
		}), false, true},
		"one that failed":                           {extension(func(ex *extensionsv1alpha1.Extension) { ex.Status.LastOperation.State = failed }), false, true},
		"one that is new":                           {extension(func(ex *extensionsv1alpha1.Extension) { ex.Status.LastOperation = nil }), false, true},
		"one in another namespace":                  {extension(func(ex *extensionsv1alpha1.Extension) { ex.Namespace, ex.DeletionTimestamp = "other", &now }), true, false},
		"one of another type":                       {extension(func(ex *extensionsv1alpha1.Extension) { ex.Spec.Type, ex.DeletionTimestamp = "other", &now }), true, false},
		"one of a class that is not served":         {extension(func(ex *extensionsv1alpha1.Extension) { ex.Spec.Class, ex.DeletionTimestamp = &seed, &now }), true, false},
		"one without class, which stands for shoot": {extension(func(ex *extensionsv1alpha1.Extension) { ex.Spec.Class, ex.DeletionTimestamp = nil, &now }), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			g.Expect(c.Create(t.Context(), tt.extension.DeepCopy())).To(Succeed())
			if tt.extension.DeletionTimestamp != nil {
				g.Expect(c.Delete(t.Context(), tt.extension.DeepCopy())).To(Succeed())
			}
			c.key = client.ObjectKeyFromObject(tt.extension)
			ex := c.extension()
			ex.Status = tt.extension.Status
			g.Expect(c.Status().Update(t.Context(), ex)).To(Succeed())

			r := reconciler.New(reconciler.Options[*extensionsv1alpha1.Extension]{
				Shared: reconciler.Shared{Classes: classes(t, garden), IgnoreOperationAnnotation: tt.healing},
				Client: c, Types: []string{TypeShoot}, ExistsFor: kindOf(t, TypeShoot).classes,
			})
			requests := r.OfManagedResource(t.Context(), &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: TypeShoot}})
			if tt.wakes {
				g.Expect(requests).To(HaveLen(1))
				g.Expect(requests[0].NamespacedName).To(Equal(c.key))
			} else {
				g.Expect(requests).To(BeEmpty())
			}
		})
	}
}

func TestOnlyTheEndOfItsOwnManagedResourceWakesAnExtension(t *testing.T) {
	g := NewWithT(t)
	predicate := kindOf(t, TypeShoot).managedResources().Predicate()
	own := &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Name: TypeShoot}}
	other := &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Name: "other"}}

	g.Expect(predicate.Delete(event.DeleteEvent{Object: own})).To(BeTrue())
	g.Expect(predicate.Delete(event.DeleteEvent{Object: other})).To(BeFalse())
	g.Expect(predicate.Create(event.CreateEvent{Object: own})).To(BeFalse())
	g.Expect(predicate.Update(event.UpdateEvent{ObjectOld: own, ObjectNew: own})).To(BeFalse())
}

func TestOnlyWhoWaitsIsToldWhatBecomesOfAManagedResource(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind.extensionType, func(t *testing.T) {
			g := NewWithT(t)
			predicate := kind.managedResources().Predicate()
			mr := func(name string, healthy gardencorev1beta1.ConditionStatus) *resourcesv1alpha1.ManagedResource {
				mr := &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Name: name}}
				mr.Status.Conditions = []gardencorev1beta1.Condition{
					{Type: resourcesv1alpha1.ResourcesApplied, Status: yes},
					{Type: resourcesv1alpha1.ResourcesHealthy, Status: healthy},
				}
				return mr
			}
			own := kind.extensionType
			g.Expect(predicate.Create(event.CreateEvent{Object: mr(own, yes)})).To(Equal(kind.waits))
			g.Expect(predicate.Create(event.CreateEvent{Object: mr("other", yes)})).To(BeFalse())
			g.Expect(predicate.Update(event.UpdateEvent{ObjectOld: mr(own, no), ObjectNew: mr(own, yes)})).To(Equal(kind.waits))
			g.Expect(predicate.Update(event.UpdateEvent{ObjectOld: mr(own, unknown), ObjectNew: mr(own, no)})).To(Equal(kind.waits), "the reason changes")
			g.Expect(predicate.Update(event.UpdateEvent{ObjectOld: mr(own, yes), ObjectNew: mr(own, yes)})).To(BeFalse())
			g.Expect(predicate.Update(event.UpdateEvent{ObjectOld: mr("other", no), ObjectNew: mr("other", yes)})).To(BeFalse())
		})
	}
}

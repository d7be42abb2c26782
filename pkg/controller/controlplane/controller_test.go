// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// events is a cache whose events a test makes itself.
type events struct {
	*informertest.FakeInformers
	lock      sync.Mutex
	informers map[string]*informer
}

type informer struct {
	*controllertest.FakeInformer
	lock     sync.Mutex
	handlers []toolscache.ResourceEventHandler
}

func (e *events) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	e.lock.Lock()
	defer e.lock.Unlock()
	kind := fmt.Sprintf("%T", obj)
	if e.informers[kind] == nil {
		e.informers[kind] = &informer{FakeInformer: controllertest.NewFakeInformer(controllertest.Synced)}
	}
	return e.informers[kind], nil
}

func (i *informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, opts toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	i.lock.Lock()
	defer i.lock.Unlock()
	i.handlers = append(i.handlers, handler)
	return i.FakeInformer.AddEventHandlerWithOptions(handler, opts)
}

// update tells all who listen by now.
func (e *events) update(before, after *resourcesv1alpha1.ManagedResource) {
	e.lock.Lock()
	defer e.lock.Unlock()
	i := e.informers[fmt.Sprintf("%T", after)]
	if i == nil {
		return
	}
	i.lock.Lock()
	defer i.lock.Unlock()
	for _, handler := range i.handlers {
		handler.OnUpdate(before, after)
	}
}

// newManager returns a manager on the objects of c, with events instead of watches.
func newManager(t *testing.T, c client.Client) (manager.Manager, *events) {
	t.Helper()
	events := &events{FakeInformers: &informertest.FakeInformers{Scheme: c.Scheme()}, informers: map[string]*informer{}}
	mgr, err := manager.New(&rest.Config{Host: "localhost:0"}, manager.Options{
		Scheme:         c.Scheme(),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return events, nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return c, nil },
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return &managerWithReader{Manager: mgr, reader: c}, events
}

// managerWithReader has no API server to read from.
type managerWithReader struct {
	manager.Manager
	reader client.Reader
}

func (m *managerWithReader) GetAPIReader() client.Reader { return m.reader }

func TestAddToManagerRefusesWhatIsIncomplete(t *testing.T) {
	for name, test := range map[string]struct {
		mutate func(*Options)
		err    string
	}{
		"no image of local-path-provisioner": {func(o *Options) { o.LocalPathProvisioner.Image = "" }, "controlPlane.localPathProvisioner.image"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			mgr, _ := newManager(t, c)
			opts := c.opts
			opts.Resources = resources.New(c)
			test.mutate(&opts)
			g.Expect(AddToManager(mgr, opts)).To(MatchError(ContainSubstring(test.err)))
		})
	}
}

func TestAnInstanceForSeedsAloneHasNoControlPlanes(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	mgr, events := newManager(t, c)
	opts := c.opts
	opts.Resources = resources.New(c)
	only, ok := opts.Classes.Only(extensionsv1alpha1.ExtensionClassSeed)
	g.Expect(ok).To(BeTrue())
	opts.Classes = only
	g.Expect(AddToManager(mgr, opts)).To(Succeed())
	g.Expect(events.informers).To(BeEmpty())
}

func TestAChangeOfTheWebhooksWakesTheControlPlaneThatWaits(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.mustReconcile()
	waiting := c.managedResource(WebhooksName)

	mgr, events := newManager(t, c)
	opts := c.opts
	opts.Resources = resources.New(c)
	opts.ShootWebhooks = &webhooks{writer: opts.Resources}
	opts.Controller = controller.Options{SkipNameValidation: new(true)}
	g.Expect(AddToManager(mgr, opts)).To(Succeed())

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		g.Eventually(done, 10*time.Second).Should(Receive(BeNil()))
	}()

	c.healthy()
	healthy := c.managedResource(WebhooksName)
	g.Eventually(func(g Gomega) {
		events.update(waiting, healthy)
		g.Expect(c.controlPlane().Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
	}, 10*time.Second).Should(Succeed())
}

func TestWakerLooksAtWhatAControlPlaneWaitsFor(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t)
	c.mustReconcile()
	predicate := owned().Predicate()
	mr := func(name string) *resourcesv1alpha1.ManagedResource {
		out := c.managedResource(WebhooksName)
		out.Name = name
		return out
	}
	unhealthy := func(name string) *resourcesv1alpha1.ManagedResource {
		out := mr(name)
		out.Status.Conditions = nil
		return out
	}

	for _, name := range []string{WebhooksName, SeedName, ShootName, FormerStorageClassesName} {
		g.Expect(predicate.Delete(event.DeleteEvent{Object: mr(name)})).To(BeTrue(), name)
	}
	g.Expect(predicate.Delete(event.DeleteEvent{Object: mr("shoot-core")})).To(BeFalse())
	g.Expect(predicate.Create(event.CreateEvent{Object: unhealthy(WebhooksName)})).To(BeFalse())
	g.Expect(predicate.Create(event.CreateEvent{Object: mr(WebhooksName)})).To(BeTrue(), "gardener-resource-manager was faster than the watch")
	g.Expect(predicate.Create(event.CreateEvent{Object: mr(ShootName)})).To(BeFalse())
	g.Expect(predicate.Update(event.UpdateEvent{ObjectOld: unhealthy(WebhooksName), ObjectNew: mr(WebhooksName)})).To(BeTrue())
	g.Expect(predicate.Update(event.UpdateEvent{ObjectOld: mr(WebhooksName), ObjectNew: mr(WebhooksName)})).To(BeFalse())
	g.Expect(predicate.Update(event.UpdateEvent{ObjectOld: unhealthy(ShootName), ObjectNew: mr(ShootName)})).To(BeFalse())
}

func TestWakerWakesOnlyWhatIsUnderWay(t *testing.T) {
	succeeded := &gardencorev1beta1.LastOperation{Type: gardencorev1beta1.LastOperationTypeReconcile, State: gardencorev1beta1.LastOperationStateSucceeded}
	for name, test := range map[string]struct {
		mutate  func(*extensionsv1alpha1.ControlPlane)
		healing bool
		woken   bool
	}{
		"a new one": {func(*extensionsv1alpha1.ControlPlane) {}, false, true},
		"one that has failed": {func(cp *extensionsv1alpha1.ControlPlane) {
			cp.Status.LastOperation = &gardencorev1beta1.LastOperation{State: "Error"}
		}, false, true},
		"one that is asked for something": {func(cp *extensionsv1alpha1.ControlPlane) {
			cp.Status.LastOperation = succeeded
			cp.Annotations = map[string]string{"gardener.cloud/operation": "migrate"}
		}, false, true},
		"one that is done":               {func(cp *extensionsv1alpha1.ControlPlane) { cp.Status.LastOperation = succeeded }, false, false},
		"one that is done and is healed": {func(cp *extensionsv1alpha1.ControlPlane) { cp.Status.LastOperation = succeeded }, true, true},
		"one of another type":            {func(cp *extensionsv1alpha1.ControlPlane) { cp.Spec.Type = "mock" }, true, false},
		"one of another class": {func(cp *extensionsv1alpha1.ControlPlane) {
			cp.Spec.Class = new(extensionsv1alpha1.ExtensionClassGarden)
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			cp := c.controlPlane()
			g.Expect(c.Delete(t.Context(), cp)).To(Succeed())
			cp.ResourceVersion = ""
			test.mutate(cp)
			status := cp.Status
			g.Expect(c.Create(t.Context(), cp)).To(Succeed())
			cp.Status = status
			g.Expect(c.Status().Update(t.Context(), cp)).To(Succeed())

			r := reconciler.New(reconciler.Options[*extensionsv1alpha1.ControlPlane]{
				Shared: reconciler.Shared{Classes: c.opts.Classes, IgnoreOperationAnnotation: test.healing}, Client: c, Types: []string{"local"},
			})
			requests := r.OfManagedResource(t.Context(), &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ShootName}})
			g.Expect(requests).To(HaveLen(map[bool]int{true: 1, false: 0}[test.woken]))
			g.Expect(r.OfManagedResource(t.Context(), &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: ShootName}})).To(BeEmpty())
		})
	}
}

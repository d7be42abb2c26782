// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupentry

import (
	"context"
	"net/http"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// fakeCache has informers to which a test says what they see, and reads from elsewhere.
type fakeCache struct {
	*informertest.FakeInformers
	reader client.Reader
}

func (c fakeCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, key, obj, opts...)
}

// informer tells when somebody listens.
type informer struct {
	*controllertest.FakeInformer
	listening chan struct{}
}

func (i *informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, opts toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	defer close(i.listening)
	return i.FakeInformer.AddEventHandlerWithOptions(handler, opts)
}

func TestController(t *testing.T) {
	for _, served := range []extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassGarden, extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot} {
		t.Run("serves class "+string(served)+" and leaves other classes and types alone", func(t *testing.T) {
			g := NewWithT(t)
			var (
				withClass = func(class extensionsv1alpha1.ExtensionClass) func(*extensionsv1alpha1.BackupEntry) {
					return func(entry *extensionsv1alpha1.BackupEntry) { entry.Spec.Class = &class }
				}
				other = extensionsv1alpha1.ExtensionClassGarden
			)
			if served == other {
				other = extensionsv1alpha1.ExtensionClassShoot
			}

			entries := []*extensionsv1alpha1.BackupEntry{
				newEntry("shoot--other--class--1", bucket, "reconcile", withClass(other)),
				newEntry("shoot--other--type--1", bucket, "reconcile", withClass(served), func(entry *extensionsv1alpha1.BackupEntry) { entry.Spec.Type = "other" }),
				newEntry(entryName, bucket, "reconcile", withClass(served)),
			}
			objects := []client.Object{newSecret(entryName), newNamespace(namespace)}
			for _, entry := range entries {
				objects = append(objects, entry)
			}

			classes, err := class.New([]extensionsv1alpha1.ExtensionClass{served}, served)
			g.Expect(err).NotTo(HaveOccurred())
			e := newEnv(t, objects...)
			informer := startController(t, e, classes)
			for _, entry := range entries {
				informer.Add(entry)
			}

			g.Eventually(func() error { return health.CheckExtensionObject(e.entry(entryName)) }).Should(Succeed(), "the last in the queue is ours")
			for _, entry := range entries[:2] {
				g.Expect(e.entry(entry.Name).Status.LastOperation).To(BeNil(), entry.Name)
			}
		})
	}
}

// startController runs the controller in a real manager and returns the informer for BackupEntries.
func startController(t *testing.T, e *env, classes class.Set) *informer {
	t.Helper()
	g := NewWithT(t)
	informer := &informer{FakeInformer: controllertest.NewFakeInformer(controllertest.Synced), listening: make(chan struct{})}
	informers := fakeCache{reader: e.client, FakeInformers: &informertest.FakeInformers{
		Scheme: e.client.Scheme(),
		InformersByGVK: map[schema.GroupVersionKind]toolscache.SharedIndexInformer{
			extensionsv1alpha1.SchemeGroupVersion.WithKind("BackupEntry"): informer,
		},
	}}

	mgr, err := manager.New(&rest.Config{Host: "https://nowhere.invalid"}, manager.Options{
		Scheme:         e.client.Scheme(),
		Logger:         logr.Discard(),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: new(true)},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return e.client.RESTMapper(), nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return e.client, nil },
		NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return informers, nil },
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(AddToManager(withLiveReader{Manager: mgr, live: e.client}, Options{
		Shared: reconciler.Shared{Classes: classes, Controller: controller.Options{MaxConcurrentReconciles: 1}},
		Store:  e.store, HostPath: hostPath,
	})).To(Succeed())

	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		g.Expect(<-stopped).To(Succeed())
	})
	g.Eventually(informer.listening).Should(BeClosed(), "the controller is to watch BackupEntries")
	return informer
}

// withLiveReader replaces the reader that a manager makes on its own.
type withLiveReader struct {
	manager.Manager
	live client.Reader
}

func (m withLiveReader) GetAPIReader() client.Reader { return m.live }

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupbucket

import (
	"context"
	"net/http"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
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

func (c fakeCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.reader.List(ctx, list, opts...)
}

func newClasses(t *testing.T, classes ...extensionsv1alpha1.ExtensionClass) class.Set {
	t.Helper()
	set, err := class.New(classes, classes...)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return set
}

// informer is one to which a test says what it sees, once somebody listens.
type informer struct {
	*controllertest.FakeInformer
	listening chan struct{}
}

func newInformer() *informer {
	return &informer{FakeInformer: controllertest.NewFakeInformer(controllertest.Synced), listening: make(chan struct{})}
}

func (i *informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, opts toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	defer close(i.listening)
	return i.FakeInformer.AddEventHandlerWithOptions(handler, opts)
}

// withReader is a manager whose API server is a fake.
type withReader struct {
	manager.Manager
	reader client.Reader
}

func (m withReader) GetAPIReader() client.Reader { return m.reader }

// running is an env whose controller runs in a real manager.
type running struct {
	*env
	buckets, entries, secrets *informer
}

func start(t *testing.T, opts Options, objects ...client.Object) *running {
	t.Helper()
	g := NewWithT(t)
	r := &running{env: newEnv(t, objects...), buckets: newInformer(), entries: newInformer(), secrets: newInformer()}

	managerCache := fakeCache{reader: labelled{r.client}, FakeInformers: &informertest.FakeInformers{
		Scheme: r.client.Scheme(),
		InformersByGVK: map[schema.GroupVersionKind]toolscache.SharedIndexInformer{
			extensionsv1alpha1.SchemeGroupVersion.WithKind("BackupBucket"): r.buckets,
			extensionsv1alpha1.SchemeGroupVersion.WithKind("BackupEntry"):  r.entries,
			corev1.SchemeGroupVersion.WithKind("Secret"):                   r.secrets,
		},
	}}
	mgr, err := manager.New(&rest.Config{Host: "https://nowhere.invalid"}, manager.Options{
		Scheme:         r.client.Scheme(),
		Logger:         logr.Discard(),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: new(true)},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return r.client.RESTMapper(), nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return r.client, nil },
		NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return managerCache, nil },
	})
	g.Expect(err).NotTo(HaveOccurred())

	opts.Store, opts.HostPath = r.actuator.Store, hostPath
	g.Expect(AddToManager(withReader{mgr, r.client}, opts)).To(Succeed())

	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		g.Expect(<-stopped).To(Succeed())
	})
	for _, informer := range []*informer{r.buckets, r.entries, r.secrets} {
		g.Eventually(informer.listening).Should(BeClosed(), "the controller is to watch three kinds")
	}
	return r
}

func (r *running) isReady() error {
	bucket := &extensionsv1alpha1.BackupBucket{}
	if err := r.client.Get(r.t.Context(), client.ObjectKey{Name: bucketName}, bucket); err != nil {
		return err
	}
	return health.CheckExtensionObject(bucket)
}

func TestController(t *testing.T) {
	garden := newClasses(t, extensionsv1alpha1.ExtensionClassGarden)

	t.Run("watches just the Secrets it makes", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(CacheOptions()).To(HaveLen(1))
		for obj, byObject := range CacheOptions() {
			g.Expect(obj).To(BeAssignableToTypeOf(&corev1.Secret{}))
			g.Expect(byObject.Namespaces).To(And(HaveLen(1), HaveKey("garden")))
			g.Expect(byObject.Label.String()).To(Equal(LabelGeneratedFor + "=" + LabelValueBackupBucket))
		}
	})

	t.Run("makes a bucket, and its Secret again when that is deleted by hand", func(t *testing.T) {
		g := NewWithT(t)
		r := start(t, Options{Shared: reconciler.Shared{Classes: garden}}, newBucket(), newReferencedSecret())
		r.buckets.Add(r.bucket())
		g.Eventually(r.isReady).Should(Succeed(), "a new bucket is reconciled")

		secret := r.secret("garden")
		r.secrets.Add(secret)
		g.Expect(r.client.Delete(t.Context(), secret)).To(Succeed())
		r.secrets.Delete(secret)
		g.Eventually(func() bool { return r.secretExists("garden") }).Should(BeTrue(), "the Secret is there as long as the bucket is")
		g.Expect(r.secret("garden").Data).To(Equal(generatedData))
		g.Eventually(r.isReady).Should(Succeed(), "the reconcile ends well")
	})

	t.Run("makes the Secret again that was deleted while it did not run", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, newBucket(), newReferencedSecret())
		e.mustReconcile()
		bucket := e.bucket()
		bucket.ResourceVersion = ""

		r := start(t, Options{Shared: reconciler.Shared{Classes: garden}}, bucket, newReferencedSecret())
		r.buckets.Add(r.bucket())
		g.Eventually(func() bool { return r.secretExists("garden") }).Should(BeTrue(), "a bucket that is seen for the first time is checked")
	})

	t.Run("removes a bucket once the last entry in it has gone", func(t *testing.T) {
		g := NewWithT(t)
		entry := newEntry("garden--1", bucketName)
		r := start(t, Options{Shared: reconciler.Shared{Classes: garden}}, newBucket(withFinalizer), newReferencedSecret(), entry)
		r.writeSnapshot()
		r.deleteBucket()
		r.buckets.Add(r.bucket())
		g.Eventually(func() *gardencorev1beta1.LastError { return r.bucket().Status.LastError }).ShouldNot(BeNil(), "the bucket is in use")
		g.Expect(r.folders()).To(ConsistOf(bucketName))

		g.Expect(r.client.Delete(t.Context(), entry)).To(Succeed())
		r.entries.Delete(entry)
		g.Eventually(r.bucketExists).Should(BeFalse(), "no entry is left")
		g.Expect(r.folders()).To(BeEmpty())
	})

	t.Run("leaves other types and classes alone", func(t *testing.T) {
		g := NewWithT(t)
		others := []client.Object{
			newBucket(func(bucket *extensionsv1alpha1.BackupBucket) { bucket.Name, bucket.Spec.Type = "other-type", "other" }),
			newBucket(func(bucket *extensionsv1alpha1.BackupBucket) { bucket.Name, bucket.Spec.Class = "no-class", nil }),
			newBucket(func(bucket *extensionsv1alpha1.BackupBucket) {
				bucket.Name, bucket.Spec.Class = "seed", new(extensionsv1alpha1.ExtensionClassSeed)
			}),
		}
		r := start(t, Options{Shared: reconciler.Shared{Classes: garden, Controller: controller.Options{MaxConcurrentReconciles: 1}}}, append(others, newBucket(), newReferencedSecret())...)
		for _, other := range others {
			r.buckets.Add(other)
		}
		r.buckets.Add(r.bucket())

		g.Eventually(r.isReady).Should(Succeed(), "the last in the queue is ours")
		g.Expect(r.folders()).To(ConsistOf(bucketName))
	})

	for _, served := range []extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot} {
		t.Run("serves class "+string(served), func(t *testing.T) {
			g := NewWithT(t)
			r := start(t, Options{Shared: reconciler.Shared{Classes: newClasses(t, served)}}, newReferencedSecret(), newBucket(func(bucket *extensionsv1alpha1.BackupBucket) {
				bucket.Spec.Class = &served
			}))
			r.buckets.Add(r.bucket())
			g.Eventually(r.isReady).Should(Succeed(), "the class is served")
		})
	}
}

func TestEvents(t *testing.T) {
	reconciled := func(t *testing.T) (*env, *actuator) {
		e := newEnv(t, newBucket(), newReferencedSecret())
		e.mustReconcile()
		return e, e.actuator
	}

	t.Run("of a bucket seen for the first time matter only if its Secret is not in order", func(t *testing.T) {
		g := NewWithT(t)
		e, events := reconciled(t)
		lost := func(bucket *extensionsv1alpha1.BackupBucket) bool { return events.lostSecret(t.Context(), bucket) }

		g.Expect(lost(e.bucket())).To(BeFalse(), "all is well")
		g.Expect(lost(newBucket())).To(BeFalse(), "there was no Secret yet")

		events.HostPath = "/elsewhere"
		g.Expect(lost(e.bucket())).To(BeTrue(), "the Secret holds another host path")
		events.HostPath = hostPath
		g.Expect(e.client.Delete(t.Context(), e.secret("garden"))).To(Succeed())
		g.Expect(lost(e.bucket())).To(BeTrue(), "the Secret is gone")
	})

	t.Run("of a Secret matter only if it is not as this controller wrote it", func(t *testing.T) {
		g := NewWithT(t)
		e, events := reconciled(t)
		changed, secret := events.changedSecret(), e.secret("garden")

		g.Expect(changed.Create(event.CreateEvent{Object: secret})).To(BeFalse(), "it has just been written, or the instance started")
		g.Expect(changed.Update(event.UpdateEvent{ObjectOld: secret, ObjectNew: secret})).To(BeFalse())
		g.Expect(changed.Delete(event.DeleteEvent{Object: secret})).To(BeTrue())

		deleting := secret.DeepCopy()
		deleting.DeletionTimestamp = new(metav1.Now())
		g.Expect(changed.Update(event.UpdateEvent{ObjectOld: secret, ObjectNew: deleting})).To(BeTrue(), "a finalizer holds it")

		secret.Data["hostPath"] = []byte("/")
		g.Expect(changed.Create(event.CreateEvent{Object: secret})).To(BeTrue())
		g.Expect(changed.Update(event.UpdateEvent{ObjectOld: secret, ObjectNew: secret})).To(BeTrue())
	})

	t.Run("of a Secret concern the bucket to which it belongs, unless that is to go", func(t *testing.T) {
		g := NewWithT(t)
		e, events := reconciled(t)
		secret := e.secret("garden")
		g.Expect(events.bucketOfSecret(t.Context(), secret)).To(HaveLen(1))

		elsewhere := secret.DeepCopy()
		elsewhere.Namespace = "default"
		g.Expect(events.bucketOfSecret(t.Context(), elsewhere)).To(BeEmpty())
		g.Expect(events.bucketOfSecret(t.Context(), newReferencedSecret())).To(BeEmpty())
		g.Expect(events.bucketOfSecret(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "generated-bucket-other"}})).To(BeEmpty())

		events.Classes = newClasses(t, extensionsv1alpha1.ExtensionClassSeed)
		g.Expect(events.bucketOfSecret(t.Context(), secret)).To(BeEmpty(), "the other instance in this cluster serves it")
		events.Classes = newClasses(t, extensionsv1alpha1.ExtensionClassGarden)

		e.deleteBucket()
		g.Expect(events.bucketOfSecret(t.Context(), secret)).To(BeEmpty())
	})

	t.Run("of an entry concern a bucket only if that is to go", func(t *testing.T) {
		g := NewWithT(t)
		e, events := reconciled(t)
		g.Expect(events.bucketOfEntry(t.Context(), newEntry("garden--1", bucketName))).To(BeEmpty())

		e.deleteBucket()
		g.Expect(events.bucketOfEntry(t.Context(), newEntry("garden--1", bucketName))).To(HaveLen(1))
		g.Expect(events.bucketOfEntry(t.Context(), newEntry("garden--1", "other"))).To(BeEmpty())
	})
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const namespace = "shoot--local--a"

// start is a time with a fraction of a second, which a status cannot hold.
var start = time.Date(2026, 1, 2, 3, 4, 5, 900_000_000, time.UTC)

// env runs the reconcilers of all kinds against a fake API server.
type env struct {
	Gomega
	ctx    context.Context
	client client.WithWatch
	clock  *testclock.FakePassiveClock
	opts   Options
	// requests are the writes and the reads of Secrets that the reconcilers have sent since it was emptied. Other reads are
	// answered by a cache.
	requests []string
	// fail may return an error for a request.
	fail func(request string) error

	reconcilers map[string]*kindReconciler
}

func newEnv(t *testing.T, behaviours []configv1alpha1.MockBehaviour, objects ...client.Object) *env {
	t.Helper()
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"seed", "shoot"}, "garden", "seed", "shoot")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	e := &env{
		Gomega: NewWithT(t), ctx: t.Context(), clock: testclock.NewFakePassiveClock(start),
		opts: Options{Shared: reconciler.Shared{Classes: classes}, HostPath: "/buckets", Config: configv1alpha1.MockConfiguration{Enabled: true, Seed: 1, Behaviours: behaviours}},
	}
	for i := range e.opts.Config.Behaviours {
		rule := &e.opts.Config.Behaviours[i]
		if rule.RetryAfter == nil {
			rule.RetryAfter = &metav1.Duration{Duration: 5 * time.Second}
		}
		if rule.Error.Message == "" {
			rule.Error.Message = "injected"
		}
	}

	scheme := runtime.NewScheme()
	e.Expect(kubernetesscheme.AddToScheme(scheme)).To(Succeed())
	e.Expect(extensionsv1alpha1.AddToScheme(scheme)).To(Succeed())
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	for _, kind := range kinds() {
		builder = builder.WithStatusSubresource(kind.newObject())
	}
	e.client = builder.Build()
	e.restart()
	return e
}

// restart forgets all that is in memory.
func (e *env) restart() {
	recorded := interceptor.NewClient(e.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*corev1.Secret); ok {
				if err := e.record("get", obj); err != nil {
					return err
				}
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := e.record("create", obj); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := e.record("delete", obj); err != nil {
				return err
			}
			return c.Delete(ctx, obj, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if err := e.record("apply", obj.(client.Object)); err != nil {
				return err
			}
			return c.Apply(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := e.record("patch", obj); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := e.record("patch "+sub+" of", obj); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
	e.opts.ShootClusters = reconciler.NewClusters(recorded)
	e.reconcilers = map[string]*kindReconciler{}
	for _, kind := range kinds() {
		r := newReconciler(recorded, e.opts, kind)
		r.Clock = e.clock
		e.reconcilers[kind.name()] = r
	}
}

// remembered returns the objects that the behaviours of a kind have in memory.
func remembered(r *kindReconciler) []any {
	var out []any
	r.behaviours.objects.Range(func(key, _ any) bool {
		out = append(out, key)
		return true
	})
	return out
}

func (e *env) record(verb string, obj client.Object) error {
	kind := extensionscontroller.UnsafeGuessKind(obj)
	if verb == "apply" {
		kind = obj.GetObjectKind().GroupVersionKind().Kind
	}
	request := fmt.Sprintf("%s %s", verb, kind)
	e.requests = append(e.requests, request)
	if e.fail != nil {
		return e.fail(request)
	}
	return nil
}

func (e *env) reconcilerFor(obj extensionsv1alpha1.Object) *kindReconciler {
	return e.reconcilers[extensionscontroller.UnsafeGuessKind(obj)]
}

// tryReconcile reconciles an object once and reads it.
func (e *env) tryReconcile(obj extensionsv1alpha1.Object) (reconcile.Result, error) {
	result, err := e.reconcilerFor(obj).Reconcile(e.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
	e.read(obj)
	return result, err
}

// reconcile reconciles an object once without an error, reads it, and returns when it is to be reconciled again.
func (e *env) reconcile(obj extensionsv1alpha1.Object) time.Duration {
	result, err := e.tryReconcile(obj)
	e.Expect(err).NotTo(HaveOccurred())
	return result.RequeueAfter
}

// read reads an object; one that is gone has no UID then.
func (e *env) read(obj extensionsv1alpha1.Object) {
	fresh := e.reconcilerFor(obj).newObject()
	err := e.client.Get(e.ctx, client.ObjectKeyFromObject(obj), fresh)
	if apierrors.IsNotFound(err) {
		fresh.SetName(obj.GetName())
		fresh.SetNamespace(obj.GetNamespace())
	} else {
		e.Expect(err).NotTo(HaveOccurred())
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(fresh).Elem())
}

// annotate asks for an operation.
func (e *env) annotate(obj extensionsv1alpha1.Object, operation string) {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"gardener.cloud/operation":%q,"gardener.cloud/timestamp":%q}}}`, operation, e.clock.Now().Format(time.RFC3339Nano))
	e.Expect(e.client.Patch(e.ctx, obj, client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
}

func (e *env) delete(obj extensionsv1alpha1.Object) {
	e.Expect(e.client.Delete(e.ctx, obj)).To(Succeed())
	e.read(obj)
}

// pass lets time pass.
func (e *env) pass(duration time.Duration) { e.clock.SetTime(e.clock.Now().Add(duration)) }

// isReady reports whether Gardener takes an object for ready; nil if so.
func isReady(obj extensionsv1alpha1.Object) error { return health.CheckExtensionObject(obj) }

// state sums up an object: type and state of its last operation.
func state(obj extensionsv1alpha1.Object) string {
	last := obj.GetExtensionStatus().GetLastOperation()
	if last == nil {
		return ""
	}
	return string(last.Type) + " " + string(last.State)
}

// newObjectOf returns an object of a kind as Gardener creates it, its Secrets and namespaces aside.
func newObjectOf(kind kind) extensionsv1alpha1.Object {
	obj := kind.newObject()
	obj.SetName("a")
	obj.SetNamespace(namespace)
	obj.SetUID("uid")
	obj.SetGeneration(1)
	obj.SetAnnotations(map[string]string{
		v1beta1constants.GardenerOperation: v1beta1constants.GardenerOperationReconcile,
		v1beta1constants.GardenerTimestamp: start.Format(time.RFC3339Nano),
	})
	spec := extensionsv1alpha1.DefaultSpec{Type: Type}
	switch obj := obj.(type) {
	case *extensionsv1alpha1.BackupBucket:
		obj.Namespace, obj.Spec.DefaultSpec = "", spec
	case *extensionsv1alpha1.BackupEntry:
		obj.Namespace, obj.Name = "", namespace+"--uid"
		obj.Spec.DefaultSpec, obj.Spec.BucketName = spec, "bucket"
	case *extensionsv1alpha1.Bastion:
		obj.Spec.DefaultSpec = spec
	case *extensionsv1alpha1.ContainerRuntime:
		obj.Spec.DefaultSpec = spec
	case *extensionsv1alpha1.ControlPlane:
		obj.Spec.DefaultSpec = spec
	case *extensionsv1alpha1.DNSRecord:
		obj.Spec.DefaultSpec, obj.Spec.Name = spec, "api.a.example.com"
	case *extensionsv1alpha1.Extension:
		obj.Spec.DefaultSpec = spec
	case *extensionsv1alpha1.Infrastructure:
		obj.Spec.DefaultSpec = spec
	case *extensionsv1alpha1.Network:
		obj.Spec.DefaultSpec = spec
	case *extensionsv1alpha1.OperatingSystemConfig:
		obj.Spec.DefaultSpec, obj.Spec.Purpose = spec, extensionsv1alpha1.OperatingSystemConfigPurposeProvision
	case *extensionsv1alpha1.SelfHostedShootExposure:
		obj.Spec.DefaultSpec = spec
	case *extensionsv1alpha1.Worker:
		obj.Spec.DefaultSpec = spec
		obj.Spec.Pools = []extensionsv1alpha1.WorkerPool{{Name: "pool", Minimum: 1, Maximum: 2}}
	}
	return obj
}

func newBucket() *extensionsv1alpha1.BackupBucket {
	return newObjectOf(kinds()[0]).(*extensionsv1alpha1.BackupBucket)
}

func newInfrastructure() *extensionsv1alpha1.Infrastructure {
	for _, kind := range kinds() {
		if kind.name() == extensionsv1alpha1.InfrastructureResource {
			return newObjectOf(kind).(*extensionsv1alpha1.Infrastructure)
		}
	}
	return nil
}

// newCluster returns the Cluster of the shoot.
func newCluster(change func(*gardencorev1beta1.Shoot)) *extensionsv1alpha1.Cluster {
	shoot := &gardencorev1beta1.Shoot{TypeMeta: metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: "Shoot"}}
	shoot.Name = "a"
	if change != nil {
		change(shoot)
	}
	data, err := json.Marshal(shoot)
	if err != nil {
		panic(err)
	}
	return &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: namespace, ResourceVersion: "5"},
		Spec: extensionsv1alpha1.ClusterSpec{
			Shoot:        runtime.RawExtension{Raw: data},
			CloudProfile: runtime.RawExtension{Raw: []byte(`{"apiVersion":"core.gardener.cloud/v1beta1","kind":"CloudProfile","metadata":{"name":"mock"}}`)},
		},
	}
}

// fakeNodes are Nodes that tell what is asked of them.
type fakeNodes struct {
	err   error
	kept  bool
	calls []string
}

func (n *fakeNodes) Keeps(*extensionsv1alpha1.Worker) bool { return n.kept }

func (n *fakeNodes) Apply(_ context.Context, _ logr.Logger, worker *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster) error {
	n.calls = append(n.calls, "apply "+worker.Name+" of "+cluster.Shoot().Name)
	n.kept = n.kept || n.err == nil
	return n.err
}

func (n *fakeNodes) Delete(_ context.Context, _ logr.Logger, worker *extensionsv1alpha1.Worker, force bool) error {
	n.calls = append(n.calls, fmt.Sprintf("delete %s, force %t", worker.Name, force))
	return n.err
}

func (n *fakeNodes) Release(worker *extensionsv1alpha1.Worker) {
	n.calls = append(n.calls, "release "+worker.Name)
}

// failOn fails requests with an error of the API server.
func failOn(request string) func(string) error {
	return func(sent string) error {
		if strings.HasPrefix(sent, request) {
			return apierrors.NewInternalError(fmt.Errorf("no answer to %s", sent))
		}
		return nil
	}
}

var noNamespace = apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, namespace)

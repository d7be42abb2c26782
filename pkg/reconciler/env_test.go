// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

const (
	namespace     = "shoot--local--a"
	extensionType = "test"
	finalizer     = "extensions.gardener.cloud/test"
)

// start is a time with a fraction of a second, which a status cannot hold.
var start = time.Date(2026, 1, 2, 3, 4, 5, 900_000_000, time.UTC)

type (
	bucketType         = *extensionsv1alpha1.BackupBucket
	infrastructureType = *extensionsv1alpha1.Infrastructure
)

// env runs a Reconciler for Infrastructures against a fake API server.
type env struct {
	Gomega
	ctx    context.Context
	client client.WithWatch
	clock  *testclock.FakePassiveClock
	opts   Options[infrastructureType]
	// do is what the Actuator does, and calls are the methods that were called.
	do    func(ctx context.Context, op *Operation[infrastructureType]) error
	calls []string
	// requests are the writes that the Reconciler has sent since it was emptied. Reads are answered by a cache.
	requests []string
	// fail may return an error for a request.
	fail func(request string) error
	// reported are the errors of attempts, and gone the objects that are gone.
	reported []error
	gone     []string
}

func newEnv(t *testing.T, objects ...client.Object) *env {
	t.Helper()
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"seed", "shoot"}, "garden", "seed", "shoot")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	e := &env{Gomega: NewWithT(t), ctx: t.Context(), clock: testclock.NewFakePassiveClock(start)}

	scheme := runtime.NewScheme()
	e.Expect(extensionsv1alpha1.AddToScheme(scheme)).To(Succeed())
	e.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&extensionsv1alpha1.Infrastructure{}).Build()
	recorded := interceptor.NewClient(e.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := e.record("patch"); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := e.record("patch " + sub); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
	e.opts = Options[infrastructureType]{
		Shared:    Shared{Classes: classes, ShootClusters: NewClusters(recorded)},
		ExistsFor: classes.List(),
		Client:    recorded,
		Types:     []string{extensionType},
		Finalizer: finalizer,
		Actuator:  actuator{e},
		Reported:  func(_ *Operation[infrastructureType], err error) { e.reported = append(e.reported, err) },
		Gone:      func(key types.NamespacedName) { e.gone = append(e.gone, key.Name) },
		Clock:     e.clock,
		Quiet:     -1,
	}
	return e
}

func (e *env) record(request string) error {
	e.requests = append(e.requests, request)
	if e.fail != nil {
		return e.fail(request)
	}
	return nil
}

// actuator does what its env says.
type actuator struct{ e *env }

func (a actuator) act(ctx context.Context, method string, op *Operation[infrastructureType]) error {
	a.e.calls = append(a.e.calls, method)
	if a.e.do == nil {
		return nil
	}
	return a.e.do(ctx, op)
}

func (a actuator) Reconcile(ctx context.Context, op *Operation[infrastructureType]) error {
	return a.act(ctx, "reconcile", op)
}

func (a actuator) Migrate(ctx context.Context, op *Operation[infrastructureType]) error {
	return a.act(ctx, "migrate", op)
}

func (a actuator) Delete(ctx context.Context, op *Operation[infrastructureType]) error {
	return a.act(ctx, "delete", op)
}

func (a actuator) ForceDelete(ctx context.Context, op *Operation[infrastructureType]) error {
	return a.act(ctx, "force-delete", op)
}

// tryReconcile reconciles an object once and reads it.
func (e *env) tryReconcile(obj client.Object) (reconcile.Result, error) {
	result, err := New(e.opts).Reconcile(e.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
	e.read(obj)
	return result, err
}

// reconcile reconciles an object once without an error, reads it, and returns when it is to be reconciled again.
func (e *env) reconcile(obj client.Object) time.Duration {
	result, err := e.tryReconcile(obj)
	e.Expect(err).NotTo(HaveOccurred())
	return result.RequeueAfter
}

// read reads an object; one that is gone has no UID then.
func (e *env) read(obj client.Object) {
	fresh := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
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
func (e *env) annotate(obj client.Object, operation string) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		"gardener.cloud/operation": operation, "gardener.cloud/timestamp": e.clock.Now().Format(time.RFC3339Nano),
	}}})
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(e.client.Patch(e.ctx, obj, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

func (e *env) delete(obj client.Object) {
	e.Expect(e.client.Delete(e.ctx, obj)).To(Succeed())
	e.read(obj)
}

// pass lets time pass.
func (e *env) pass(duration time.Duration) { e.clock.SetTime(e.clock.Now().Add(duration)) }

// stateName sums up an object: type and state of its last operation.
func stateName(obj extensionsv1alpha1.Object) string {
	last := obj.GetExtensionStatus().GetLastOperation()
	if last == nil {
		return ""
	}
	return string(last.Type) + " " + string(last.State)
}

func newMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "a", UID: "uid", Generation: 1, Annotations: map[string]string{
		"gardener.cloud/operation": "reconcile", "gardener.cloud/timestamp": start.Format(time.RFC3339Nano),
	}}
}

func newBucket() bucketType {
	bucket := &extensionsv1alpha1.BackupBucket{ObjectMeta: newMeta()}
	bucket.Spec.Type = extensionType
	return bucket
}

func newInfrastructure() infrastructureType {
	infra := &extensionsv1alpha1.Infrastructure{ObjectMeta: newMeta()}
	infra.Namespace, infra.Spec.Type = namespace, extensionType
	return infra
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

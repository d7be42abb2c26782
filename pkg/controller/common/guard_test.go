// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package common_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
)

const name = "object"

// guarded is a reconciler behind a check whose outcome a test sets.
type guarded struct {
	reconcile.Reconciler
	client  client.Client
	outcome error
	checked []gardencorev1beta1.LastOperationType
	passed  int
}

func guard(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *guarded {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(extensionsv1alpha1.AddToScheme(scheme)).To(Succeed())
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())

	result := &guarded{client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&extensionsv1alpha1.BackupEntry{}).WithInterceptorFuncs(funcs).Build()}
	result.Reconciler = common.WithCheck(
		result.client,
		func() *extensionsv1alpha1.BackupEntry { return &extensionsv1alpha1.BackupEntry{} },
		func(_ context.Context, _ *extensionsv1alpha1.BackupEntry, operation gardencorev1beta1.LastOperationType) error {
			result.checked = append(result.checked, operation)
			return result.outcome
		},
		reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			result.passed++
			return reconcile.Result{}, nil
		}),
	)
	return result
}

func (r *guarded) run(t *testing.T) (reconcile.Result, error) {
	t.Helper()
	return r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
}

func (r *guarded) object(t *testing.T) *extensionsv1alpha1.BackupEntry {
	t.Helper()
	entry := &extensionsv1alpha1.BackupEntry{}
	NewWithT(t).Expect(r.client.Get(t.Context(), client.ObjectKey{Name: name}, entry)).To(Succeed())
	return entry
}

func entry(operation string) *extensionsv1alpha1.BackupEntry {
	entry := &extensionsv1alpha1.BackupEntry{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3, Annotations: map[string]string{"other": "kept"}}}
	if operation != "" {
		entry.Annotations[v1beta1constants.GardenerOperation] = operation
	}
	return entry
}

func TestWithCheck(t *testing.T) {
	mistake := common.ConfigurationProblem(errors.New("nonsense"), time.Hour)

	t.Run("hands over once the check has succeeded", func(t *testing.T) {
		g := NewWithT(t)
		r := guard(t, interceptor.Funcs{}, entry("reconcile"))

		g.Expect(r.run(t)).To(Equal(reconcile.Result{}))
		g.Expect(r.checked).To(ConsistOf(gardencorev1beta1.LastOperationTypeCreate))
		g.Expect(r.passed).To(Equal(1))
		g.Expect(r.object(t).ResourceVersion).To(Equal("999"), "nothing is written")
	})

	t.Run("does nothing if the object is gone", func(t *testing.T) {
		g := NewWithT(t)
		r := guard(t, interceptor.Funcs{})

		g.Expect(r.run(t)).To(Equal(reconcile.Result{}))
		g.Expect(r.checked).To(BeEmpty())
		g.Expect(r.passed).To(BeZero())
	})

	t.Run("reports a mistake with its code, takes the request off and does not retry hot", func(t *testing.T) {
		g := NewWithT(t)
		r := guard(t, interceptor.Funcs{}, entry("reconcile"))
		r.outcome = mistake

		g.Expect(r.run(t)).To(Equal(reconcile.Result{RequeueAfter: time.Hour}))
		g.Expect(r.passed).To(BeZero())

		obj := r.object(t)
		g.Expect(obj.Annotations).To(Equal(map[string]string{"other": "kept"}))
		g.Expect(obj.Status.ObservedGeneration).To(Equal(int64(3)))
		g.Expect(obj.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateError))
		g.Expect(obj.Status.LastError.Description).To(HaveSuffix("nonsense"))
		g.Expect(obj.Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
	})

	for _, operation := range []string{"restore", "migrate"} {
		t.Run("writes a mistake once while the annotation "+operation+" turns every write into an event", func(t *testing.T) {
			g := NewWithT(t)
			r := guard(t, interceptor.Funcs{}, entry(operation))
			r.outcome = mistake

			g.Expect(r.run(t)).To(Equal(reconcile.Result{RequeueAfter: time.Hour}))
			first := r.object(t)
			g.Expect(first.Status.LastError).NotTo(BeNil())
			g.Expect(first.Annotations).To(HaveKeyWithValue(v1beta1constants.GardenerOperation, operation), "the operation is still due")

			g.Expect(r.run(t)).To(Equal(reconcile.Result{RequeueAfter: time.Hour}))
			g.Expect(r.object(t).ResourceVersion).To(Equal(first.ResourceVersion))

			r.outcome = common.ConfigurationProblem(errors.New("other nonsense"), time.Hour)
			_, err := r.run(t)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.object(t).Status.LastError.Description).To(HaveSuffix("other nonsense"))
		})
	}

	t.Run("reports a passing error too and leaves the pace to the queue", func(t *testing.T) {
		g := NewWithT(t)
		r := guard(t, interceptor.Funcs{}, entry(""))
		r.outcome = errors.New("connection refused")

		_, err := r.run(t)
		g.Expect(err).To(MatchError("connection refused"))
		g.Expect(r.object(t).Status.LastError.Description).To(HaveSuffix("connection refused"))
		g.Expect(r.object(t).Status.LastError.Codes).To(BeEmpty())
	})

	t.Run("calls what is awaited no error, and writes it once", func(t *testing.T) {
		g := NewWithT(t)
		waiting := entry("reconcile")
		waiting.Status.LastError = &gardencorev1beta1.LastError{Description: "from before"}
		r := guard(t, interceptor.Funcs{}, waiting)
		r.outcome = common.Waiting(errors.New("one of two machines is there"), time.Minute)

		g.Expect(r.run(t)).To(Equal(reconcile.Result{RequeueAfter: time.Minute}))
		first := r.object(t)
		g.Expect(first.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateProcessing))
		g.Expect(first.Status.LastOperation.Description).To(Equal("one of two machines is there"))
		g.Expect(first.Status.LastError).To(BeNil(), "gardenlet would take it for a failure")
		g.Expect(first.Annotations).NotTo(HaveKey("gardener.cloud/operation"))
		g.Expect(r.passed).To(BeZero())

		g.Expect(r.run(t)).To(Equal(reconcile.Result{RequeueAfter: time.Minute}))
		g.Expect(r.object(t).ResourceVersion).To(Equal(first.ResourceVersion))

		r.outcome = common.Waiting(errors.New("both are there, but not ready"), time.Minute)
		g.Expect(r.run(t)).To(Equal(reconcile.Result{RequeueAfter: time.Minute}))
		g.Expect(r.object(t).Status.LastOperation.Description).To(Equal("both are there, but not ready"))
		g.Expect(common.IsWaiting(r.outcome)).To(BeTrue())
		g.Expect(common.IsWaiting(mistake)).To(BeFalse())
	})

	t.Run("does not hide the cause if the status cannot be written", func(t *testing.T) {
		g := NewWithT(t)
		r := guard(t, interceptor.Funcs{SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return errors.New("no luck")
		}}, entry(""))
		r.outcome = mistake

		_, err := r.run(t)
		g.Expect(err).To(MatchError(And(ContainSubstring("nonsense"), ContainSubstring("no luck"))))
	})

	t.Run("leaves objects that wait for their state or have been migrated away to the library", func(t *testing.T) {
		g := NewWithT(t)
		migrated := entry("")
		migrated.Status.LastOperation = &gardencorev1beta1.LastOperation{
			Type: gardencorev1beta1.LastOperationTypeMigrate, State: gardencorev1beta1.LastOperationStateSucceeded,
		}

		for _, obj := range []client.Object{entry("wait-for-state"), migrated} {
			r := guard(t, interceptor.Funcs{}, obj)
			r.outcome = mistake
			g.Expect(r.run(t)).To(Equal(reconcile.Result{}))
			g.Expect(r.passed).To(Equal(1))
			g.Expect(r.checked).To(BeEmpty())
		}
	})
}

func TestCheckSecret(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "backup"}}

	for _, test := range []struct {
		name    string
		ref     corev1.SecretReference
		err     error
		matches types.GomegaMatcher
	}{
		{"accepts a Secret that is there", corev1.SecretReference{Namespace: "garden", Name: "backup"}, nil, Not(HaveOccurred())},
		{"tells to create one that is missing", corev1.SecretReference{Namespace: "garden", Name: "other"}, nil,
			MatchError(And(ContainSubstring("1m0s"), ContainSubstring("garden/other"), ContainSubstring("create it")))},
		{"tells to complete a reference without name", corev1.SecretReference{Namespace: "garden"}, nil, MatchError(ContainSubstring("set name and namespace"))},
		{"tells to complete a reference without namespace", corev1.SecretReference{Name: "backup"}, nil, MatchError(ContainSubstring("set name and namespace"))},
		{"does not take another error for a missing Secret", corev1.SecretReference{Namespace: "garden", Name: "backup"}, errors.New("forbidden"),
			MatchError(And(ContainSubstring("garden/backup"), ContainSubstring("forbidden"), Not(ContainSubstring("create it"))))},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			r := guard(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if test.err != nil {
					return test.err
				}
				return c.Get(ctx, key, obj, opts...)
			}}, secret)
			g.Expect(common.CheckSecret(t.Context(), r.client, test.ref)).To(test.matches)
		})
	}
}

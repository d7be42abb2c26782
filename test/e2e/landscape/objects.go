// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

// ConfirmDeletion is the annotation without which gardener-resource-manager protects extension objects.
const ConfirmDeletion = "confirmation.gardener.cloud/deletion"

// Get reads an object for Eventually.
func Get[T client.Object](ctx context.Context, c client.Client, obj T) func() (T, error) {
	return func() (T, error) {
		return obj, c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	}
}

// Named is an object of which only the name is said.
func Named[T interface {
	client.Object
	*O
}, O any](namespace, name string) T {
	obj := T(new(O))
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}

// Create creates an object and ensures that it is gone after the test.
func Create[T client.Object](ctx context.Context, c client.Client, obj T) T {
	GinkgoHelper()
	Expect(c.Create(ctx, obj)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { DeleteAndWait(ctx, c, obj) })
	return obj
}

// DeleteAndWait deletes an object and waits until it is gone. A webhook of gardener-resource-manager wants the deletion of
// extension objects confirmed.
func DeleteAndWait(ctx context.Context, c client.Client, obj client.Object) {
	GinkgoHelper()
	confirm := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+ConfirmDeletion+`":"true"}}}`))
	Expect(client.IgnoreNotFound(c.Patch(ctx, obj.DeepCopyObject().(client.Object), confirm))).To(Succeed())
	Expect(client.IgnoreNotFound(c.Delete(ctx, obj))).To(Succeed())
	EventuallyGone(ctx, c, obj)
}

// EventuallyGone waits until an object is gone.
func EventuallyGone(ctx context.Context, c client.Client, obj client.Object) {
	GinkgoHelper()
	Eventually(IsGone(ctx, c, obj)).Should(BeTrue(), "%T %s goes", obj, obj.GetName())
}

// IsGone tells for Eventually whether an object is gone.
func IsGone(ctx context.Context, c client.Client, obj client.Object) func() (bool, error) {
	gone := obj.DeepCopyObject().(client.Object)
	return func() (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), gone)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
}

// EventuallySucceeded waits until an extension object counts as ready.
func EventuallySucceeded(ctx context.Context, c client.Client, obj extensionsv1alpha1.Object) {
	GinkgoHelper()
	Eventually(Get(ctx, c, obj)).Should(matchers.HaveSucceeded())
}

// EventuallyReady waits until a Deployment has been rolled out.
func EventuallyReady(ctx context.Context, c client.Client, deployment *appsv1.Deployment) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		status, replicas := deployment.Status, *deployment.Spec.Replicas
		g.Expect(status.ObservedGeneration).To(Equal(deployment.Generation))
		g.Expect([]int32{status.Replicas, status.UpdatedReplicas, status.AvailableReplicas}).To(HaveEach(replicas))
	}).Should(Succeed(), "Deployment %s/%s becomes ready", deployment.Namespace, deployment.Name)
}

// PodsOf are the pods with some labels.
func PodsOf(ctx context.Context, c client.Client, namespace string, labels map[string]string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels(labels))
	return list.Items, err
}

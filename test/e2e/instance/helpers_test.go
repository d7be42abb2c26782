// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"
	"net"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// get reads an object for Eventually.
func get[T client.Object](ctx context.Context, obj T) func() (T, error) {
	return landscape.Get(ctx, c, obj)
}

func named[T interface {
	client.Object
	*O
}, O any](namespace, name string) T {
	return landscape.Named[T](namespace, name)
}

// create creates an object and ensures that it is gone after the test.
func create[T client.Object](ctx context.Context, obj T) T {
	GinkgoHelper()
	return landscape.Create(ctx, c, obj)
}

// deleteAndWait deletes an object and waits until it is gone.
func deleteAndWait(ctx context.Context, obj client.Object) {
	GinkgoHelper()
	landscape.DeleteAndWait(ctx, c, obj)
}

func eventuallyGone(ctx context.Context, obj client.Object) {
	GinkgoHelper()
	landscape.EventuallyGone(ctx, c, obj)
}

// isGone tells for Eventually whether an object is gone.
func isGone(ctx context.Context, obj client.Object) func() (bool, error) {
	return landscape.IsGone(ctx, c, obj)
}

// eventuallySucceeded waits until an extension object counts as ready.
func eventuallySucceeded(ctx context.Context, obj extensionsv1alpha1.Object) {
	GinkgoHelper()
	landscape.EventuallySucceeded(ctx, c, obj)
}

// eventuallyReady waits until a Deployment has been rolled out.
func eventuallyReady(ctx context.Context, deployment *appsv1.Deployment) {
	GinkgoHelper()
	landscape.EventuallyReady(ctx, c, deployment)
}

// scale sets the replicas of a Deployment and waits until the pods are there, or gone.
func scale(ctx context.Context, deployment *appsv1.Deployment, replicas int32) {
	GinkgoHelper()
	Expect(c.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
	patch := client.MergeFrom(deployment.DeepCopy())
	deployment.Spec.Replicas = &replicas
	Expect(c.Patch(ctx, deployment, patch)).To(Succeed())
	eventuallyReady(ctx, deployment)
	Eventually(func() ([]corev1.Pod, error) {
		return podsOf(ctx, deployment.Namespace, deployment.Spec.Selector.MatchLabels)
	}).Should(HaveLen(int(replicas)))
}

func podsOf(ctx context.Context, namespace string, labels map[string]string) ([]corev1.Pod, error) {
	return landscape.PodsOf(ctx, c, namespace, labels)
}

// annotate sets an annotation of an object, or removes it if the value is empty.
func annotate(ctx context.Context, obj client.Object, key, value string) {
	GinkgoHelper()
	Expect(c.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
	patch := client.MergeFrom(obj.DeepCopyObject().(client.Object))
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[key] = value; value == "" {
		delete(annotations, key)
	}
	obj.SetAnnotations(annotations)
	Expect(c.Patch(ctx, obj, patch)).To(Succeed())
}

// nodes are the cpu and memory of all Nodes.
func nodes(ctx context.Context) map[string]string {
	GinkgoHelper()
	list := &corev1.NodeList{}
	Expect(c.List(ctx, list)).To(Succeed())
	out := map[string]string{}
	for _, node := range list.Items {
		out[node.Name] = capacityOf(&node)
	}
	return out
}

func capacityOf(node *corev1.Node) string {
	return node.Status.Capacity.Cpu().String() + ", " + node.Status.Capacity.Memory().String()
}

// coreDNSAddress is the address of the Service that both instances' CoreDNS has; the host reaches it as pods do.
func coreDNSAddress(ctx context.Context) string {
	GinkgoHelper()
	service := named[*corev1.Service](coreDNSNamespace, "coredns")
	Expect(c.Get(ctx, client.ObjectKeyFromObject(service), service)).To(Succeed())
	return net.JoinHostPort(service.Spec.ClusterIP, "53")
}

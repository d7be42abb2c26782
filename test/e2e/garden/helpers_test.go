// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package garden_test

import (
	"context"
	"net"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// confirmDeletion is the annotation without which gardener-resource-manager protects extension objects.
const confirmDeletion = "confirmation.gardener.cloud/deletion"

// get reads an object for Eventually.
func get[T client.Object](ctx context.Context, obj T) func() (T, error) {
	return func() (T, error) {
		return obj, c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	}
}

// remove deletes an object of the extensions API. A webhook of gardener-resource-manager wants that confirmed.
func remove(ctx context.Context, obj client.Object) error {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+confirmDeletion+`":"true"}}}`))
	if err := c.Patch(ctx, obj.DeepCopyObject().(client.Object), patch); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(c.Delete(ctx, obj))
}

func eventuallyGone(ctx context.Context, obj client.Object) {
	Eventually(func() error {
		return c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	}).Should(MatchError(ContainSubstring("not found")), "%T %s goes", obj, obj.GetName())
}

func newRecord(name, dnsName string, recordType extensionsv1alpha1.DNSRecordType, values ...string) *extensionsv1alpha1.DNSRecord {
	return &extensionsv1alpha1.DNSRecord{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: gardenNamespace, Labels: map[string]string{"test": "e2e"}, Annotations: map[string]string{confirmDeletion: "true"}},
		Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local", Class: new(extensionsv1alpha1.ExtensionClassGarden)},
			SecretRef:   corev1.SecretReference{Name: "garden-dns-local", Namespace: gardenNamespace},
			Name:        dnsName,
			RecordType:  recordType,
			Values:      values,
		},
	}
}

// hostDNSAddress is the address of CoreDNS for this machine. It does not reach the addresses of the cluster's Services on kind.
func hostDNSAddress(ctx context.Context) string {
	GinkgoHelper()
	service := &corev1.Service{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: coreDNSNamespace, Name: "coredns-host"}, service)).To(Succeed())
	Expect(service.Status.LoadBalancer.Ingress).NotTo(BeEmpty())
	return net.JoinHostPort(service.Status.LoadBalancer.Ingress[0].IP, "53")
}

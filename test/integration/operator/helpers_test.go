// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"net"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

const garden = extensionsv1alpha1.ExtensionClassGarden

func secret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: gardenNamespace}}
}

func defaultSpec(extensionType string, class extensionsv1alpha1.ExtensionClass) extensionsv1alpha1.DefaultSpec {
	return extensionsv1alpha1.DefaultSpec{Type: extensionType, Class: &class}
}

func newBucket(name string) *extensionsv1alpha1.BackupBucket {
	return &extensionsv1alpha1.BackupBucket{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: extensionsv1alpha1.BackupBucketSpec{
			DefaultSpec: defaultSpec("local", garden),
			Region:      "local",
			SecretRef:   corev1.SecretReference{Name: "backup", Namespace: gardenNamespace},
		},
	}
}

func newEntry(name, bucket string) *extensionsv1alpha1.BackupEntry {
	return &extensionsv1alpha1.BackupEntry{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: extensionsv1alpha1.BackupEntrySpec{
			DefaultSpec: defaultSpec("local", garden),
			Region:      "local",
			BucketName:  bucket,
			SecretRef:   corev1.SecretReference{Name: "backup", Namespace: gardenNamespace},
		},
	}
}

func newRecord(name, dnsName string, recordType extensionsv1alpha1.DNSRecordType, values ...string) *extensionsv1alpha1.DNSRecord {
	return &extensionsv1alpha1.DNSRecord{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: gardenNamespace},
		Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: defaultSpec("local", garden),
			SecretRef:   corev1.SecretReference{Name: "dns", Namespace: gardenNamespace},
			Name:        dnsName,
			RecordType:  recordType,
			Values:      values,
		},
	}
}

// create creates an object and ensures that it is gone after the test.
func create[T client.Object](ctx context.Context, obj T) T {
	GinkgoHelper()
	Expect(c.Create(ctx, obj)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { remove(ctx, obj) })
	return obj
}

// remove deletes an object and waits until it is gone.
func remove(ctx context.Context, obj client.Object) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(c.Delete(ctx, obj))).To(Succeed())
	eventuallyGone(ctx, obj)
}

func eventuallyGone(ctx context.Context, obj client.Object) {
	GinkgoHelper()
	gone := obj.DeepCopyObject().(client.Object)
	Eventually(func() error {
		return c.Get(ctx, client.ObjectKeyFromObject(obj), gone)
	}).Should(MatchError(ContainSubstring("not found")), "%T %s goes", obj, obj.GetName())
}

// ask for a reconcile, as Gardener does, after changing the object.
func reconcile(ctx context.Context, obj client.Object, change func()) {
	GinkgoHelper()
	patch := client.MergeFrom(obj.DeepCopyObject().(client.Object))
	if change != nil {
		change()
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["gardener.cloud/operation"] = "reconcile"
	obj.SetAnnotations(annotations)
	Expect(c.Patch(ctx, obj, patch)).To(Succeed())
}

// get reads an object for Eventually.
func get[T client.Object](ctx context.Context, obj T) func() (T, error) {
	return func() (T, error) {
		return obj, c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	}
}

func serverAddress() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(dnsPort))
}

// resolve asks the CoreDNS of the suite. Network is "udp" for a client in the cluster and "tcp" for one from outside.
func resolve(ctx context.Context, network, name string, qtype uint16) ([]string, error) {
	return matchers.Resolve(ctx, network, serverAddress(), name, qtype)
}

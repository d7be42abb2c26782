// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"os"
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

var _ = Describe("Extensions of a shoot", func() {
	DescribeTable("have a ServiceAccount as long as they are there", func(ctx SpecContext, extensionType, namespace string) {
		account := named[*corev1.ServiceAccount](namespace, extensionType)
		extension := create(ctx, newExtension(extensionType))
		eventuallySucceeded(ctx, extension)
		Eventually(get(ctx, account)).ShouldNot(BeNil())
		deleteAndWait(ctx, extension)
		Expect(isGone(ctx, account)()).To(BeTrue())
	},
		Entry("local-ext-seed in the seed", "local-ext-seed", shootNamespace),
		Entry("local-ext-shoot in the shoot", "local-ext-shoot", metav1.NamespaceSystem),
	)

	It("local-ext-shoot-after-worker has succeeded when its pod runs", func(ctx SpecContext) {
		extension := create(ctx, newExtension("local-ext-shoot-after-worker"))
		deployment := named[*appsv1.Deployment](metav1.NamespaceSystem, extension.Name)
		eventuallySucceeded(ctx, extension)
		Expect(c.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		Expect(deployment.Status.ReadyReplicas).To(Equal(*deployment.Spec.Replicas))
		deleteAndWait(ctx, extension)
		Expect(isGone(ctx, deployment)()).To(BeTrue())
	})
})

var _ = Describe("Backups of a shoot", func() {
	It("are folders on the node, beside those of the garden", func(ctx SpecContext) {
		// Not the Garden's, which the other instance keeps from being deleted: each is to write what is its own.
		credentials := create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: gardenNamespace, Name: "e2e-backup"}})
		secretRef := corev1.SecretReference{Namespace: credentials.Namespace, Name: credentials.Name}
		bucket := create(ctx, &extensionsv1alpha1.BackupBucket{
			ObjectMeta: metav1.ObjectMeta{Name: "e2e-of-the-seed"},
			Spec:       extensionsv1alpha1.BackupBucketSpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"}, Region: "local", SecretRef: secretRef},
		})
		eventuallySucceeded(ctx, bucket)
		Expect(programs(bucket)).To(ConsistOf(seedProgram))
		folder := filepath.Join(backups, bucket.Name)
		Expect(folder).To(BeADirectory())

		entry := create(ctx, &extensionsv1alpha1.BackupEntry{
			ObjectMeta: metav1.ObjectMeta{Name: shootNamespace + "--uid"},
			Spec: extensionsv1alpha1.BackupEntrySpec{
				DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"}, Region: "local", BucketName: bucket.Name, SecretRef: secretRef,
			},
		})
		eventuallySucceeded(ctx, entry)
		secret := named[*corev1.Secret](shootNamespace, "etcd-backup")
		Expect(c.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
		Expect(secret.Data).To(And(HaveKeyWithValue("hostPath", []byte(backups)), HaveKeyWithValue("bucketName", []byte(bucket.Name))))

		By("leaving no backup of a shoot that is gone")
		backup := filepath.Join(folder, entry.Name)
		Expect(os.MkdirAll(filepath.Join(backup, "etcd-main"), 0o700)).To(Succeed())
		info, err := os.Stat(folder)
		Expect(err).NotTo(HaveOccurred())
		Expect(chownLike(info, backup, filepath.Join(backup, "etcd-main"))).To(Succeed(), "as etcd-backup-restore writes them")
		deleteAndWait(ctx, entry)
		Expect(backup).NotTo(BeADirectory())
		Expect(folder).To(BeADirectory())
		deleteAndWait(ctx, bucket)
		Expect(folder).NotTo(BeADirectory())
	})
})

// chownLike gives folders to the user that another one belongs to.
func chownLike(info os.FileInfo, paths ...string) error {
	stat := info.Sys().(*syscall.Stat_t)
	for _, path := range paths {
		if err := os.Chown(path, int(stat.Uid), int(stat.Gid)); err != nil {
			return err
		}
	}
	return nil
}

func newExtension(extensionType string) *extensionsv1alpha1.Extension {
	return &extensionsv1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{Namespace: shootNamespace, Name: extensionType},
		Spec:       extensionsv1alpha1.ExtensionSpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: extensionType}},
	}
}

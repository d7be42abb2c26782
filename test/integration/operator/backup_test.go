// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

var _ = Describe("BackupBucket", func() {
	generated := func(name string) *corev1.Secret { return secret("generated-bucket-" + name) }

	It("is a folder with a Secret, and neither is left when it goes", func(ctx SpecContext) {
		bucket := create(ctx, newBucket("life"))
		Eventually(get(ctx, bucket)).Should(matchers.HaveSucceeded())

		folder := filepath.Join(buckets, "life")
		Expect(folder).To(BeADirectory())
		Expect(bucket.Status.GeneratedSecretRef).To(HaveValue(Equal(corev1.SecretReference{Namespace: gardenNamespace, Name: "generated-bucket-life"})))
		Expect(bucket.Status.ProviderStatus).NotTo(BeNil())
		Expect(get(ctx, generated("life"))()).To(HaveField("Data", HaveKeyWithValue("hostPath", []byte("/on/the/node"))))

		Expect(os.WriteFile(filepath.Join(folder, "backup"), []byte("data"), 0o600)).To(Succeed())
		remove(ctx, bucket)
		Expect(folder).NotTo(BeAnExistingFile())
		eventuallyGone(ctx, generated("life"))
	})

	It("is reconciled again and again without a change", func(ctx SpecContext) {
		bucket := create(ctx, newBucket("again"))
		Eventually(get(ctx, bucket)).Should(matchers.HaveSucceeded())
		before := generated("again")
		Expect(c.Get(ctx, client.ObjectKeyFromObject(before), before)).To(Succeed())

		for range 3 {
			reconcile(ctx, bucket, nil)
			Eventually(get(ctx, bucket)).Should(matchers.HaveSucceeded())
		}
		Expect(get(ctx, generated("again"))()).To(HaveField("ResourceVersion", before.ResourceVersion), "a Secret that is in order is not written")
	})

	It("has its Secret made again when somebody deletes it", func(ctx SpecContext) {
		bucket := create(ctx, newBucket("healed"))
		Eventually(get(ctx, bucket)).Should(matchers.HaveSucceeded())

		Expect(c.Delete(ctx, generated("healed"))).To(Succeed())
		Eventually(get(ctx, generated("healed"))).Should(HaveField("Data", HaveKey("hostPath")), "a watch sees that it is gone")
	})

	It("says so when the Secret it names is missing, and goes on when it is there", func(ctx SpecContext) {
		bucket := newBucket("waiting")
		bucket.Spec.SecretRef.Name = "late"
		create(ctx, bucket)
		Eventually(get(ctx, bucket)).Should(HaveField("Status.LastError", HaveValue(HaveField("Description", ContainSubstring("late")))))

		create(ctx, secret("late"))
		reconcile(ctx, bucket, nil)
		Eventually(get(ctx, bucket)).Should(matchers.HaveSucceeded())
		remove(ctx, bucket)
	})

	It("is deleted though it never became anything", func(ctx SpecContext) {
		bucket := newBucket("never")
		bucket.Spec.SecretRef.Name = "missing"
		create(ctx, bucket)
		Eventually(get(ctx, bucket)).Should(HaveField("Status.LastError", Not(BeNil())))
		remove(ctx, bucket)
	})

	It("is deleted by the instance that comes after one which was stopped", func(ctx SpecContext) {
		bucket := create(ctx, newBucket("handed-over"))
		Eventually(get(ctx, bucket)).Should(matchers.HaveSucceeded())

		restart(func() {
			Expect(c.Delete(ctx, bucket)).To(Succeed())
			Expect(get(ctx, bucket)()).To(HaveField("DeletionTimestamp", Not(BeNil())), "nobody is there to let it go")
		})
		eventuallyGone(ctx, bucket)
		Expect(filepath.Join(buckets, "handed-over")).NotTo(BeAnExistingFile())
	})

	It("is left alone if it is of another class or type", func(ctx SpecContext) {
		shoot, other := newBucket("of-a-shoot"), newBucket("of-another-provider")
		shoot.Spec.Class = nil
		other.Spec.Type = "other"
		create(ctx, shoot)
		create(ctx, other)

		ours := create(ctx, newBucket("ours"))
		Eventually(get(ctx, ours)).Should(matchers.HaveSucceeded(), "by now the others would have been seen as well")
		for _, bucket := range []client.Object{shoot, other} {
			Expect(c.Get(ctx, client.ObjectKeyFromObject(bucket), bucket)).To(Succeed())
			Expect(bucket.GetFinalizers()).To(BeEmpty(), bucket.GetName())
			Expect(filepath.Join(buckets, bucket.GetName())).NotTo(BeAnExistingFile())
		}
	})
})

var _ = Describe("BackupEntry", func() {
	It("tells etcd-backup-restore where its store is, and only its own folder goes with it", func(ctx SpecContext) {
		bucket := create(ctx, newBucket("shared"))
		Eventually(get(ctx, bucket)).Should(matchers.HaveSucceeded())
		entry := create(ctx, newEntry("garden--one", "shared"))
		Eventually(get(ctx, entry)).Should(matchers.HaveSucceeded())

		etcd := secret("etcd-backup")
		Expect(get(ctx, etcd)()).To(HaveField("Data", And(
			HaveKeyWithValue("hostPath", []byte("/on/the/node")),
			HaveKeyWithValue("bucketName", []byte("shared")),
		)))

		own, other := filepath.Join(buckets, "shared", "garden--one"), filepath.Join(buckets, "shared", "garden--two")
		Expect(os.Mkdir(own, 0o700)).To(Succeed())
		Expect(os.Mkdir(other, 0o700)).To(Succeed())
		remove(ctx, entry)
		eventuallyGone(ctx, etcd)
		Expect(own).NotTo(BeAnExistingFile())
		Expect(other).To(BeADirectory())
	})

	It("can't reach outside of the root by its bucket's name", func(ctx SpecContext) {
		outside := filepath.Join(filepath.Dir(buckets), "outside")
		Expect(os.MkdirAll(filepath.Join(outside, "garden--evil"), 0o700)).To(Succeed())
		DeferCleanup(os.RemoveAll, outside)

		entry := create(ctx, newEntry("garden--evil", "../outside"))
		Eventually(get(ctx, entry)).Should(matchers.HaveConfigurationProblem("../outside"))
		remove(ctx, entry)
		Expect(filepath.Join(outside, "garden--evil")).To(BeADirectory())
	})

	It("of another class is left alone", func(ctx SpecContext) {
		entry := newEntry("shoot--foo--bar--uid", "shared")
		entry.Spec.Class = nil
		create(ctx, entry)
		Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shoot--foo--bar"}})).To(Succeed())
		bucket := create(ctx, newBucket("meanwhile"))
		Eventually(get(ctx, bucket)).Should(matchers.HaveSucceeded(), "by now the entry would have been seen as well")
		Expect(get(ctx, entry)()).To(HaveField("Finalizers", BeEmpty()))
	})
})

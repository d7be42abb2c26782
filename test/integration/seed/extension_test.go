// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package seed_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

var _ = Describe("An Extension", Ordered, func() {
	It("local-ext-seed has a ServiceAccount in the shoot's namespace of the seed", func(ctx SpecContext) {
		extension := create(ctx, newExtension(shootNamespace, "local-ext-seed"))
		eventuallySucceeded(ctx, extension)
		account := named[*corev1.ServiceAccount](shootNamespace, "local-ext-seed")
		Eventually(get(ctx, seed, account)).ShouldNot(BeNil())
		noted(ctx, extension.Name)
		remove(ctx, extension)
		Expect(isGone(ctx, seed, account)()).To(BeTrue())
	})

	It("local-ext-shoot has a ServiceAccount in the shoot, which a migration keeps", func(ctx SpecContext) {
		extension := create(ctx, newExtension(shootNamespace, "local-ext-shoot"))
		eventuallySucceeded(ctx, extension)
		account := named[*corev1.ServiceAccount](metav1.NamespaceSystem, "local-ext-shoot")
		Eventually(get(ctx, shoot, account)).ShouldNot(BeNil())

		operate(ctx, extension, "migrate")
		eventuallyMigrated(ctx, extension)
		Expect(isGone(ctx, shoot, account)()).To(BeFalse())
		operate(ctx, extension, "restore")
		eventuallyRestored(ctx, extension)
		noted(ctx, extension.Name)
		remove(ctx, extension)
		Expect(isGone(ctx, shoot, account)()).To(BeTrue())
	})

	It("local-ext-shoot-after-worker waits for its Deployment", func(ctx SpecContext) {
		extension := create(ctx, newExtension(shootNamespace, "local-ext-shoot-after-worker"))
		deployment := named[*appsv1.Deployment](metav1.NamespaceSystem, "local-ext-shoot-after-worker")
		Eventually(get(ctx, shoot, deployment)).ShouldNot(BeNil())
		Eventually(get(ctx, seed, extension)).Should(HaveField("Status.LastError", Not(BeNil())), "it says what it waits for")
		Expect(extension).NotTo(matchers.HaveSucceeded())

		By("being ready, as the kubelet and kube-controller-manager would have it")
		ready(ctx, deployment)
		eventuallySucceeded(ctx, extension)
	})

	It("local-ext-shoot-after-worker waits for nothing while the shoot is hibernated", func(ctx SpecContext) {
		changeShoot(ctx, shootNamespace, func(shoot *gardencorev1beta1.Shoot) {
			shoot.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)}
		})
		eventuallySucceeded(ctx, create(ctx, newExtension(shootNamespace, "local-ext-shoot-after-worker")))
	})
})

// ready writes what would be there if pods ran.
func ready(ctx SpecContext, deployment *appsv1.Deployment) {
	GinkgoHelper()
	patch := client.MergeFrom(deployment.DeepCopy())
	replicas := *deployment.Spec.Replicas
	deployment.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
		Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
		},
	}
	Expect(shoot.Status().Patch(ctx, deployment, patch)).To(Succeed())
	pods(ctx, deployment)
}

// pods makes the Pods that gardener-resource-manager counts before it calls a rollout done.
func pods(ctx SpecContext, deployment *appsv1.Deployment) {
	GinkgoHelper()
	for range *deployment.Spec.Replicas {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, GenerateName: deployment.Name + "-", Labels: deployment.Spec.Template.Labels},
			Spec:       deployment.Spec.Template.Spec,
		}
		pod.Spec.AutomountServiceAccountToken = new(false)
		Expect(shoot.Create(ctx, pod)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(shoot.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
		})
	}
}

var _ = Describe("Backups of shoots", Ordered, func() {
	It("are folders below the one of all buckets, and the Secret of a BackupEntry tells etcd-backup-restore where", func(ctx SpecContext) {
		bucket := create(ctx, &extensionsv1alpha1.BackupBucket{
			ObjectMeta: metav1.ObjectMeta{Name: "of-the-seed"},
			Spec: extensionsv1alpha1.BackupBucketSpec{
				DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"}, Region: "local",
				SecretRef: corev1.SecretReference{Namespace: gardenNamespace, Name: "backup"},
			},
		})
		eventuallySucceeded(ctx, bucket)
		entry := create(ctx, &extensionsv1alpha1.BackupEntry{
			ObjectMeta: metav1.ObjectMeta{Name: shootNamespace + "--uid"},
			Spec: extensionsv1alpha1.BackupEntrySpec{
				DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"}, Region: "local", BucketName: bucket.Name,
				SecretRef: corev1.SecretReference{Namespace: gardenNamespace, Name: "backup"},
			},
		})
		eventuallySucceeded(ctx, entry)
		secret := named[*corev1.Secret](shootNamespace, "etcd-backup")
		Expect(seed.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
		Expect(secret.Data).To(HaveKeyWithValue("hostPath", []byte("/on/the/node")))
	})
})

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package seed_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

const shootWebhooks = "extension-controlplane-shoot-webhooks"

var _ = Describe("A ControlPlane", Ordered, func() {
	var (
		storageClass = named[*storagev1.StorageClass]("", "default")
		provisioner  = named[*appsv1.Deployment](metav1.NamespaceSystem, "local-path-provisioner")
		webhooks     = named[*admissionregistrationv1.MutatingWebhookConfiguration]("", "gardener-extension-provider-local-seed-shoot")
		secrets      = func(ctx SpecContext, namespace string) []corev1.Secret {
			list := &corev1.SecretList{}
			Expect(seed.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{"manager-identity": "provider-local-controlplane"})).To(Succeed())
			return list.Items
		}
	)

	It("brings volumes, webhooks and secrets to a shoot, and takes them away", func(ctx SpecContext) {
		controlPlane := create(ctx, newControlPlane(shootNamespace))
		eventuallySucceeded(ctx, controlPlane)

		By("being healthy once gardener-resource-manager says so of the webhooks")
		Eventually(func() (gardencorev1beta1.ConditionStatus, error) {
			err := seed.Get(ctx, client.ObjectKeyFromObject(controlPlane), controlPlane)
			if condition := v1beta1helper.GetCondition(controlPlane.Status.Conditions, gardencorev1beta1.ShootSystemComponentsHealthy); condition != nil {
				return condition.Status, err
			}
			return "", err
		}).Should(Equal(gardencorev1beta1.ConditionTrue), "the watch tells the health check")

		By("having objects in the shoot")
		Eventually(get(ctx, shoot, storageClass)).Should(HaveField("Provisioner", "rancher.io/local-path"), "volumes are provided")
		Expect(storageClass.Annotations).To(HaveKeyWithValue("storageclass.kubernetes.io/is-default-class", "true"))
		Eventually(get(ctx, shoot, provisioner)).Should(HaveField("Spec.Template.Spec.Containers", HaveExactElements(HaveField("Image", "local-path-provisioner:test"))))
		Expect(shoot.Get(ctx, client.ObjectKeyFromObject(webhooks), webhooks)).To(Succeed())
		for _, webhook := range webhooks.Webhooks {
			Expect(*webhook.ClientConfig.URL).To(HaveSuffix("/" + shootNamespace))
			Expect(webhook.ClientConfig.CABundle).NotTo(BeEmpty())
		}

		By("having secrets, of which the password is short-lived")
		names := map[string]corev1.Secret{}
		for _, secret := range secrets(ctx, shootNamespace) {
			names[secret.Labels["name"]] = secret
		}
		Expect(names).To(HaveKey("ca-provider-local-controlplane"))
		Expect(names).To(HaveKey(ContainSubstring("client")))
		Expect(names).To(HaveKey(ContainSubstring("server")))
		Expect(names).To(HaveKey(ContainSubstring("auth")))
		for name, secret := range names {
			if _, ok := secret.Data["password"]; ok {
				Expect(secret.Labels).To(HaveKey("valid-until-time"), name)
			}
		}

		By("having nothing but compressed and immutable Secrets behind its ManagedResources")
		list := &resourcesv1alpha1.ManagedResourceList{}
		Expect(seed.List(ctx, list, client.InNamespace(shootNamespace))).To(Succeed())
		Expect(list.Items).To(HaveLen(3))
		for _, mr := range list.Items {
			for _, ref := range mr.Spec.SecretRefs {
				secret := named[*corev1.Secret](shootNamespace, ref.Name)
				Expect(seed.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
				Expect(secret.Data).To(And(HaveLen(1), HaveKey("data.yaml.br")))
				Expect(*secret.Immutable).To(BeTrue())
				Expect(secret.Labels).To(HaveKeyWithValue("resources.gardener.cloud/garbage-collectable-reference", "true"))
			}
		}

		By("leaving nothing behind")
		noted(ctx, "extension-controlplane-shoot")
		remove(ctx, controlPlane)
		for _, obj := range []client.Object{storageClass, provisioner, webhooks} {
			Expect(isGone(ctx, shoot, obj)()).To(BeTrue(), "%T %s goes before the ControlPlane does", obj, obj.GetName())
		}
		Expect(seed.List(ctx, list, client.InNamespace(shootNamespace))).To(Succeed())
		Expect(list.Items).To(BeEmpty())
		Expect(secrets(ctx, shootNamespace)).To(BeEmpty())
	})

	It("writes nothing when nothing changed", func(ctx SpecContext) {
		controlPlane := create(ctx, newControlPlane(shootNamespace))
		eventuallySucceeded(ctx, controlPlane)
		versions := func() map[string]string {
			out := map[string]string{}
			list := &corev1.SecretList{}
			Expect(seed.List(ctx, list, client.InNamespace(shootNamespace))).To(Succeed())
			for _, secret := range list.Items {
				out[secret.Name] = secret.ResourceVersion
			}
			managed := &resourcesv1alpha1.ManagedResourceList{}
			Expect(seed.List(ctx, managed, client.InNamespace(shootNamespace))).To(Succeed())
			Expect(managed.Items).NotTo(BeEmpty())
			for _, mr := range managed.Items {
				// Others write the status.
				out["ManagedResource "+mr.Name] = fmt.Sprint(mr.Generation, mr.Labels, mr.Annotations)
			}
			return out
		}
		before, last := versions(), controlPlane.Status.LastOperation.LastUpdateTime
		Eventually(func(g Gomega) {
			// Times on the status have no parts of a second.
			g.Expect(time.Since(last.Time)).To(BeNumerically(">", time.Second))
		}).Should(Succeed(), "a later reconcile can be told from the first")
		operate(ctx, controlPlane, "reconcile")
		Eventually(get(ctx, seed, controlPlane)).Should(And(matchers.HaveSucceeded(), HaveField("Status.LastOperation.LastUpdateTime", Not(Equal(last)))))
		Expect(versions()).To(Equal(before))
	})

	It("is done by a new instance when the old one ends half-way", func(ctx SpecContext) {
		controlPlane := create(ctx, newControlPlane(shootNamespace))
		Eventually(get(ctx, seed, named[*resourcesv1alpha1.ManagedResource](shootNamespace, shootWebhooks))).ShouldNot(BeNil(), "it has begun")
		instance.Stop()
		instance.start()
		eventuallySucceeded(ctx, controlPlane)
		Eventually(get(ctx, shoot, storageClass)).ShouldNot(BeNil())
	})

	It("takes over a StorageClass that has a ManagedResource of its own, as the provider-local of Gardener makes it", func(ctx SpecContext) {
		secret := named[*corev1.Secret](shootNamespace, "former-storage-class")
		secret.StringData = map[string]string{"default.yaml": `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: default
provisioner: rancher.io/local-path
volumeBindingMode: WaitForFirstConsumer
`}
		create(ctx, secret)
		former := named[*resourcesv1alpha1.ManagedResource](shootNamespace, "extension-controlplane-storageclasses")
		former.Spec.SecretRefs = []corev1.LocalObjectReference{{Name: secret.Name}}
		Expect(seed.Create(ctx, former)).To(Succeed())
		Eventually(get(ctx, shoot, storageClass)).ShouldNot(BeNil())
		uid := storageClass.UID

		eventuallySucceeded(ctx, create(ctx, newControlPlane(shootNamespace)))
		Eventually(isGone(ctx, seed, former)).Should(BeTrue())
		Eventually(get(ctx, shoot, storageClass)).Should(And(
			HaveField("UID", uid),
			HaveField("Annotations", HaveKeyWithValue("resources.gardener.cloud/origin", HaveSuffix("/extension-controlplane-shoot"))),
		))
	})

	It("heals what was deleted by hand", func(ctx SpecContext) {
		controlPlane := create(ctx, newControlPlane(shootNamespace))
		eventuallySucceeded(ctx, controlPlane)
		noted(ctx, "extension-controlplane-shoot")
		Expect(seed.Delete(ctx, named[*resourcesv1alpha1.ManagedResource](shootNamespace, "extension-controlplane-shoot"))).To(Succeed())
		Eventually(isGone(ctx, shoot, storageClass)).Should(BeTrue())
		operate(ctx, controlPlane, "reconcile")
		Eventually(get(ctx, shoot, storageClass)).ShouldNot(BeNil())
	})

	It("can be deleted before it was created", func(ctx SpecContext) {
		controlPlane := create(ctx, newControlPlane(shootNamespace))
		Eventually(get(ctx, seed, controlPlane)).Should(HaveField("Finalizers", Not(BeEmpty())), "it has begun")
		noted(ctx, shootWebhooks)
		remove(ctx, controlPlane)
		Expect(isGone(ctx, shoot, webhooks)()).To(BeTrue())
		list := &resourcesv1alpha1.ManagedResourceList{}
		Expect(seed.List(ctx, list, client.InNamespace(shootNamespace))).To(Succeed())
		Expect(list.Items).To(BeEmpty())
		Expect(secrets(ctx, shootNamespace)).To(BeEmpty())
	})

	It("leaves the shoot's objects alone in a migration, but for the webhooks, and finds them in the restore", func(ctx SpecContext) {
		controlPlane := create(ctx, newControlPlane(shootNamespace))
		eventuallySucceeded(ctx, controlPlane)
		Eventually(get(ctx, shoot, storageClass)).ShouldNot(BeNil())
		uid := storageClass.UID

		operate(ctx, controlPlane, "migrate")
		eventuallyMigrated(ctx, controlPlane)
		Expect(isGone(ctx, shoot, webhooks)()).To(BeTrue(), "they call a seed that is no longer the shoot's")
		Expect(shoot.Get(ctx, client.ObjectKeyFromObject(storageClass), storageClass)).To(Succeed())
		list := &resourcesv1alpha1.ManagedResourceList{}
		Expect(seed.List(ctx, list, client.InNamespace(shootNamespace))).To(Succeed())
		Expect(list.Items).To(BeEmpty())

		operate(ctx, controlPlane, "restore")
		eventuallyRestored(ctx, controlPlane)
		Expect(shoot.Get(ctx, client.ObjectKeyFromObject(storageClass), storageClass)).To(Succeed())
		Expect(storageClass.UID).To(Equal(uid))
	})

	It("says what is wrong with a providerConfig", func(ctx SpecContext) {
		controlPlane := newControlPlane(shootNamespace)
		controlPlane.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":"ControlPlaneConfig","zone":"a"}`)}
		create(ctx, controlPlane)
		Eventually(get(ctx, seed, controlPlane)).Should(matchers.HaveConfigurationProblem("providerConfig"))
	})

	It("waits for a gardener-resource-manager that does not come, and is deleted by force", func(ctx SpecContext) {
		controlPlane := newControlPlane(lostNamespace)
		Expect(seed.Create(ctx, controlPlane)).To(Succeed())
		mr := named[*resourcesv1alpha1.ManagedResource](lostNamespace, shootWebhooks)
		Eventually(get(ctx, seed, mr)).ShouldNot(BeNil())
		// What the shoot's gardener-resource-manager would have left when it went away.
		patch := client.MergeFrom(mr.DeepCopy())
		mr.Finalizers = []string{"resources.gardener.cloud/gardener-resource-manager"}
		Expect(seed.Patch(ctx, mr, patch)).To(Succeed())
		Expect(seed.Delete(ctx, controlPlane)).To(Succeed())
		Eventually(get(ctx, seed, controlPlane)).Should(HaveField("Status.LastError.Description", ContainSubstring(shootWebhooks)), "it says what it waits for")

		changeShoot(ctx, lostNamespace, func(shoot *gardencorev1beta1.Shoot) {
			shoot.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
			shoot.DeletionTimestamp = new(metav1.Now())
		})
		operate(ctx, controlPlane, "reconcile")
		Eventually(isGone(ctx, seed, controlPlane)).Should(BeTrue())
		Expect(secrets(ctx, lostNamespace)).To(BeEmpty())

		Expect(seed.Get(ctx, client.ObjectKeyFromObject(mr), mr)).To(Succeed())
		patch = client.MergeFrom(mr.DeepCopy())
		mr.Finalizers = nil
		Expect(seed.Patch(ctx, mr, patch)).To(Succeed())
	})

	It("of another type or class is left alone", func(ctx SpecContext) {
		other := newControlPlane(shootNamespace)
		other.Name, other.Spec.Type = "other-type", "stackit"
		create(ctx, other)
		garden := newControlPlane(shootNamespace)
		garden.Name, garden.Spec.Class = "other-class", new(extensionsv1alpha1.ExtensionClassGarden)
		create(ctx, garden)
		eventuallySucceeded(ctx, create(ctx, newControlPlane(shootNamespace)))
		for _, controlPlane := range []*extensionsv1alpha1.ControlPlane{other, garden} {
			Expect(seed.Get(ctx, client.ObjectKeyFromObject(controlPlane), controlPlane)).To(Succeed())
			Expect(controlPlane.Finalizers).To(BeEmpty())
			Expect(controlPlane.Status.LastOperation).To(BeNil())
		}
	})
})

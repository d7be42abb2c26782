// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/controlplane"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// volumesFolder is where local-path-provisioner makes its folders, which is on this machine.
const volumesFolder = "/var/lib/local-path-provisioner"

var _ = Describe("A ControlPlane", Ordered, Serial, func() {
	var (
		controlPlane *extensionsv1alpha1.ControlPlane
		storageClass = named[*storagev1.StorageClass]("", "default")
		provisioner  = named[*appsv1.Deployment](metav1.NamespaceSystem, "local-path-provisioner")
		webhooks     = named[*admissionregistrationv1.MutatingWebhookConfiguration]("", seedInstance+"-shoot")
	)

	BeforeAll(func(ctx SpecContext) {
		for _, obj := range []client.Object{storageClass, provisioner, webhooks} {
			Expect(isGone(ctx, obj)()).To(BeTrue(), "the landscape has no %T %s that the shoot's would overwrite", obj, obj.GetName())
		}
		if _, err := os.Stat(volumesFolder); os.IsNotExist(err) {
			// Only if it is empty, that is, if the volumes went.
			DeferCleanup(func() { Expect(os.Remove(volumesFolder)).To(Or(Succeed(), MatchError(os.ErrNotExist))) })
		}
		controlPlane = newControlPlane()
		DeferCleanup(func(ctx SpecContext) { deleteAndWait(ctx, controlPlane) })
		Expect(c.Create(ctx, controlPlane)).To(Succeed())
	})

	It("succeeds and is healthy", func(ctx SpecContext) {
		eventuallySucceeded(ctx, controlPlane)
		Eventually(get(ctx, controlPlane)).Should(HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", gardencorev1beta1.ShootSystemComponentsHealthy), HaveField("Status", gardencorev1beta1.ConditionTrue),
		))))
	})

	It("brings a default StorageClass, the provisioner that serves it, and webhooks to the shoot", func(ctx SpecContext) {
		Eventually(get(ctx, storageClass)).Should(And(
			HaveField("Provisioner", "rancher.io/local-path"),
			HaveField("Annotations", HaveKeyWithValue("storageclass.kubernetes.io/is-default-class", "true"))))
		eventuallyReady(ctx, provisioner)
		Expect(provisioner.Spec.Template.Spec.Containers).To(HaveExactElements(HaveField("Image", ContainSubstring("local-path-provisioner"))))
		Expect(c.Get(ctx, client.ObjectKeyFromObject(webhooks), webhooks)).To(Succeed())
		for _, webhook := range webhooks.Webhooks {
			Expect(*webhook.ClientConfig.URL).To(And(
				HavePrefix("https://"+seedInstance+"."+seedInstanceNamespace+":443/"), HaveSuffix("/"+shootNamespace)))
		}
		for _, name := range managedResources(ctx) {
			mr := named[*resourcesv1alpha1.ManagedResource](shootNamespace, name)
			Eventually(get(ctx, mr)).Should(HaveField("Status.Conditions", ContainElement(And(
				HaveField("Type", resourcesv1alpha1.ResourcesHealthy), HaveField("Status", gardencorev1beta1.ConditionTrue),
			))), name)
		}
	})

	It("gives pods volumes, and takes the folders away with them", func(ctx SpecContext) {
		claim := create(ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "e2e"},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &storageClass.Name,
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
			},
		})
		pod := create(ctx, newPodWith(claim))
		Eventually(get(ctx, claim)).Should(HaveField("Status.Phase", corev1.ClaimBound))
		Eventually(get(ctx, pod)).Should(HaveField("Status.Phase", corev1.PodRunning))

		volume := named[*corev1.PersistentVolume]("", claim.Spec.VolumeName)
		Expect(c.Get(ctx, client.ObjectKeyFromObject(volume), volume)).To(Succeed())
		folder := folderOf(volume)
		Expect(filepath.Dir(folder)).To(Equal(volumesFolder))
		info, err := os.Stat(folder)
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o777)), "any pod may write to it")

		By("holding what pods of other users leave, in a folder where each may remove but its own")
		const someUser = 12345
		inside := filepath.Join(folder, "folder")
		Expect(os.Mkdir(inside, 0o700)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(inside, "file"), []byte("content"), 0o600)).To(Succeed())
		for _, path := range []string{filepath.Join(inside, "file"), inside} {
			Expect(os.Chown(path, someUser, someUser)).To(Succeed())
		}
		Expect(os.Chmod(inside, 0o700|os.ModeSticky)).To(Succeed())

		deleteAndWait(ctx, pod)
		deleteAndWait(ctx, claim)
		eventuallyGone(ctx, volume)
		Expect(folder).NotTo(BeAnExistingFile())
		Eventually(func() ([]corev1.Pod, error) {
			return podsOf(ctx, metav1.NamespaceSystem, map[string]string{"app.kubernetes.io/name": "local-path-helper"})
		}).Should(BeEmpty(), "the pods that made and removed the folder are gone")
	})

	It("leaves nothing behind", func(ctx SpecContext) {
		Expect(managedResources(ctx)).To(ConsistOf(controlplane.ShootName, controlplane.WebhooksName))
		objects := deployed(ctx)
		Expect(len(objects)).To(BeNumerically(">=", 8))
		deleteAndWait(ctx, controlPlane)
		for _, obj := range objects {
			Expect(isGone(ctx, obj)()).To(BeTrue(), "%s %s goes before the ControlPlane does", obj.GetKind(), obj.GetName())
		}
		Expect(managedResources(ctx)).To(BeEmpty())
		Expect(secrets(ctx)).To(BeEmpty())
	})

	It("is deleted by force when the shoot's gardener-resource-manager is gone", func(ctx SpecContext) {
		controlPlane = newControlPlane()
		Expect(c.Create(ctx, controlPlane)).To(Succeed())
		eventuallySucceeded(ctx, controlPlane)
		Eventually(get(ctx, storageClass)).ShouldNot(BeNil())
		Expect(secrets(ctx)).NotTo(BeEmpty())

		By("losing gardener-resource-manager")
		resourceManager := named[*appsv1.Deployment](shootNamespace, resourceManager)
		scale(ctx, resourceManager, 0)
		DeferCleanup(func(ctx SpecContext) { scale(ctx, resourceManager, 1) })

		By("deleting by force")
		changeShoot(ctx, func(shoot *gardencorev1beta1.Shoot) {
			shoot.Annotations = map[string]string{v1beta1constants.AnnotationConfirmationForceDeletion: "true"}
			shoot.DeletionTimestamp = new(metav1.Now())
		})
		DeferCleanup(func(ctx SpecContext) { changeShoot(ctx, nil) })
		deleteAndWait(ctx, controlPlane)
		Expect(secrets(ctx)).To(BeEmpty())
		Expect(c.Get(ctx, client.ObjectKeyFromObject(storageClass), storageClass)).To(Succeed(), "what is in the shoot is waited for in nothing")
	})

	It("finds what is left in the shoot when it is made anew, and takes that away", func(ctx SpecContext) {
		controlPlane = newControlPlane()
		Expect(c.Create(ctx, controlPlane)).To(Succeed())
		eventuallySucceeded(ctx, controlPlane)
		Eventually(func() []string { return managedResources(ctx) }).Should(ConsistOf(controlplane.ShootName, controlplane.WebhooksName))
		for _, name := range managedResources(ctx) {
			mr := named[*resourcesv1alpha1.ManagedResource](shootNamespace, name)
			Eventually(get(ctx, mr)).Should(HaveField("Status.Resources", Not(BeEmpty())), name)
		}
		objects := deployed(ctx)
		deleteAndWait(ctx, controlPlane)
		for _, obj := range objects {
			Expect(isGone(ctx, obj)()).To(BeTrue(), "%s %s", obj.GetKind(), obj.GetName())
		}
		Expect(isGone(ctx, storageClass)()).To(BeTrue())
	})
})

func newControlPlane() *extensionsv1alpha1.ControlPlane {
	return &extensionsv1alpha1.ControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: shootNamespace, Name: "one"},
		Spec: extensionsv1alpha1.ControlPlaneSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"},
			Region:      "local",
			SecretRef:   corev1.SecretReference{Namespace: shootNamespace, Name: v1beta1constants.SecretNameCloudProvider},
		},
	}
}

// managedResources are those of ours in the shoot's namespace.
func managedResources(ctx context.Context) []string {
	GinkgoHelper()
	list := &resourcesv1alpha1.ManagedResourceList{}
	Expect(c.List(ctx, list, client.InNamespace(shootNamespace), client.MatchingLabels{resources.LabelOrigin: resources.Origin})).To(Succeed())
	var names []string
	for _, mr := range list.Items {
		names = append(names, mr.Name)
	}
	return names
}

// deployed are all objects which gardener-resource-manager has applied for the shoot.
func deployed(ctx context.Context) []*unstructured.Unstructured {
	GinkgoHelper()
	var objects []*unstructured.Unstructured
	for _, name := range managedResources(ctx) {
		mr := named[*resourcesv1alpha1.ManagedResource](shootNamespace, name)
		Expect(c.Get(ctx, client.ObjectKeyFromObject(mr), mr)).To(Succeed())
		for _, ref := range mr.Status.Resources {
			obj := &unstructured.Unstructured{}
			obj.SetAPIVersion(ref.APIVersion)
			obj.SetKind(ref.Kind)
			obj.SetNamespace(ref.Namespace)
			obj.SetName(ref.Name)
			err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
			Expect(apierrors.IsNotFound(err)).To(BeFalse(), "%s %s is there", ref.Kind, ref.Name)
			objects = append(objects, obj)
		}
	}
	return objects
}

// secrets are those which the ControlPlane's secrets manager keeps.
func secrets(ctx context.Context) []corev1.Secret {
	GinkgoHelper()
	list := &corev1.SecretList{}
	Expect(c.List(ctx, list, client.InNamespace(shootNamespace), client.MatchingLabels{secretsmanager.LabelKeyManagerIdentity: "provider-local-controlplane"})).To(Succeed())
	return list.Items
}

func newPodWith(claim *corev1.PersistentVolumeClaim) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(false),
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{
				Name: "pause", Image: "registry.k8s.io/pause:3.10",
				VolumeMounts: []corev1.VolumeMount{{Name: "volume", MountPath: "/volume"}},
			}},
			Volumes: []corev1.Volume{{Name: "volume", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
			}}},
		},
	}
}

func folderOf(volume *corev1.PersistentVolume) string {
	GinkgoHelper()
	switch {
	case volume.Spec.HostPath != nil:
		return volume.Spec.HostPath.Path
	case volume.Spec.Local != nil:
		return volume.Spec.Local.Path
	}
	Fail("the volume is not a folder")
	return ""
}

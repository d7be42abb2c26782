// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// kind is a type of Extension and what is deployed for it. A further type is a further entry in kinds.
type kind struct {
	// extensionType is the spec.type of the Extensions. The controller and the ManagedResource are named after it too.
	extensionType string
	// classes are those of which there are Extensions of this type.
	classes []extensionsv1alpha1.ExtensionClass
	// isInSeed reports whether the object is in the seed, in the namespace of its Extension. The GRM of class seed applies it, and
	// it is deleted with the Extension, also when that moves to another seed. Any other object is in kube-system of the shoot or
	// of the virtual garden. The GRM of the namespace applies it, and it moves along with the shoot.
	isInSeed bool
	// waits tells that an Extension has not succeeded before GRM says that all objects are healthy. In the cluster of a
	// hibernated shoot nothing runs, so nothing is waited for.
	waits bool
	// hasLeftovers tells that a shoot may ask for leftovers.
	hasLeftovers bool
	// object is what is deployed.
	object func(namespace, name string) client.Object
}

func kinds() []kind {
	const garden, seed, shoot = extensionsv1alpha1.ExtensionClassGarden, extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot
	return []kind{
		{extensionType: TypeSeed, classes: []extensionsv1alpha1.ExtensionClass{seed, shoot}, isInSeed: true, waits: true, object: serviceAccount},
		{extensionType: TypeShoot, classes: []extensionsv1alpha1.ExtensionClass{garden, shoot}, hasLeftovers: true, object: serviceAccount},
		{extensionType: TypeShootAfterWorker, classes: []extensionsv1alpha1.ExtensionClass{shoot}, waits: true, object: deployment},
	}
}

// key names the ManagedResource of an Extension.
func (k kind) key(ex *extensionsv1alpha1.Extension) client.ObjectKey {
	return client.ObjectKey{Namespace: ex.Namespace, Name: k.extensionType}
}

func (k kind) managedResource(ex *extensionsv1alpha1.Extension) resources.ManagedResource {
	mr, namespace := resources.ManagedResource{Namespace: ex.Namespace, Name: k.extensionType}, metav1.NamespaceSystem
	if k.isInSeed {
		namespace, mr.Class = ex.Namespace, v1beta1constants.SeedResourceManagerClass
	} else {
		mr.InjectedLabels = map[string]string{v1beta1constants.ShootNoCleanup: "true"}
	}
	mr.Objects = []client.Object{k.object(namespace, k.extensionType)}
	return mr
}

// managedResources says by which ManagedResource an Extension of this kind is woken.
func (k kind) managedResources() reconciler.ManagedResources {
	owns := func(name string) bool { return name == k.extensionType }
	return reconciler.ManagedResources{
		Owns:   owns,
		Awaits: func(name string) bool { return k.waits && owns(name) },
		Health: health.CheckManagedResource,
	}
}

// serviceAccount stands for what a real extension would deploy. It does nothing.
func serviceAccount(namespace, name string) client.Object {
	return &corev1.ServiceAccount{
		ObjectMeta:                   metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: nameLabel(name)},
		AutomountServiceAccountToken: new(bool),
	}
}

// deployment stands for what a real extension would run on the nodes of a shoot. Its pod does nothing but run. It is of
// use by showing that the nodes of the shoot run pods: so it asks for next to nothing, and fits on any of them.
func deployment(namespace, name string) client.Object {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: nameLabel(name)},
		Spec: appsv1.DeploymentSpec{
			Replicas:             new(int32(1)),
			RevisionHistoryLimit: new(int32(1)),
			Selector:             &metav1.LabelSelector{MatchLabels: nameLabel(name)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: nameLabel(name)},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken:  new(false),
					EnableServiceLinks:            new(false),
					TerminationGracePeriodSeconds: new(int64(0)),
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot:   new(true),
						RunAsUser:      new(int64(65532)),
						RunAsGroup:     new(int64(65532)),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{
						Name:            "pause",
						Image:           pauseImage,
						ImagePullPolicy: corev1.PullIfNotPresent,
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
							corev1.ResourceCPU:    resource.MustParse("1m"),
							corev1.ResourceMemory: resource.MustParse("1Mi"),
						}},
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: new(false),
							ReadOnlyRootFilesystem:   new(true),
							Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						},
					}},
				},
			},
		},
	}
}

func nameLabel(name string) map[string]string {
	return map[string]string{"app.kubernetes.io/name": name}
}

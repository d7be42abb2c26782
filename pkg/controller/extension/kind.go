// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// kind is a type of Extension and what is deployed for it. A further type is a further entry in kinds.
type kind struct {
	// extensionType is the spec.type of the Extensions. The controller and the ManagedResource are named after it too.
	extensionType string
	// classes are those of which there are Extensions of this type.
	classes []extensionsv1alpha1.ExtensionClass
	// resourceClass is the class of the ManagedResource: empty for the GRM that is responsible for the namespace of the
	// Extension. In a shoot's namespace that one applies to the shoot's cluster, and in the namespace garden it is the
	// virtual garden's. The other one there, for the runtime cluster, has the class seed.
	resourceClass string
	// injectedLabels are put on all objects.
	injectedLabels map[string]string
	// objects are what is deployed.
	objects []client.Object
}

func kinds() []kind {
	return []kind{
		{
			extensionType:  TypeShoot,
			classes:        []extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassGarden, extensionsv1alpha1.ExtensionClassShoot},
			injectedLabels: map[string]string{v1beta1constants.ShootNoCleanup: "true"},
			objects:        []client.Object{serviceAccount(TypeShoot)},
		},
	}
}

// serviceAccount stands for what a real extension would deploy. It does nothing.
func serviceAccount(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: metav1.NamespaceSystem,
			Labels:    map[string]string{"app.kubernetes.io/name": name},
		},
		AutomountServiceAccountToken: new(bool),
	}
}

// key names the ManagedResource of an Extension.
func (k kind) key(ex *extensionsv1alpha1.Extension) client.ObjectKey {
	return client.ObjectKey{Namespace: ex.Namespace, Name: k.extensionType}
}

func (k kind) managedResource(ex *extensionsv1alpha1.Extension) resources.ManagedResource {
	return resources.ManagedResource{
		Namespace:      ex.Namespace,
		Name:           k.extensionType,
		Class:          k.resourceClass,
		InjectedLabels: maps.Clone(k.injectedLabels),
		Objects:        slices.Clone(k.objects),
	}
}

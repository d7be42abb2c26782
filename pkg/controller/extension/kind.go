// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"maps"

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
	// resourceClass is the class of the ManagedResource: empty for the GRM that is responsible for the namespace of the
	// Extension. In a shoot's namespace that one applies to the shoot's cluster, and in the namespace garden it is the
	// virtual garden's. The other one there, for the seed or the garden runtime cluster, has the class seed.
	resourceClass string
	// injectedLabels are put on all objects.
	injectedLabels map[string]string
	// waits tells that an Extension has not succeeded before GRM says that all objects are healthy. In the cluster of a
	// hibernated shoot nothing runs, so nothing is waited for.
	waits bool
	// hasLeftovers tells that a shoot may ask for leftovers.
	hasLeftovers bool
	// objects are what is deployed for an Extension in this namespace.
	objects func(namespace string) []client.Object
}

func kinds(pauseImage string) []kind {
	inShoot := map[string]string{v1beta1constants.ShootNoCleanup: "true"}
	return []kind{
		{
			extensionType: TypeSeed,
			classes:       []extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot},
			resourceClass: v1beta1constants.SeedResourceManagerClass,
			waits:         true,
			objects: func(namespace string) []client.Object {
				return []client.Object{serviceAccount(namespace, TypeSeed)}
			},
		},
		{
			extensionType:  TypeShoot,
			classes:        []extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassGarden, extensionsv1alpha1.ExtensionClassShoot},
			injectedLabels: inShoot,
			hasLeftovers:   true,
			objects: func(string) []client.Object {
				return []client.Object{serviceAccount(systemNamespace, TypeShoot)}
			},
		},
		{
			extensionType:  TypeShootAfterWorker,
			classes:        []extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassShoot},
			injectedLabels: inShoot,
			waits:          true,
			objects: func(string) []client.Object {
				return []client.Object{deployment(systemNamespace, TypeShootAfterWorker, pauseImage)}
			},
		},
	}
}

// isInSeed reports whether the objects are in the cluster of the Extension itself. They go with the Extension then, even if
// that only moves to another seed: there it gets its own. What is in a shoot moves along with the shoot.
func (k kind) isInSeed() bool {
	return k.resourceClass == v1beta1constants.SeedResourceManagerClass
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
		Objects:        k.objects(ex.Namespace),
	}
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

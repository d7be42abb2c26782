// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

// The ManagedResources that the seed document on provider-local names in its section "Health Checks".
const (
	// ManagedResourceShootWebhooks holds the webhooks in the shoot.
	ManagedResourceShootWebhooks = "extension-controlplane-shoot-webhooks"
	// ManagedResourceNetwork holds what a Network of type local deploys into the shoot.
	ManagedResourceNetwork = "extension-networking-local"
	// ManagedResourceWorker holds the permissions of machine-controller-manager in the shoot.
	ManagedResourceWorker = "extension-worker-mcm-shoot"
	// ManagedResourceWorkerCore is what gardenlet has called it since it deploys machine-controller-manager itself.
	ManagedResourceWorkerCore = "shoot-core-machine-controller-manager"
)

// kind is a kind of extension object and what is checked for it.
type kind struct {
	// name is the kind in lower case.
	name      string
	newObject func() extensionsv1alpha1.Object
	newList   func() client.ObjectList
	checks    []check
	// obsolete are types of conditions that are taken off, since nothing is checked for them any more.
	obsolete []gardencorev1beta1.ConditionType
	// forget is told of namespaces in which there is nothing to check, be it for the time being.
	forget func(namespace string)
}

// check determines one condition.
type check struct {
	condition gardencorev1beta1.ConditionType
	// run tells how things are in the namespace of a shoot. An error is why this cannot be told.
	run func(ctx context.Context, namespace string) (result, error)
	// watches are what the outcome depends on.
	watches []watched
}

// watched is a kind of object in a shoot's namespace on which a check depends.
type watched struct {
	object client.Object
	// names are those of the objects; none for all of them.
	names []string
	// aspect is all that the check sees of an object. Changes of anything else are not worth a check.
	aspect func(client.Object) string
	// late is set if the cluster may not know the kind when the instance starts.
	late bool
}

// kinds is the table of the seed document.
func kinds(reader client.Reader, shoots *shoots, withoutShootWebhooks bool) []kind {
	controlPlane := kind{
		name:      "controlplane",
		newObject: func() extensionsv1alpha1.Object { return &extensionsv1alpha1.ControlPlane{} },
		newList:   func() client.ObjectList { return &extensionsv1alpha1.ControlPlaneList{} },
		forget:    func(string) {},
	}
	if webhooks := managedResourceCheck(reader, "", ManagedResourceShootWebhooks); withoutShootWebhooks {
		controlPlane.obsolete = []gardencorev1beta1.ConditionType{webhooks.condition}
	} else {
		controlPlane.checks = []check{webhooks}
	}

	return []kind{
		controlPlane,
		{
			name:      "network",
			newObject: func() extensionsv1alpha1.Object { return &extensionsv1alpha1.Network{} },
			newList:   func() client.ObjectList { return &extensionsv1alpha1.NetworkList{} },
			forget:    func(string) {},
			checks: []check{
				managedResourceCheck(reader, "this extension has no controller for Networks, choose another networking type", ManagedResourceNetwork),
			},
		},
		{
			name:      "worker",
			newObject: func() extensionsv1alpha1.Object { return &extensionsv1alpha1.Worker{} },
			newList:   func() client.ObjectList { return &extensionsv1alpha1.WorkerList{} },
			forget:    shoots.forget,
			checks: []check{
				managedResourceCheck(reader, "", ManagedResourceWorker, ManagedResourceWorkerCore),
				deploymentCheck(reader, v1beta1constants.DeploymentNameMachineControllerManager),
				nodesCheck(reader, shoots),
			},
		},
	}
}

// managedResourceCheck looks at the first ManagedResource that exists. If none does, the hint tells what may be done.
func managedResourceCheck(reader client.Reader, hint string, names ...string) check {
	return check{
		condition: gardencorev1beta1.ShootSystemComponentsHealthy,
		run: func(ctx context.Context, namespace string) (result, error) {
			return readManagedResource(ctx, reader, namespace, hint, names)
		},
		watches: []watched{{
			object: &resourcesv1alpha1.ManagedResource{},
			names:  names,
			aspect: aspectOf(func(mr *resourcesv1alpha1.ManagedResource) any { return managedResourceHealth(mr) }),
		}},
	}
}

func deploymentCheck(reader client.Reader, name string) check {
	return check{
		condition: gardencorev1beta1.ShootControlPlaneHealthy,
		run: func(ctx context.Context, namespace string) (result, error) {
			return readDeployment(ctx, reader, namespace, name)
		},
		watches: []watched{{
			object: &appsv1.Deployment{},
			names:  []string{name},
			aspect: aspectOf(func(deployment *appsv1.Deployment) any { return deploymentHealth(deployment) }),
		}},
	}
}

// nodesCheck asks the shoot for its Nodes. It is the Machines that tell of a change there: machine-controller-manager
// watches the Nodes and writes their conditions to Machine.status.conditions as soon as the status of one changes.
func nodesCheck(reader client.Reader, shoots *shoots) check {
	return check{
		condition: gardencorev1beta1.ShootEveryNodeReady,
		run: func(ctx context.Context, namespace string) (result, error) {
			return readNodes(ctx, reader, shoots, namespace)
		},
		watches: []watched{
			{object: &machinev1alpha1.Machine{}, aspect: aspectOf(machineAspect), late: true},
			{object: &machinev1alpha1.MachineDeployment{}, aspect: aspectOf(machineDeploymentAspect), late: true},
		},
	}
}

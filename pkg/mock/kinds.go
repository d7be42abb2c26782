// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

const (
	// Type is the type of the objects that are served.
	Type = "mock"
	// TypeOS is a further type of OperatingSystemConfigs: the name of an operating system.
	TypeOS = "mockos"
	// FinalizerName is the finalizer of the objects of all kinds.
	FinalizerName = "extensions.gardener.cloud/mock"
)

// kind is a kind of extension objects, and what makes it differ from others.
type kind struct {
	// name is the kind.
	name string
	// types are further types that are served.
	types []string
	// inGarden tells that there are objects of class garden.
	inGarden bool
	// newObject returns an empty object.
	newObject func() extensionsv1alpha1.Object
	// apply does what a reconcile and a restore consist of, and says it in the object's status, which is written afterwards.
	apply step
	// remove does what a deletion consists of.
	remove step
	// migrate does what a migration consists of: usually nothing, as what is in the seed goes with the namespace, and what is
	// in the shoot moves along with it.
	migrate step
}

// step is what a kind has done for an operation. What it returns is put on the object: a RequeueAfterError without codes as
// the progress of the operation, any other error as its failure.
type step func(ctx context.Context, p *provider, o *operation) error

// provider is what steps need.
type provider struct {
	client   client.Client
	clock    clock.PassiveClock
	hostPath string
	nodes    Nodes
}

// kinds are all kinds of extension objects.
func kinds() []kind {
	return []kind{
		{name: extensionsv1alpha1.BackupBucketResource, newObject: newOf[extensionsv1alpha1.BackupBucket], inGarden: true},
		{
			name: extensionsv1alpha1.BackupEntryResource, newObject: newOf[extensionsv1alpha1.BackupEntry], inGarden: true,
			apply: on(applyBackupEntry), remove: on(removeBackupEntry),
		},
		{name: extensionsv1alpha1.BastionResource, newObject: newOf[extensionsv1alpha1.Bastion], apply: on(applyBastion)},
		{name: extensionsv1alpha1.ContainerRuntimeResource, newObject: newOf[extensionsv1alpha1.ContainerRuntime]},
		{name: extensionsv1alpha1.ControlPlaneResource, newObject: newOf[extensionsv1alpha1.ControlPlane]},
		{name: extensionsv1alpha1.DNSRecordResource, newObject: newOf[extensionsv1alpha1.DNSRecord], inGarden: true, apply: on(applyDNSRecord)},
		{name: extensionsv1alpha1.ExtensionResource, newObject: newOf[extensionsv1alpha1.Extension], inGarden: true},
		{name: extensionsv1alpha1.InfrastructureResource, newObject: newOf[extensionsv1alpha1.Infrastructure], apply: on(applyInfrastructure)},
		{name: extensionsv1alpha1.NetworkResource, newObject: newOf[extensionsv1alpha1.Network], apply: on(applyNetwork)},
		{
			name: extensionsv1alpha1.OperatingSystemConfigResource, newObject: newOf[extensionsv1alpha1.OperatingSystemConfig],
			types: []string{TypeOS}, apply: on(applyOperatingSystemConfig),
		},
		{name: extensionsv1alpha1.SelfHostedShootExposureResource, newObject: newOf[extensionsv1alpha1.SelfHostedShootExposure], apply: on(applyExposure)},
		{
			name: extensionsv1alpha1.WorkerResource, newObject: newOf[extensionsv1alpha1.Worker],
			apply: on(applyWorker), remove: on(removeWorker), migrate: on(migrateWorker),
		},
	}
}

func newOf[T any, P interface {
	*T
	extensionsv1alpha1.Object
}]() extensionsv1alpha1.Object {
	return P(new(T))
}

// on makes a step of a function for one kind.
func on[T extensionsv1alpha1.Object](do func(context.Context, *provider, *operation, T) error) step {
	return func(ctx context.Context, p *provider, o *operation) error {
		return do(ctx, p, o, o.Object.(T))
	}
}

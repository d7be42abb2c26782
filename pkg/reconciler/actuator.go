// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"

	"github.com/go-logr/logr"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

// Actuator does what there is to do for the objects of one kind. The package comment says what its errors mean. All methods
// have to go on where an earlier attempt was stopped, and to be fine with what that has done.
type Actuator[T extensionsv1alpha1.Object] interface {
	// Reconcile is called for a creation and for every reconciliation. The object has its finalizer.
	Reconcile(ctx context.Context, op *Operation[T]) error
	// Restore is called in the destination seed of a control plane migration. The object has its finalizer.
	Restore(ctx context.Context, op *Operation[T]) error
	// Migrate is called in the source seed. The object is deleted after it, without Delete being called.
	Migrate(ctx context.Context, op *Operation[T]) error
	// Delete is called for an object that has the finalizer.
	Delete(ctx context.Context, op *Operation[T]) error
	// ForceDelete is called in place of Delete if a user does not care for what is left behind.
	ForceDelete(ctx context.Context, op *Operation[T]) error
}

// Operation is one attempt at an operation on an object.
type Operation[T extensionsv1alpha1.Object] struct {
	// Log has the name of the operation.
	Log logr.Logger
	// Object is as it was read. Changes of its status are written in the end.
	Object T
	// Cluster is that of the object's shoot; nil if there is none, if the object is not of class shoot, or if the kind is
	// reconciled without (Options.WithoutClusters).
	Cluster *extensioncluster.Cluster
	// Type is the type for lastOperation.
	Type gardencorev1beta1.LastOperationType
	// Force tells that a user has forced the deletion, of the shoot or of this object.
	Force bool
	// Asked tells that Gardener asks for a reconcile by annotation, so this is its first attempt. While an object is migrated
	// or restored the annotation stays until that has succeeded, so there it says nothing.
	Asked bool

	// SaveStatus writes the changes of the status so far, if there are any, before the operation has ended. lastOperation is
	// left as it is.
	SaveStatus func(ctx context.Context) error

	// before is the status as it is in the API server.
	before []byte
	// written is what this operation has written so far.
	written *written
	// read is what determines whether something else is asked for meanwhile.
	read state
}

// state is what an object asks for.
type state struct {
	operation, timestamp string
	generation           int64
}

func stateOf(obj extensionsv1alpha1.Object) state {
	annotations := obj.GetAnnotations()
	return state{
		operation:  annotations[v1beta1constants.GardenerOperation],
		timestamp:  annotations[v1beta1constants.GardenerTimestamp],
		generation: obj.GetGeneration(),
	}
}

// isOfMigration tells an operation of a control plane migration, whose annotation stays until it has succeeded.
func (o *Operation[T]) isOfMigration() bool {
	return o.Type == gardencorev1beta1.LastOperationTypeMigrate || o.Type == gardencorev1beta1.LastOperationTypeRestore
}

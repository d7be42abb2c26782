// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

// retryConflict is when an object is looked at again that somebody has changed in the meantime.
const retryConflict = 20 * time.Millisecond

// reconciler serves the objects of one kind.
type reconciler struct {
	kind
	selection
	provider
	behaviours *behaviours
	clusters   *clusters
}

// operation is a work at an object with all that decides how it goes.
type operation struct {
	work
	// lastType is its type in lastOperation, and name what behaviours call it.
	lastType gardencorev1beta1.LastOperationType
	name     configv1alpha1.MockOperation
	object   types.NamespacedName
	// before is the status as it is in the API server.
	before []byte
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	obj := r.newObject()
	if err := r.client.Get(ctx, request.NamespacedName, obj); apierrors.IsNotFound(err) {
		r.behaviours.forget(request.NamespacedName)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading %s %s: %w", r.name, request.NamespacedName, err)
	}
	// What is in the queue is only a name: by now there may be another object under it, or nothing left to do.
	if !r.isServed(obj) || !r.isDue(obj) {
		return reconcile.Result{}, nil
	}

	cluster, err := r.clusterOf(ctx, obj)
	if err != nil {
		return reconcile.Result{}, err
	}
	if extensionscontroller.IsShootFailed(cluster.Shoot()) {
		return reconcile.Result{}, nil
	}
	o, err := newOperation(logf.FromContext(ctx), request.NamespacedName, obj, cluster)
	if err != nil {
		return reconcile.Result{}, err
	}

	wait, err := r.operate(ctx, o)
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: retryConflict}, nil
	case apierrors.IsNotFound(err):
		// Only writes to the object itself end like this.
		r.behaviours.forget(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: wait}, err
}

// clusterOf returns the Cluster of an object's shoot; nil if there is none, or if the object has no shoot. A BackupEntry has
// none here, as it goes on when its shoot has failed, and outlives it.
func (r *reconciler) clusterOf(ctx context.Context, obj extensionsv1alpha1.Object) (*extensioncluster.Cluster, error) {
	if obj.GetNamespace() == "" || !isOfShoot(obj) {
		return nil, nil
	}
	return r.clusters.get(ctx, obj.GetNamespace())
}

func newOperation(log logr.Logger, key types.NamespacedName, obj extensionsv1alpha1.Object, cluster *extensioncluster.Cluster) (*operation, error) {
	before, err := statusOf(obj)
	if err != nil {
		return nil, err
	}
	force := cluster.NeedsForceDeletion() || obj.GetAnnotations()[v1beta1constants.AnnotationConfirmationForceDeletion] == "true"
	lastType := v1beta1helper.ComputeOperationType(
		metav1.ObjectMeta{Annotations: obj.GetAnnotations(), DeletionTimestamp: obj.GetDeletionTimestamp()}, obj.GetExtensionStatus().GetLastOperation())
	return &operation{
		work:     work{log: log.WithValues("operation", lastType), obj: obj, cluster: cluster, force: force},
		lastType: lastType, name: operationFor(lastType, force), object: key, before: before,
	}, nil
}

// isOfMigration tells an operation of a control plane migration, whose annotation stays until it has succeeded.
func (o *operation) isOfMigration() bool {
	return o.lastType == gardencorev1beta1.LastOperationTypeMigrate || o.lastType == gardencorev1beta1.LastOperationTypeRestore
}

// operate goes on with an operation, and returns when to do so again; 0 for never.
func (r *reconciler) operate(ctx context.Context, o *operation) (time.Duration, error) {
	if extensionscontroller.ShouldSkipOperation(o.lastType, o.obj) {
		// It waits for gardenlet to delete it, and must not be brought to life again.
		return 0, writeMetadata(ctx, r.client, o.obj, change{removeOperation: true})
	}

	switch o.lastType {
	case gardencorev1beta1.LastOperationTypeDelete:
		if !controllerutil.ContainsFinalizer(o.obj, FinalizerName) {
			return 0, nil
		}
	case gardencorev1beta1.LastOperationTypeMigrate:
	default:
		// Of a creation, the annotation is not needed any more: as long as it has not succeeded, the status says the same.
		err := writeMetadata(ctx, r.client, o.obj, change{
			addFinalizer: true, removeOperation: o.lastType == gardencorev1beta1.LastOperationTypeCreate && !controllerutil.ContainsFinalizer(o.obj, FinalizerName),
		})
		if err != nil {
			return 0, err
		}
	}

	p := r.behaviours.plan(o.object, o.name)
	if wait, err := r.pass(ctx, o, p); wait > 0 || err != nil {
		return wait, err
	}
	return r.attempt(ctx, o, p)
}

// pass returns how much longer the next attempt has to wait: because it is to take time, or because the last one has failed.
// No worker is held meanwhile, and the status says what it waits for, also to the next instance of the program.
func (r *reconciler) pass(ctx context.Context, o *operation, p plan) (time.Duration, error) {
	var (
		now   = r.clock.Now()
		last  = o.obj.GetExtensionStatus().GetLastOperation()
		asked = operationAnnotation(o.obj) == v1beta1constants.GardenerOperationReconcile
	)
	if last != nil && last.Type == o.lastType {
		switch last.State {
		case gardencorev1beta1.LastOperationStateProcessing:
			due := r.behaviours.due(o.object, o.name, last.LastUpdateTime.Add(p.delay))
			if due.After(now) {
				// Who asks for the same again gets what is under way.
				return due.Sub(now), r.takeUp(ctx, o)
			}
			return 0, nil
		case gardencorev1beta1.LastOperationStateError:
			due := r.behaviours.due(o.object, o.name, last.LastUpdateTime.Add(p.retryAfter))
			if due.After(now) && !asked {
				return due.Sub(now), nil
			}
		}
	}
	if p.delay == 0 {
		return 0, nil
	}
	return p.delay, r.processing(ctx, o, fmt.Sprintf("%s takes %s by the configuration of the mock provider", o.name, p.delay.Round(time.Millisecond)), p.delay)
}

// attempt carries out the operation, as it has been decided.
func (r *reconciler) attempt(ctx context.Context, o *operation, p plan) (time.Duration, error) {
	err := p.failure
	if err == nil {
		err = r.work(ctx, o)
	}

	var later *reconcilerutils.RequeueAfterError
	if errors.As(err, &later) && len(v1beta1helper.ExtractErrorCodes(later.Cause)) == 0 {
		// Nothing is wrong any more; Gardener would take an older error for a failure.
		o.obj.GetExtensionStatus().SetLastError(nil)
		return later.RequeueAfter, r.processing(ctx, o, reconcilerutils.ReconcileErrCauseOrErr(later).Error(), later.RequeueAfter)
	}
	if err == nil {
		return 0, r.succeed(ctx, o)
	}
	retryAfter := p.retryAfter
	if later != nil {
		err, retryAfter = later.Cause, later.RequeueAfter
	}
	return retryAfter, r.fail(ctx, o, err, retryAfter)
}

// work does what the operation consists of.
func (r *reconciler) work(ctx context.Context, o *operation) error {
	do := r.apply
	switch o.lastType {
	case gardencorev1beta1.LastOperationTypeDelete:
		do = r.remove
	case gardencorev1beta1.LastOperationTypeMigrate:
		do = r.migrate
	}
	if do == nil {
		return nil
	}
	return do(ctx, &r.provider, &o.work)
}

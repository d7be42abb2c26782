// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

const (
	// retryUnknown is when a check that could not be made is made again.
	retryUnknown = time.Minute
	// retryConflict is when a condition is looked at again that somebody else's write has overtaken.
	retryConflict = time.Second
)

// reconciler writes the conditions of one kind of extension object.
type reconciler struct {
	kind    kind
	classes class.Set
	// reader reads from the manager's cache, writer writes.
	reader client.Reader
	writer client.StatusClient
	clock  clock.Clock
	// watch starts the watches for which it was too early before, if there are any.
	watch      func() error
	syncPeriod time.Duration
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	obj := r.kind.newObject()
	if err := r.reader.Get(ctx, request.NamespacedName, obj); err != nil {
		if apierrors.IsNotFound(err) {
			r.kind.forget(request.Namespace)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !isOurs(obj, r.classes) {
		return reconcile.Result{}, nil
	}
	if obj.GetDeletionTimestamp() != nil || isMigrating(obj) {
		// Whoever deletes or migrates a shoot takes things away in an order of their own.
		r.kind.forget(request.Namespace)
		return reconcile.Result{}, nil
	}

	cluster, err := extensioncluster.Get(ctx, r.reader, request.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if cluster == nil {
		// It makes an event when it comes.
		return reconcile.Result{}, nil
	}

	conditions, next := r.look(ctx, obj, cluster)
	return r.write(ctx, obj, conditions, next)
}

// look returns the conditions as they should be now, and when they are to be looked at again; 0 for not before an event.
func (r *reconciler) look(ctx context.Context, obj extensionsv1alpha1.Object, cluster *extensioncluster.Cluster) ([]gardencorev1beta1.Condition, time.Duration) {
	old := obj.GetExtensionStatus().GetConditions()
	conditions := v1beta1helper.RemoveConditions(old, r.kind.obsolete...)

	if cluster.IsHibernated() {
		r.kind.forget(obj.GetNamespace())
		for _, check := range r.kind.checks {
			asleep := result{status: gardencorev1beta1.ConditionTrue, message: "Shoot is hibernated"}
			condition, _ := conditionFor(r.clock, check.condition, v1beta1helper.GetCondition(old, check.condition), asleep)
			conditions = v1beta1helper.MergeConditions(conditions, condition)
		}
		return conditions, 0
	}

	if len(r.kind.checks) == 0 {
		return conditions, 0
	}
	if err := r.watch(); err != nil {
		// The check says what is missing, as it reads the same kinds.
		logf.FromContext(ctx).V(1).Info("Watches have to wait", "reason", err.Error())
	}
	next := r.syncPeriod
	for _, check := range r.kind.checks {
		outcome, err := check.run(ctx, obj.GetNamespace())
		if err != nil {
			outcome = result{status: gardencorev1beta1.ConditionUnknown, message: err.Error()}
			next = min(next, retryUnknown)
		}
		condition, due := conditionFor(r.clock, check.condition, v1beta1helper.GetCondition(old, check.condition), outcome)
		if due > 0 {
			// Times in conditions have no fractions of a second.
			next = min(next, due+time.Second)
		}
		conditions = v1beta1helper.MergeConditions(conditions, condition)
	}
	return conditions, next
}

// write writes the conditions if they have changed. A merge patch replaces the list as a whole, so it only counts if the
// object is still the one that was read; lastOperation and everything else is not in it.
func (r *reconciler) write(ctx context.Context, obj extensionsv1alpha1.Object, conditions []gardencorev1beta1.Condition, next time.Duration) (reconcile.Result, error) {
	old := obj.GetExtensionStatus().GetConditions()
	if !v1beta1helper.ConditionsNeedUpdate(old, conditions) || len(old) == 0 && len(conditions) == 0 {
		return reconcile.Result{RequeueAfter: next}, nil
	}

	before, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		return reconcile.Result{}, fmt.Errorf("copying %T", obj)
	}
	obj.GetExtensionStatus().SetConditions(conditions)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	err := r.writer.Status().Patch(ctx, obj, patch)
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: retryConflict}, nil
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("writing the conditions: %w", err)
	}

	logChanges(logf.FromContext(ctx), old, conditions)
	return reconcile.Result{RequeueAfter: next}, nil
}

func logChanges(log logr.Logger, old, conditions []gardencorev1beta1.Condition) {
	for _, condition := range conditions {
		before := v1beta1helper.GetCondition(old, condition.Type)
		if before == nil || before.Status != condition.Status {
			log.Info("Health has changed", "conditionType", condition.Type, "status", condition.Status, "message", condition.Message)
		}
	}
}

func isOurs(obj extensionsv1alpha1.Object, classes class.Set) bool {
	return obj.GetExtensionSpec().GetExtensionType() == localv1alpha1.Type && classes.Has(obj)
}

// isMigrating tells whether the object leaves this seed or has left it. The annotation counts before the status does.
func isMigrating(obj extensionsv1alpha1.Object) bool {
	last := obj.GetExtensionStatus().GetLastOperation()
	return obj.GetAnnotations()[v1beta1constants.GardenerOperation] == v1beta1constants.GardenerOperationMigrate ||
		last != nil && last.Type == gardencorev1beta1.LastOperationTypeMigrate
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// operation is an attempt at an operation on an object of any kind.
type operation = reconciler.Operation[extensionsv1alpha1.Object]

// kindReconciler serves the objects of one kind. It is its own Actuator: which of these methods is called does not matter
// before the behaviours have decided how the operation goes.
type kindReconciler struct {
	*reconciler.Reconciler[extensionsv1alpha1.Object]
	kind
	provider
	behaviours *behaviours
}

func newReconciler(c client.Client, opts Options, kind kind) *kindReconciler {
	r := &kindReconciler{
		kind:       kind,
		provider:   provider{client: c, clock: opts.Clock, hostPath: opts.HostPath, nodes: opts.Nodes},
		behaviours: newBehaviours(kind.name, opts.Config),
	}
	options := reconciler.Options[extensionsv1alpha1.Object]{
		Shared:       opts.Shared,
		Client:       c,
		Kind:         kind.name,
		NewObject:    kind.newObject,
		Types:        append([]string{Type}, kind.types...),
		ExistsFor:    class.All(),
		Finalizer:    FinalizerName,
		Actuator:     actuator{r},
		Describe:     describe,
		RepeatErrors: true, // how long the next attempt has to wait is counted from the last one
		Reported:     r.reported,
		Gone:         r.behaviours.forget,
		Clock:        opts.Clock,
		Quiet:        -1, // what an operation waits for is what the configuration has it wait for
	}
	if kind.name == extensionsv1alpha1.WorkerResource {
		options.IsAmiss, options.Wrap = r.isForgotten, r.remember
	}
	r.Reconciler = reconciler.New(options)
	return r
}

// actuator implements reconciler.Actuator.
type actuator struct{ *kindReconciler }

// Reconcile implements reconciler.Actuator.
func (a actuator) Reconcile(ctx context.Context, o *operation) error {
	return a.operate(ctx, o, a.apply)
}

// Restore implements reconciler.Actuator.
func (a actuator) Restore(ctx context.Context, o *operation) error { return a.operate(ctx, o, a.apply) }

// Migrate implements reconciler.Actuator.
func (a actuator) Migrate(ctx context.Context, o *operation) error {
	return a.operate(ctx, o, a.migrate)
}

// Delete implements reconciler.Actuator.
func (a actuator) Delete(ctx context.Context, o *operation) error { return a.operate(ctx, o, a.remove) }

// ForceDelete implements reconciler.Actuator.
func (a actuator) ForceDelete(ctx context.Context, o *operation) error {
	return a.operate(ctx, o, a.remove)
}

// nameOf is what behaviours call an operation.
func nameOf(o *operation) configv1alpha1.MockOperation { return operationFor(o.Type, o.Force) }

func keyOf(o *operation) types.NamespacedName { return client.ObjectKeyFromObject(o.Object) }

// operate goes on with an operation as the behaviours have decided: it waits, fails, or does what it consists of.
func (r *kindReconciler) operate(ctx context.Context, o *operation, do step) error {
	p := r.behaviours.plan(keyOf(o), nameOf(o))
	if err := r.pass(o, p); err != nil {
		return err
	}
	err := p.failure
	if err == nil && do != nil {
		err = do(ctx, &r.provider, o)
	}

	var later *reconcilerutils.RequeueAfterError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &later):
		return &reconcilerutils.RequeueAfterError{Cause: err, RequeueAfter: p.retryAfter}
	case len(v1beta1helper.ExtractErrorCodes(later.Cause)) == 0:
		return reconciler.Waiting(reconcilerutils.ReconcileErrCauseOrErr(err), later.RequeueAfter)
	}
	return err
}

// pass returns an error that says how much longer the next attempt has to wait: because it is to take time, or because the
// last one has failed. No worker is held meanwhile, and the status says what it waits for, also to the next instance of the
// program.
func (r *kindReconciler) pass(o *operation, p plan) error {
	now, last := r.clock.Now(), o.Object.GetExtensionStatus().GetLastOperation()
	if last != nil && last.Type == o.Type {
		switch last.State {
		case gardencorev1beta1.LastOperationStateProcessing:
			due := r.behaviours.due(keyOf(o), nameOf(o), last.LastUpdateTime.Add(p.delay))
			if due.After(now) {
				// Who asks for the same again gets what is under way.
				return reconciler.Later(due.Sub(now))
			}
			return nil
		case gardencorev1beta1.LastOperationStateError:
			due := r.behaviours.due(keyOf(o), nameOf(o), last.LastUpdateTime.Add(p.retryAfter))
			if due.After(now) && !o.Asked {
				return reconciler.Later(due.Sub(now))
			}
		}
	}
	if p.delay == 0 {
		return nil
	}
	return reconciler.Waiting(fmt.Errorf("%s takes %s by the configuration of the mock provider", nameOf(o), p.delay.Round(time.Millisecond)), p.delay)
}

// reported remembers what has become of an attempt.
func (r *kindReconciler) reported(o *operation, err error) {
	var later *reconcilerutils.RequeueAfterError
	switch {
	case err == nil && o.Type == gardencorev1beta1.LastOperationTypeDelete:
		r.behaviours.forget(keyOf(o))
	case err == nil:
		r.behaviours.ended(keyOf(o), nameOf(o), false)
	case errors.As(err, &later):
		if !reconciler.IsWaiting(err) {
			r.behaviours.ended(keyOf(o), nameOf(o), true)
		}
		r.behaviours.waits(keyOf(o), nameOf(o), r.clock.Now().Add(later.RequeueAfter))
	}
}

func describe(o *operation, err error) string {
	if err != nil {
		return err.Error()
	}
	return string(nameOf(o)) + " succeeded, without any infrastructure"
}

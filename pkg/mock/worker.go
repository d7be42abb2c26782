// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// retryNodes is the time between two attempts to take up the Nodes of a Worker after a start.
const retryNodes = 30 * time.Second

// Nodes are the fake Nodes of shoots: pkg/mock/nodes' Fleet.
type Nodes interface {
	// Apply gives the shoot the Nodes that the worker asks for. cluster has a shoot.
	Apply(ctx context.Context, log logr.Logger, worker *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster) error
	// Keeps reports whether the Nodes of the worker are kept alive: it was applied since the start of the program.
	Keeps(worker *extensionsv1alpha1.Worker) bool
	// Delete deletes all Nodes of the worker. With force, it does not fail because the shoot is out of reach.
	Delete(ctx context.Context, log logr.Logger, worker *extensionsv1alpha1.Worker, force bool) error
	// Release leaves the Nodes of a worker that is migrated to another seed: they stay, and nothing more is done for them.
	Release(worker *extensionsv1alpha1.Worker)
}

// applyWorker reports a MachineDeployment for each pool and zone, as any provider, and has the shoot's fake Nodes created. Pools
// that are updated in place have been already: gardenlet waits for their hashes.
func applyWorker(ctx context.Context, r *kindReconciler, o *operation, obj *extensionsv1alpha1.Worker) error {
	if err := checkCluster(o); err != nil {
		return err
	}
	shoot := o.Cluster.Shoot()
	var credentials *gardencorev1beta1.ShootCredentials
	if shoot != nil {
		credentials = shoot.Status.Credentials
	}

	hashes := map[string]string{}
	var deployments []extensionsv1alpha1.MachineDeployment
	for _, pool := range obj.Spec.Pools {
		if v1beta1helper.IsUpdateStrategyInPlace(pool.UpdateStrategy) {
			hash, err := gardenerutils.CalculateWorkerPoolHashForInPlaceUpdate(pool.Name, pool.KubernetesVersion, pool.KubeletConfig, pool.MachineImage.Version, credentials)
			if err != nil {
				return fmt.Errorf("worker pool %s: calculating the hash for updates in place: %w", pool.Name, err)
			}
			hashes[pool.Name] = hash
		}
		zones := int32(max(1, len(pool.Zones)))
		for zone := range zones {
			deployments = append(deployments, extensionsv1alpha1.MachineDeployment{
				Name:     fmt.Sprintf("%s-%s-z%d", obj.Namespace, pool.Name, zone+1),
				Minimum:  worker.DistributeOverZones(zone, pool.Minimum, zones),
				Maximum:  worker.DistributeOverZones(zone, pool.Maximum, zones),
				Priority: pool.Priority,
			})
		}
	}
	obj.Status.InPlaceUpdates = nil
	if len(hashes) > 0 {
		obj.Status.InPlaceUpdates = &extensionsv1alpha1.InPlaceUpdatesWorkerStatus{WorkerPoolToHashMap: hashes}
	}
	obj.Status.MachineDeployments = deployments
	// gardenlet waits for a later time before it deploys cluster-autoscaler.
	obj.Status.MachineDeploymentsLastUpdateTime = reconciler.LaterThan(obj.Status.MachineDeploymentsLastUpdateTime, r.Clock.Now(), obj)

	if r.opts.Nodes == nil || shoot == nil {
		return nil
	}
	return r.opts.Nodes.Apply(ctx, o.Log, obj, o.Cluster)
}

// removeWorker has the fake Nodes deleted.
func removeWorker(ctx context.Context, r *kindReconciler, o *operation, obj *extensionsv1alpha1.Worker) error {
	if r.opts.Nodes == nil {
		return nil
	}
	return r.opts.Nodes.Delete(ctx, o.Log, obj, o.Force)
}

// migrateWorker leaves the fake Nodes to the other seed.
func migrateWorker(_ context.Context, r *kindReconciler, _ *operation, obj *extensionsv1alpha1.Worker) error {
	if r.opts.Nodes != nil {
		r.opts.Nodes.Release(obj)
	}
	return nil
}

// isForgotten reports whether an earlier run of the program has kept the fake Nodes of a Worker alive, and this one does not yet. A
// Worker that is not created or restored yet may not be to have any, and one that was migrated is that of another seed.
func (r *kindReconciler) isForgotten(_ context.Context, obj extensionsv1alpha1.Object) bool {
	w, ok := obj.(*extensionsv1alpha1.Worker)
	if !ok || r.opts.Nodes == nil || !reconciler.IsOfShoot(w) || w.DeletionTimestamp != nil {
		return false
	}
	last := w.Status.LastOperation
	if last == nil {
		return false
	}
	switch last.Type {
	case gardencorev1beta1.LastOperationTypeMigrate:
		return false
	case gardencorev1beta1.LastOperationTypeCreate, gardencorev1beta1.LastOperationTypeRestore:
		return last.State == gardencorev1beta1.LastOperationStateSucceeded && !r.opts.Nodes.Keeps(w)
	}
	return !r.opts.Nodes.Keeps(w)
}

// remember has the fake Nodes of forgotten Workers kept alive, also those of a shoot that has failed, before next looks at the
// Worker. Their status does not change.
func (r *kindReconciler) remember(next reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (result reconcile.Result, failure error) {
		w := &extensionsv1alpha1.Worker{}
		if err := r.Client.Get(ctx, request.NamespacedName, w); err != nil || !slices.Contains(r.Types, w.Spec.Type) || !r.Classes.Has(w) || !r.isForgotten(ctx, w) {
			return next.Reconcile(ctx, request)
		}
		log := logf.FromContext(ctx)
		cluster, err := r.ShootClusters.Get(ctx, w.Namespace)
		if err == nil && !cluster.IsHibernated() { // A shoot that sleeps has no Nodes.
			err = r.opts.Nodes.Apply(ctx, log, w, cluster)
		}
		if r.IsDue(w) {
			result, failure = next.Reconcile(ctx, request)
		}
		if err != nil {
			log.Error(err, "Taking up the Nodes of a Worker after a start; trying again", "after", retryNodes)
			result.RequeueAfter = cmp.Or(result.RequeueAfter, retryNodes)
		}
		return result, failure
	})
}

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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// retryNodes is between two attempts to take up the Nodes of a Worker after a start.
const retryNodes = 30 * time.Second

// applyWorker tells the MachineDeployments, which nothing stands behind, and has the shoot's fake Nodes made.
func applyWorker(ctx context.Context, p *provider, o *operation, obj *extensionsv1alpha1.Worker) error {
	if o.Cluster.Shoot() == nil && isOfShoot(obj) {
		return noCluster(obj.Namespace)
	}
	if err := recordInPlaceUpdates(o, obj); err != nil {
		return err
	}
	obj.Status.MachineDeployments = machineDeployments(obj)
	obj.Status.MachineDeploymentsLastUpdateTime = &metav1.Time{Time: deploymentTime(obj, p.clock.Now())}

	if p.nodes == nil || o.Cluster.Shoot() == nil {
		return nil
	}
	return p.nodes.Apply(ctx, o.Log, obj, o.Cluster)
}

// removeWorker has the fake Nodes taken away.
func removeWorker(ctx context.Context, p *provider, o *operation, obj *extensionsv1alpha1.Worker) error {
	if p.nodes == nil {
		return nil
	}
	return p.nodes.Delete(ctx, o.Log, obj, o.Force)
}

// migrateWorker leaves the fake Nodes to the other seed.
func migrateWorker(_ context.Context, p *provider, _ *operation, obj *extensionsv1alpha1.Worker) error {
	if p.nodes != nil {
		p.nodes.Release(obj)
	}
	return nil
}

// isForgotten reports whether an earlier run of the program has kept the fake Nodes of a Worker alive, and this one does not yet. A
// Worker that never was reconciled will be, and one that was migrated is that of another seed.
func (r *kindReconciler) isForgotten(_ context.Context, obj extensionsv1alpha1.Object) bool {
	w, ok := obj.(*extensionsv1alpha1.Worker)
	if !ok || r.nodes == nil || !isOfShoot(w) || w.DeletionTimestamp != nil {
		return false
	}
	last := w.Status.LastOperation
	return last != nil && last.Type != gardencorev1beta1.LastOperationTypeMigrate && !r.nodes.Keeps(w)
}

// remember has the fake Nodes of forgotten Workers kept alive, also those of a shoot that has failed, before next looks at the
// Worker. Their status says nothing of it.
func (r *kindReconciler) remember(next reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		w := &extensionsv1alpha1.Worker{}
		if err := r.client.Get(ctx, request.NamespacedName, w); err != nil || !slices.Contains(r.Types, w.Spec.Type) || !r.Classes.Has(w) || !r.isForgotten(ctx, w) {
			return next.Reconcile(ctx, request)
		}
		cluster, err := r.ShootClusters.Get(ctx, w.Namespace)
		if err == nil && !cluster.IsHibernated() { // A shoot that sleeps has no Nodes.
			err = r.nodes.Apply(ctx, logf.FromContext(ctx), w, cluster)
		}
		var (
			result  reconcile.Result
			failure error
		)
		if r.IsDue(w) {
			result, failure = next.Reconcile(ctx, request)
		}
		if err != nil {
			logf.FromContext(ctx).Error(err, "Taking up the Nodes of a Worker after a start; trying again", "after", retryNodes)
			result.RequeueAfter = cmp.Or(result.RequeueAfter, retryNodes)
		}
		return result, failure
	})
}

// machineDeployments returns one for each pool and zone, as any provider has them.
func machineDeployments(obj *extensionsv1alpha1.Worker) []extensionsv1alpha1.MachineDeployment {
	var out []extensionsv1alpha1.MachineDeployment
	for _, pool := range obj.Spec.Pools {
		zones := int32(max(1, len(pool.Zones))) // #nosec G115 -- no pool has that many
		for zone := range zones {
			out = append(out, extensionsv1alpha1.MachineDeployment{
				Name:     fmt.Sprintf("%s-%s-z%d", obj.Namespace, pool.Name, zone+1),
				Minimum:  worker.DistributeOverZones(zone, pool.Minimum, zones),
				Maximum:  worker.DistributeOverZones(zone, pool.Maximum, zones),
				Priority: pool.Priority,
			})
		}
	}
	return out
}

// deploymentTime is later than that of the operation before: gardenlet waits for a later one before it deploys
// cluster-autoscaler, and times in a status are of whole seconds.
func deploymentTime(obj *extensionsv1alpha1.Worker, now time.Time) time.Time {
	now = reconciler.NotBefore(now, reconciler.Requested(obj))
	if last := obj.Status.MachineDeploymentsLastUpdateTime; last != nil && !now.Truncate(time.Second).After(last.Time) {
		return last.Add(time.Second)
	}
	return now
}

// recordInPlaceUpdates tells that all pools which are updated in place have been. gardenlet waits for it.
func recordInPlaceUpdates(o *operation, obj *extensionsv1alpha1.Worker) error {
	hashes := map[string]string{}
	for _, pool := range obj.Spec.Pools {
		if !v1beta1helper.IsUpdateStrategyInPlace(pool.UpdateStrategy) {
			continue
		}
		var credentials *gardencorev1beta1.ShootCredentials
		if shoot := o.Cluster.Shoot(); shoot != nil {
			credentials = shoot.Status.Credentials
		}
		hash, err := gardenerutils.CalculateWorkerPoolHashForInPlaceUpdate(pool.Name, pool.KubernetesVersion, pool.KubeletConfig, pool.MachineImage.Version, credentials)
		if err != nil {
			return fmt.Errorf("worker pool %s: calculating the hash for updates in place: %w", pool.Name, err)
		}
		hashes[pool.Name] = hash
	}
	obj.Status.InPlaceUpdates = nil
	if len(hashes) > 0 {
		obj.Status.InPlaceUpdates = &extensionsv1alpha1.InPlaceUpdatesWorkerStatus{WorkerPoolToHashMap: hashes}
	}
	return nil
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// applyWorker tells the MachineDeployments, which nothing stands behind, and has the shoot's fake Nodes made.
func applyWorker(ctx context.Context, p *provider, w *work, obj *extensionsv1alpha1.Worker) error {
	if w.cluster.Shoot() == nil && isOfShoot(obj) {
		return noCluster(obj.Namespace)
	}
	if err := recordInPlaceUpdates(w, obj); err != nil {
		return err
	}
	obj.Status.MachineDeployments = machineDeployments(obj)
	obj.Status.MachineDeploymentsLastUpdateTime = &metav1.Time{Time: deploymentTime(obj, p.clock.Now())}

	if p.nodes == nil || w.cluster.Shoot() == nil {
		return nil
	}
	return p.nodes.Apply(ctx, w.log, obj, clusterFor(w, obj.Namespace))
}

// removeWorker has the fake Nodes taken away.
func removeWorker(ctx context.Context, p *provider, w *work, obj *extensionsv1alpha1.Worker) error {
	if p.nodes == nil {
		return nil
	}
	return p.nodes.Delete(ctx, w.log, obj, clusterFor(w, obj.Namespace), w.force)
}

// migrateWorker leaves the fake Nodes to the other seed.
func migrateWorker(_ context.Context, p *provider, _ *work, obj *extensionsv1alpha1.Worker) error {
	if p.nodes != nil {
		p.nodes.Release(obj)
	}
	return nil
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
func recordInPlaceUpdates(w *work, obj *extensionsv1alpha1.Worker) error {
	hashes := map[string]string{}
	for _, pool := range obj.Spec.Pools {
		if !v1beta1helper.IsUpdateStrategyInPlace(pool.UpdateStrategy) {
			continue
		}
		var credentials *gardencorev1beta1.ShootCredentials
		if shoot := w.cluster.Shoot(); shoot != nil {
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

// clusterFor returns the Cluster in the form that Gardener's library has for it.
func clusterFor(w *work, namespace string) *extensionscontroller.Cluster {
	if w.cluster == nil {
		return nil
	}
	return &extensionscontroller.Cluster{
		ObjectMeta:   metav1.ObjectMeta{Name: namespace},
		CloudProfile: w.cluster.CloudProfile(),
		Seed:         w.cluster.Seed(),
		Shoot:        w.cluster.Shoot(),
	}
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// isStart reports whether this is the first attempt of an operation, or an earlier one did not get as far as to the
// MachineDeployments. The time at which these were deployed last is then older than what asked for the operation.
func isStart(w *extensionsv1alpha1.Worker, asked bool) bool {
	last := w.Status.MachineDeploymentsLastUpdateTime
	operation := w.Status.LastOperation
	return last == nil ||
		operation == nil ||
		operation.State == gardencorev1beta1.LastOperationStateSucceeded ||
		asked ||
		last.Time.Before(reconciler.Requested(w))
}

// isRequested reports whether Gardener has asked for what is done now, or has since the MachineDeployments were deployed last. Else
// it is a retry, or a machine has woken the Worker.
func (a *actuator) isRequested(op *operation) bool {
	last := op.Object.Status.MachineDeploymentsLastUpdateTime
	return op.Asked || a.IgnoreOperationAnnotation || last == nil || last.Time.Before(reconciler.Requested(op.Object))
}

// recordImages keeps the images of the pools in the status.
func recordImages(w *extensionsv1alpha1.Worker, images []localv1alpha1.MachineImage) error {
	status := &localv1alpha1.WorkerStatus{MachineImages: images}
	status.SetGroupVersionKind(localv1alpha1.SchemeGroupVersion.WithKind(localv1alpha1.WorkerStatusKind))
	var err error
	w.Status.ProviderStatus, err = reconciler.ProviderStatus(status)
	return err
}

// recordDeployments tells gardenlet the MachineDeployments, and in each operation anew that they have been deployed:
// gardenlet waits for a later time before it deploys cluster-autoscaler with what is there.
func (a *actuator) recordDeployments(w *extensionsv1alpha1.Worker, machines []zoned, starts bool) {
	var deployments []extensionsv1alpha1.MachineDeployment
	for _, m := range machines {
		d := m.deployment
		deployments = append(deployments, extensionsv1alpha1.MachineDeployment{Name: d.Name, Minimum: d.Minimum, Maximum: d.Maximum, Priority: d.Priority})
	}
	if !starts && apiequality.Semantic.DeepEqual(deployments, w.Status.MachineDeployments) {
		return
	}

	w.Status.MachineDeployments = deployments
	w.Status.MachineDeploymentsLastUpdateTime = reconciler.LaterThan(w.Status.MachineDeploymentsLastUpdateTime, a.Clock.Now(), w)
}

// recordUpdatesInPlace keeps a hash of each pool that is updated in place and has been. Where people choose the machines
// that may take longer than an operation; the Worker is woken for each machine.
func recordUpdatesInPlace(w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster, deployed []machinev1alpha1.MachineDeployment) error {
	hashes, err := updatedInPlace(w, cluster, deployed)
	if err != nil {
		return err
	}
	if !maps.Equal(hashes, inPlaceHashes(w)) {
		w.Status.InPlaceUpdates = &extensionsv1alpha1.InPlaceUpdatesWorkerStatus{WorkerPoolToHashMap: hashes}
	}
	return nil
}

func inPlaceHashes(w *extensionsv1alpha1.Worker) map[string]string {
	if w.Status.InPlaceUpdates == nil {
		return nil
	}
	return w.Status.InPlaceUpdates.WorkerPoolToHashMap
}

// updatedInPlace returns the hashes of the pools that are updated in place, of those that have not been yet that of before. A
// pool whose update Gardener has not asked for yet counts among these: credentials are rotated in the Cluster first.
func updatedInPlace(w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster, deployed []machinev1alpha1.MachineDeployment) (map[string]string, error) {
	known := inPlaceHashes(w)
	outdated, classes := map[string]bool{}, map[string]string{}
	for i := range deployed {
		name := deployed[i].Labels[v1beta1constants.LabelWorkerPool]
		classes[name] = classHash(&deployed[i])
		if deployed[i].Status.UpdatedReplicas < deployed[i].Status.Replicas {
			outdated[name] = true
		}
	}

	hashes := map[string]string{}
	for _, p := range w.Spec.Pools {
		if !v1beta1helper.IsUpdateStrategyInPlace(p.UpdateStrategy) {
			continue
		}
		class, err := (&pool{WorkerPool: p}).newHash(cluster)
		if err != nil {
			return nil, fmt.Errorf("worker pool %s: %w", p.Name, err)
		}
		isRequested := classes[p.Name] == "" || classes[p.Name] == class
		if !isRequested || v1beta1helper.IsUpdateStrategyManualInPlace(p.UpdateStrategy) && outdated[p.Name] {
			if hash, ok := known[p.Name]; ok {
				hashes[p.Name] = hash
			}
			continue
		}
		hash, err := gardenerutils.CalculateWorkerPoolHashForInPlaceUpdate(p.Name, p.KubernetesVersion, p.KubeletConfig, p.MachineImage.Version, cluster.Shoot().Status.Credentials)
		if err != nil {
			return nil, fmt.Errorf("worker pool %s: calculating the hash for updates in place: %w", p.Name, err)
		}
		hashes[p.Name] = hash
	}
	return hashes, nil
}

// isUpdating tells of a Worker that has been reconciled whether people have chosen machines to be updated in place since, or
// whether all of a pool are updated by now.
func (a *actuator) isUpdating(ctx context.Context, w *extensionsv1alpha1.Worker) bool {
	isManual := func(p extensionsv1alpha1.WorkerPool) bool {
		return v1beta1helper.IsUpdateStrategyManualInPlace(p.UpdateStrategy)
	}
	if !slices.ContainsFunc(w.Spec.Pools, isManual) {
		return false
	}
	cluster, err := a.ShootClusters.Get(ctx, w.Namespace)
	if err != nil || cluster.Shoot() == nil {
		return false
	}
	existing, err := a.observe(ctx, w.Namespace)
	if err != nil {
		return false
	}
	hashes, err := updatedInPlace(w, cluster, existing.deployments)
	return beingUpdated(existing.machines) > 0 || err == nil && !maps.Equal(hashes, inPlaceHashes(w))
}

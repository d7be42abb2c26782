// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

// isStart tells whether this is the first attempt of an operation, or an earlier one did not get as far as to the
// MachineDeployments. The time at which these were deployed last is then older than what asked for the operation.
func isStart(w *extensionsv1alpha1.Worker) bool {
	last := w.Status.MachineDeploymentsLastUpdateTime
	operation := w.Status.LastOperation
	return last == nil ||
		operation == nil ||
		operation.State == gardencorev1beta1.LastOperationStateSucceeded ||
		w.Annotations[v1beta1constants.GardenerOperation] == v1beta1constants.GardenerOperationReconcile ||
		last.Time.Before(requested(w))
}

// requested is when gardenlet asked for the operation, in whole seconds as times in a status are; zero if it did not say.
func requested(w *extensionsv1alpha1.Worker) time.Time {
	timestamp, err := time.Parse(time.RFC3339Nano, w.Annotations[v1beta1constants.GardenerTimestamp])
	if err != nil {
		return time.Time{}
	}
	return timestamp.Truncate(time.Second)
}

// recordImages keeps the images of the pools in the status.
func (a *actuator) recordImages(ctx context.Context, w *extensionsv1alpha1.Worker, images []localv1alpha1.MachineImage) error {
	if apiequality.Semantic.DeepEqual(images, localv1alpha1.DecodeWorkerStatus(w.Status.ProviderStatus).MachineImages) {
		return nil
	}
	status := &localv1alpha1.WorkerStatus{MachineImages: images}
	status.SetGroupVersionKind(localv1alpha1.SchemeGroupVersion.WithKind(localv1alpha1.WorkerStatusKind))
	raw, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("encoding the status: %w", err)
	}
	return a.patchStatus(ctx, w, func() { w.Status.ProviderStatus = &runtime.RawExtension{Raw: raw} })
}

// recordDeployments tells gardenlet the MachineDeployments, and in each operation anew that they have been deployed:
// gardenlet waits for a later time before it deploys cluster-autoscaler with what is there.
func (a *actuator) recordDeployments(ctx context.Context, w *extensionsv1alpha1.Worker, machines []zoned, starts bool) error {
	var deployments []extensionsv1alpha1.MachineDeployment
	for _, m := range machines {
		d := m.deployment
		deployments = append(deployments, extensionsv1alpha1.MachineDeployment{Name: d.Name, Minimum: d.Minimum, Maximum: d.Maximum, Priority: d.Priority})
	}
	if !starts && apiequality.Semantic.DeepEqual(deployments, w.Status.MachineDeployments) {
		return nil
	}

	now := a.Clock.Now()
	if last := w.Status.MachineDeploymentsLastUpdateTime; last != nil && !now.Truncate(time.Second).After(last.Time) {
		now = last.Add(time.Second)
	}
	if asked := requested(w); now.Before(asked) {
		// The clock of gardenlet is ahead of this one.
		now = asked
	}
	return a.patchStatus(ctx, w, func() {
		w.Status.MachineDeployments = deployments
		w.Status.MachineDeploymentsLastUpdateTime = &metav1.Time{Time: now}
	})
}

// recordUpdatesInPlace keeps a hash of each pool that is updated in place and has been. Where people choose the machines
// that may take longer than an operation; the Worker is woken for each machine.
func (a *actuator) recordUpdatesInPlace(ctx context.Context, w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster, deployed []machinev1alpha1.MachineDeployment) error {
	var known map[string]string
	if w.Status.InPlaceUpdates != nil {
		known = w.Status.InPlaceUpdates.WorkerPoolToHashMap
	}
	outdated := map[string]bool{}
	for _, deployment := range deployed {
		if deployment.Status.UpdatedReplicas < deployment.Status.Replicas {
			outdated[deployment.Labels[v1beta1constants.LabelWorkerPool]] = true
		}
	}

	hashes := map[string]string{}
	for _, p := range w.Spec.Pools {
		if !v1beta1helper.IsUpdateStrategyInPlace(p.UpdateStrategy) {
			continue
		}
		if v1beta1helper.IsUpdateStrategyManualInPlace(p.UpdateStrategy) && outdated[p.Name] {
			if hash, ok := known[p.Name]; ok {
				hashes[p.Name] = hash
			}
			continue
		}
		hash, err := gardenerutils.CalculateWorkerPoolHashForInPlaceUpdate(p.Name, p.KubernetesVersion, p.KubeletConfig, p.MachineImage.Version, cluster.Shoot().Status.Credentials)
		if err != nil {
			return fmt.Errorf("worker pool %s: calculating the hash for updates in place: %w", p.Name, err)
		}
		hashes[p.Name] = hash
	}
	if maps.Equal(hashes, known) {
		return nil
	}
	return a.patchStatus(ctx, w, func() {
		w.Status.InPlaceUpdates = &extensionsv1alpha1.InPlaceUpdatesWorkerStatus{WorkerPoolToHashMap: hashes}
	})
}

// patchStatus changes the status. The annotation by which a reconciliation was asked for goes before, as the library would
// take it off before its own first write: as long as it is there, every write wakes the Worker once more.
func (a *actuator) patchStatus(ctx context.Context, w *extensionsv1alpha1.Worker, change func()) error {
	if w.Annotations[v1beta1constants.GardenerOperation] == v1beta1constants.GardenerOperationReconcile {
		if err := extensionscontroller.RemoveAnnotation(ctx, a.client, w, v1beta1constants.GardenerOperation); err != nil {
			return fmt.Errorf("removing the operation annotation: %w", err)
		}
	}
	patch := client.MergeFrom(w.DeepCopy())
	change()
	if err := a.client.Status().Patch(ctx, w, patch); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

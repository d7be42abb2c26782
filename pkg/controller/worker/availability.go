// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	"github.com/gardener/gardener/extensions/pkg/controller/worker/helper"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// stuckAfter is how old a MachineDeployment has to be whose MachineSet is missing before machine-controller-manager is
	// taken for stuck, and how old its pod before that is deleted; the former is the generic actuator's.
	stuckAfter = 2 * time.Minute
	// missingMax is how many MachineDeployments a message names.
	missingMax = 5
	// mcmFinalizer and driverFinalizer are those of machine-controller-manager and of a machine driver. They are not
	// imported, since that would bring all of machine-controller-manager along.
	mcmFinalizer    = "machine.sapcloud.io/machine-controller-manager"
	driverFinalizer = "machine.sapcloud.io/machine-controller"
)

// awaitMachines returns an error unless all machines are there, or gone in the case of a hibernation. Machines that have
// failed are an error at once, unless it is their deletion that did; what is under way only when it has taken too long. With
// either of them, a machine-controller-manager that is stuck gets another pod, unless the deployments are too new for it to
// be.
func (a *actuator) awaitMachines(ctx context.Context, w *extensionsv1alpha1.Worker, deployed []machinev1alpha1.MachineDeployment, existing *observed, hibernated bool) error {
	err := anyFailed(deployed)
	if err == nil {
		waiting := checkMachines(deployed, existing, hibernated)
		if waiting == nil {
			return nil
		}
		if err = a.waitSince(w.Status.MachineDeploymentsLastUpdateTime.Time, waiting, retryWait); reconciler.IsWaiting(err) {
			return err
		}
	}
	if a.Clock.Since(w.Status.MachineDeploymentsLastUpdateTime.Time) < stuckAfter {
		return err
	}
	if err := a.replaceStuckManager(ctx, w.Namespace, deployed, existing.sets); err != nil {
		logf.FromContext(ctx).Error(err, "Replacing a machine-controller-manager that seems to be stuck")
	}
	return err
}

func anyFailed(deployments []machinev1alpha1.MachineDeployment) error {
	var failed machinev1alpha1.MachineDeploymentStatus
	for _, deployment := range deployments {
		for _, machine := range deployment.Status.FailedMachines {
			if !failsToGo(machine) {
				failed.FailedMachines = append(failed.FailedMachines, machine)
			}
		}
	}
	return failedMachines(failed)
}

// failsToGo tells a machine whose deletion has failed. machine-controller-manager drains and deletes it again by itself, and
// has it so for a moment if somebody else changed the Node meanwhile.
func failsToGo(machine *machinev1alpha1.MachineSummary) bool {
	return machine.LastOperation.Type == machinev1alpha1.MachineOperationDelete
}

// checkMachines returns what is still missing, in one line of bounded length; nil if nothing is. Of a hibernated shoot that
// is that all machines are gone.
func checkMachines(deployed []machinev1alpha1.MachineDeployment, existing *observed, hibernated bool) error {
	var (
		missing  []string
		sets     = gardenerutils.BuildOwnerToMachineSetsMap(existing.sets)
		machines = gardenerutils.BuildMachineSetToMachinesMap(existing.machines)
	)
	for i := range deployed {
		deployment := &deployed[i]
		switch {
		case hibernated && deployment.Status.Replicas > 0:
			missing = append(missing, fmt.Sprintf("machine deployment %s has %d machines that are to be hibernated", deployment.Name, deployment.Status.Replicas))
		case !hibernated:
			if reason := unavailable(deployment, sets, machines); reason != "" {
				missing = append(missing, reason)
			}
		}
		for _, machine := range deployment.Status.FailedMachines {
			if failsToGo(machine) {
				missing = append(missing, fmt.Sprintf("machine %s is not gone yet: %s", machine.Name, machine.LastOperation.Description))
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	rest := ""
	if len(missing) > missingMax {
		rest = fmt.Sprintf("; and %d more", len(missing)-missingMax)
		missing = missing[:missingMax]
	}
	return errors.New("waiting for machines: " + strings.Join(missing, "; ") + rest)
}

// unavailable returns why a MachineDeployment is not as it is to be; empty if it is. The criteria are those of the generic
// actuator, which has them for the sums over all MachineDeployments.
func unavailable(deployment *machinev1alpha1.MachineDeployment, sets map[string][]machinev1alpha1.MachineSet, machines map[string][]machinev1alpha1.Machine) string {
	status, name := deployment.Status, deployment.Name
	latest := helper.GetMachineSetWithMachineClass(name, deployment.Spec.Template.Spec.Class.Name, sets)
	if latest == nil {
		return fmt.Sprintf("machine deployment %s has no machine set with its machine class yet", name)
	}

	// With updates in place by hand, old machines stay until somebody selects them. Machine sets know before the deployment
	// does how many there are.
	var left, updating int32
	if gardenerutils.IsMachineDeploymentStrategyManualInPlace(deployment.Spec.Strategy) {
		for _, set := range helper.GetOldMachineSets(sets[name], *latest) {
			left += set.Status.Replicas
			updating += beingUpdated(machines[set.Name])
		}
	}
	if updating > 0 {
		return fmt.Sprintf("machine deployment %s has %d machines that are being updated in place", name, updating)
	}

	counts := fmt.Sprintf("machine deployment %s has %d of %d machines available, %d of %d are up to date",
		name, status.AvailableReplicas, deployment.Spec.Replicas, status.UpdatedReplicas+left, status.Replicas)
	if err := health.CheckMachineDeployment(deployment); err != nil {
		return counts + ": " + err.Error()
	}
	// Machines that are kept though they have failed never become available.
	if status.UpdatedReplicas+left != status.Replicas || status.UnavailableReplicas > status.PreservedFailedReplicas {
		return counts
	}
	return ""
}

func beingUpdated(machines []machinev1alpha1.Machine) int32 {
	var count int32
	for i := range machines {
		condition := worker.GetMachineCondition(&machines[i], machinev1alpha1.NodeInPlaceUpdate)
		if condition != nil && condition.Reason != machinev1alpha1.CandidateForUpdate {
			count++
		}
	}
	return count
}

// replaceStuckManager deletes the pods of a machine-controller-manager that has acknowledged a MachineDeployment by its
// finalizer but made no MachineSet for it in a long time.
func (a *actuator) replaceStuckManager(ctx context.Context, namespace string, deployed []machinev1alpha1.MachineDeployment, sets []machinev1alpha1.MachineSet) error {
	byDeployment, stuck := gardenerutils.BuildOwnerToMachineSetsMap(sets), ""
	for i := range deployed {
		d := &deployed[i]
		if controllerutil.ContainsFinalizer(d, mcmFinalizer) && a.Clock.Since(d.CreationTimestamp.Time) >= stuckAfter &&
			helper.GetMachineSetWithMachineClass(d.Name, d.Spec.Template.Spec.Class.Name, byDeployment) == nil {
			stuck = d.Name
		}
	}
	if stuck == "" {
		return nil
	}

	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := a.reader.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{v1beta1constants.LabelRole: v1beta1constants.DeploymentNameMachineControllerManager}); err != nil {
		return fmt.Errorf("listing the pods of machine-controller-manager: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		// One that has just been started gets its time.
		if pod.DeletionTimestamp != nil || a.Clock.Since(pod.CreationTimestamp.Time) < stuckAfter {
			continue
		}
		logf.FromContext(ctx).Info("Deleting a pod of machine-controller-manager, which makes no machine set", "pod", pod.Name, "machineDeployment", stuck)
		if err := client.IgnoreNotFound(a.client.Delete(ctx, pod)); err != nil {
			return fmt.Errorf("deleting pod %s: %w", client.ObjectKeyFromObject(pod), err)
		}
	}
	return nil
}

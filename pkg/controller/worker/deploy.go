// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	extensionsv1alpha1helper "github.com/gardener/gardener/pkg/api/extensions/v1alpha1/helper"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	"github.com/gardener/gardener/pkg/utils/flow"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// parallel is how many objects are written at a time.
	parallel = 10
	// minReadySeconds and forceDeletion are what the generic actuator has.
	minReadySeconds    = 500
	forceDeletionLabel = "force-deletion"
)

// observed is what the cache has in the namespace of a Worker. It is shared, do not change it.
type observed struct {
	deployments []machinev1alpha1.MachineDeployment
	sets        []machinev1alpha1.MachineSet
	machines    []machinev1alpha1.Machine
	classes     []machinev1alpha1.MachineClass
}

func (a *actuator) observe(ctx context.Context, namespace string) (*observed, error) {
	var (
		deployments = &machinev1alpha1.MachineDeploymentList{}
		sets        = &machinev1alpha1.MachineSetList{}
		machines    = &machinev1alpha1.MachineList{}
		classes     = &machinev1alpha1.MachineClassList{}
	)
	for _, list := range []client.ObjectList{deployments, sets, machines, classes} {
		if err := a.client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing what there is of machines in %s: %w", namespace, err)
		}
	}
	return &observed{deployments: deployments.Items, sets: sets.Items, machines: machines.Items, classes: classes.Items}, nil
}

// asleep reports whether no machine is wanted of any deployment, as after a hibernation. If there are none that may be since
// the cache is behind, as after a restoration; those that are new indeed need no waking.
func (o *observed) asleep() bool {
	isWanted := func(d machinev1alpha1.MachineDeployment) bool { return d.Spec.Replicas != 0 }
	return len(o.deployments) > 0 && !slices.ContainsFunc(o.deployments, isWanted)
}

// deployClasses deploys the classes, each after its Secret. User data is fetched at the start of an operation, and for
// classes that are new: Secrets are not cached.
func (a *actuator) deployClasses(ctx context.Context, op *operation, machines []zoned, existing []machinev1alpha1.MachineClass, starts bool) error {
	for _, m := range machines {
		if err := m.pool.checkStays(existing); err != nil {
			return err
		}
	}
	userData := map[string][]byte{}
	var tasks []flow.TaskFn
	for _, m := range machines {
		isThere := slices.ContainsFunc(existing, func(class machinev1alpha1.MachineClass) bool { return class.Name == m.class.Name })
		if !starts && isThere {
			continue
		}
		if _, ok := userData[m.pool.Name]; !ok {
			data, err := worker.FetchUserData(ctx, a.client, m.class.Namespace, m.pool.WorkerPool)
			if err != nil {
				return err
			}
			userData[m.pool.Name] = data
		}
		secret := classSecret(m.class, userData[m.pool.Name])
		tasks = append(tasks, func(ctx context.Context) error { return a.deploySecret(ctx, op, secret, isThere) })
	}
	if err := flow.ParallelN(parallel, tasks...)(ctx); err != nil {
		return err
	}

	tasks = nil
	for _, m := range machines {
		tasks = append(tasks, func(ctx context.Context) error { return a.deployClass(ctx, m.class) })
	}
	return flow.ParallelN(parallel, tasks...)(ctx)
}

// deploySecret deploys the Secret of a class. It reads one that is there, so that one that is as it is to be is not written.
func (a *actuator) deploySecret(ctx context.Context, op *operation, desired *corev1.Secret, isThere bool) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: desired.Namespace, Name: desired.Name}}
	return op.Ensure(ctx, reconciler.Target{Client: a.client, Live: a.client}, secret, isThere, func() error {
		for name, value := range desired.Labels {
			metav1.SetMetaDataLabel(&secret.ObjectMeta, name, value)
		}
		secret.Type, secret.Data = desired.Type, desired.Data
		return nil
	})
}

// deployClass compares a class with the cache, so that one that is as it is to be takes no request.
func (a *actuator) deployClass(ctx context.Context, desired *machinev1alpha1.MachineClass) error {
	class := &machinev1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: desired.Namespace, Name: desired.Name}}
	if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, a.client, class, func() error {
		class.Provider, class.ProviderSpec, class.NodeTemplate = desired.Provider, desired.ProviderSpec, desired.NodeTemplate
		class.SecretRef, class.CredentialsSecretRef = desired.SecretRef, desired.CredentialsSecretRef
		for name, value := range desired.Labels {
			metav1.SetMetaDataLabel(&class.ObjectMeta, name, value)
		}
		return nil
	}, controllerutils.SkipEmptyPatch{}); err != nil {
		return fmt.Errorf("deploying MachineClass %s: %w", client.ObjectKeyFromObject(class), err)
	}
	return nil
}

// deployDeployments deploys the MachineDeployments and returns them as the API server has them then. Its answers are newer
// than the cache, so nothing is taken for the outcome of this that is from before. They are patched, not applied: replicas are
// cluster-autoscaler's as well, and only a change of ours may overwrite what it has set meanwhile.
func (a *actuator) deployDeployments(ctx context.Context, w *extensionsv1alpha1.Worker, machines []zoned, existing *observed, hibernated bool) ([]machinev1alpha1.MachineDeployment, error) {
	if hibernated {
		if err := a.forceDeletion(ctx, existing.machines); err != nil {
			return nil, err
		}
	}

	scale := scaling{hibernated: hibernated, autoscaled: extensionsv1alpha1helper.ClusterAutoscalerRequired(w.Spec.Pools), awake: !hibernated && existing.asleep()}
	out := make([]machinev1alpha1.MachineDeployment, len(machines))
	var tasks []flow.TaskFn
	for i := range machines {
		deployment, want := &out[i], &machines[i].deployment
		deployment.Namespace, deployment.Name = w.Namespace, want.Name
		tasks = append(tasks, func(ctx context.Context) error {
			if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, a.client, deployment, func() error {
				deployment.Spec.Replicas = scale.replicas(deployment, want)
				mutateDeployment(deployment, want, w.Name)
				return nil
			}, controllerutils.SkipEmptyPatch{}); err != nil {
				return fmt.Errorf("deploying MachineDeployment %s: %w", client.ObjectKeyFromObject(deployment), err)
			}
			return nil
		})
	}
	return out, flow.ParallelN(parallel, tasks...)(ctx)
}

// scaling decides about replicas.
type scaling struct {
	hibernated, autoscaled, awake bool
}

// replicas returns how many machines are wanted. Between minimum and maximum that is cluster-autoscaler's matter, if there
// is one, but for a deployment that is new and for all after a hibernation.
func (s scaling) replicas(current *machinev1alpha1.MachineDeployment, want *worker.MachineDeployment) int32 {
	switch {
	case s.hibernated:
		return 0
	case !s.autoscaled, current.UID == "", s.awake:
		return want.Minimum
	default:
		return min(max(current.Spec.Replicas, want.Minimum), want.Maximum)
	}
}

// mutateDeployment sets all but the replicas. What the template is annotated with is machine-controller-manager's.
func mutateDeployment(deployment *machinev1alpha1.MachineDeployment, want *worker.MachineDeployment, workerName string) {
	metav1.SetMetaDataLabel(&deployment.ObjectMeta, v1beta1constants.LabelWorkerPool, want.PoolName)
	for name, value := range want.ClusterAutoscalerAnnotations {
		if value == "" {
			delete(deployment.Annotations, name)
		} else {
			metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, name, value)
		}
	}

	selector := map[string]string{worker.LabelKeyMachineDeploymentName: want.Name}
	labels := maps.Clone(selector)
	if want.Strategy.Type == machinev1alpha1.InPlaceUpdateMachineDeploymentStrategyType {
		labels[v1beta1constants.LabelWorkerName] = workerName
	}

	spec := &deployment.Spec
	spec.RevisionHistoryLimit = new(int32(0))
	spec.MinReadySeconds = minReadySeconds
	spec.Strategy = want.Strategy
	spec.Selector = &metav1.LabelSelector{MatchLabels: selector}
	spec.AutoPreserveFailedMachineMax = want.AutoPreserveFailedMachineMax
	spec.Template.Labels = labels
	spec.Template.Spec = machinev1alpha1.MachineSpec{
		Class: machinev1alpha1.ClassSpec{Kind: "MachineClass", Name: want.ClassName},
		NodeTemplateSpec: machinev1alpha1.NodeTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: want.Annotations, Labels: want.Labels},
			Spec:       corev1.NodeSpec{Taints: want.Taints},
		},
		MachineConfiguration: want.MachineConfiguration,
	}
}

// forceDeletion has machines deleted without regard to what runs on them.
func (a *actuator) forceDeletion(ctx context.Context, machines []machinev1alpha1.Machine) error {
	var tasks []flow.TaskFn
	for i := range machines {
		if machines[i].Labels[forceDeletionLabel] == "True" {
			continue
		}
		tasks = append(tasks, func(ctx context.Context) error {
			machine := machines[i].DeepCopy()
			patch := client.MergeFrom(machine.DeepCopy())
			metav1.SetMetaDataLabel(&machine.ObjectMeta, forceDeletionLabel, "True")
			if err := client.IgnoreNotFound(a.client.Patch(ctx, machine, patch)); err != nil {
				return fmt.Errorf("labelling Machine %s for deletion: %w", client.ObjectKeyFromObject(machine), err)
			}
			return nil
		})
	}
	return flow.ParallelN(parallel, tasks...)(ctx)
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/flow"
	"github.com/gardener/gardener/pkg/utils/kubernetes"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

// stage is one kind of what machines are made of.
type stage struct {
	name    string
	newList func() client.ObjectList
	// selector is nil for all of the kind.
	selector client.MatchingLabels
}

// stages are all kinds in the order in which they are deleted: each is needed to delete those before it.
func stages() []stage {
	return append(cachedStages(), secretsOfClasses())
}

// cachedStages are those of the kinds that are cached.
func cachedStages() []stage {
	return []stage{
		{name: "machine deployments", newList: func() client.ObjectList { return &machinev1alpha1.MachineDeploymentList{} }},
		{name: "machine sets", newList: func() client.ObjectList { return &machinev1alpha1.MachineSetList{} }},
		{name: "machines", newList: func() client.ObjectList { return &machinev1alpha1.MachineList{} }},
		{name: "machine classes", newList: func() client.ObjectList { return &machinev1alpha1.MachineClassList{} }},
	}
}

func secretsOfClasses() stage {
	return stage{
		name:     "secrets of machine classes",
		newList:  metadataOf("Secret"),
		selector: client.MatchingLabels{v1beta1constants.GardenerPurpose: v1beta1constants.GardenPurposeMachineClass},
	}
}

// delete takes all steps of a deletion up to the first for which something else has to happen before.
func (a *actuator) delete(ctx context.Context, w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster) error {
	existing, err := a.observe(ctx, w.Namespace)
	if err != nil {
		return err
	}
	if existing.isUntouched() {
		if err := a.prepareDeletion(ctx, w, cluster, existing); err != nil {
			return err
		}
	}
	if err := a.forceDeletion(ctx, existing.machines); err != nil {
		return err
	}
	waiting, retry, err := a.deleteStages(ctx, a.client, w.Namespace, stages())
	if err != nil {
		return err
	}
	// Only now: a machine that cannot be deleted is no reason to keep the others.
	if err := deletionFailed(existing); err != nil {
		return err
	}
	if waiting != nil {
		return a.waitDeleted(w, waiting, retry)
	}
	acquired, err := a.isAcquired(ctx, w)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if acquired {
		return a.waitDeleted(w, fmt.Errorf("waiting for machine-controller-manager to release the Secret %s/%s with the credentials", w.Spec.SecretRef.Namespace, w.Spec.SecretRef.Name), retrySecret)
	}

	if last := w.Status.MachineDeploymentsLastUpdateTime; last != nil && a.Clock.Since(last.Time) > settledAfter {
		return nil
	}
	// The cache may not have yet what has been deployed just now. Secrets are not in it.
	waiting, retry, err = a.deleteStages(ctx, a.reader, w.Namespace, cachedStages())
	if err != nil || waiting == nil {
		return err
	}
	return a.waitDeleted(w, waiting, retry)
}

// waitDeleted waits for what a deletion takes.
func (a *actuator) waitDeleted(w *extensionsv1alpha1.Worker, cause error, retryAfter time.Duration) error {
	return a.waitSince(w.DeletionTimestamp.Time, cause, retryAfter)
}

// isUntouched reports whether there are machines to delete and none of their deployments is being deleted yet.
func (o *observed) isUntouched() bool {
	for i := range o.deployments {
		if o.deployments[i].DeletionTimestamp != nil {
			return false
		}
	}
	return len(o.deployments)+len(o.sets)+len(o.machines) > 0
}

// prepareDeletion has machine-controller-manager know what it takes to delete machines: the classes as they are to be now,
// and the credentials.
func (a *actuator) prepareDeletion(ctx context.Context, w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster, existing *observed) error {
	if err := a.refreshClasses(ctx, w, cluster, existing); err != nil {
		// The classes that are there have made these machines, and nobody should have to repair what is to go.
		logf.FromContext(ctx).Error(err, "Machines are deleted with their machine classes as they are")
	}

	acquired, err := a.isAcquired(ctx, w)
	if apierrors.IsNotFound(err) {
		return common.ConfigurationProblem(fmt.Errorf("the Secret %s/%s which spec.secretRef names does not exist: create it, the machines that are left cannot be deleted without",
			w.Spec.SecretRef.Namespace, w.Spec.SecretRef.Name), common.RetryMissing)
	}
	if err != nil {
		return err
	}
	if !acquired {
		return a.waitDeleted(w, fmt.Errorf("waiting for machine-controller-manager to acquire the Secret %s/%s with the credentials", w.Spec.SecretRef.Namespace, w.Spec.SecretRef.Name), retrySecret)
	}
	return nil
}

func (a *actuator) refreshClasses(ctx context.Context, w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster, existing *observed) error {
	pools, err := a.poolsOf(w, cluster)
	if err != nil {
		return err
	}
	machines, err := machinesOf(w, pools)
	if err != nil {
		return err
	}
	return a.deployClasses(ctx, machines, existing.classes, false)
}

// isAcquired reports whether machine-controller-manager has put its finalizer on the credentials.
func (a *actuator) isAcquired(ctx context.Context, w *extensionsv1alpha1.Worker) (bool, error) {
	secret, err := kubernetes.GetSecretMetadataByReference(ctx, a.reader, &w.Spec.SecretRef)
	if err != nil {
		return false, err
	}
	return controllerutil.ContainsFinalizer(secret, mcmFinalizer) || controllerutil.ContainsFinalizer(secret, driverFinalizer), nil
}

// deletionFailed returns an error with codes if machines cannot be deleted.
func deletionFailed(existing *observed) error {
	status := machinev1alpha1.MachineDeploymentStatus{}
	for i := range existing.machines {
		m := &existing.machines[i]
		if m.DeletionTimestamp != nil && m.Status.LastOperation.State == machinev1alpha1.MachineStateFailed {
			status.FailedMachines = append(status.FailedMachines, &machinev1alpha1.MachineSummary{Name: m.Name, LastOperation: m.Status.LastOperation})
		}
	}
	slices.SortFunc(status.FailedMachines, func(a, b *machinev1alpha1.MachineSummary) int { return cmp.Compare(a.Name, b.Name) })
	return failedMachines(status)
}

// deleteStages deletes what there is of the first kind of which there is something, and returns that it waits for it, and
// when to look again; nil if there is nothing of any kind.
func (a *actuator) deleteStages(ctx context.Context, reader client.Reader, namespace string, stages []stage) (waiting error, retry time.Duration, err error) {
	for _, s := range stages {
		objects, err := s.list(ctx, reader, namespace)
		if err != nil {
			return nil, 0, err
		}
		var (
			names []string
			tasks []flow.TaskFn
		)
		for _, obj := range objects {
			if obj.GetDeletionTimestamp() == nil {
				tasks = append(tasks, func(ctx context.Context) error { return a.deleteObject(ctx, obj) })
			}
			// Most Secrets are gone at once.
			if obj.GetDeletionTimestamp() != nil || len(obj.GetFinalizers()) > 0 || !s.isSecrets() {
				names = append(names, obj.GetName())
			}
		}
		if err := flow.ParallelN(parallel, tasks...)(ctx); err != nil {
			return nil, 0, err
		}
		if len(names) > 0 {
			retry := retryWait
			if s.isSecrets() {
				// No watch tells when machine-controller-manager has released them.
				retry = retrySecret
			}
			return fmt.Errorf("waiting for the deletion of %d %s: %s", len(names), s.name, shorten(names)), retry, nil
		}
	}
	return nil, 0, nil
}

// metadataOf returns a list of the metadata of a kind of the core group, whose content nobody needs.
func metadataOf(kind string) func() client.ObjectList {
	return func() client.ObjectList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
		return list
	}
}

func (s *stage) isSecrets() bool { return s.selector != nil }

// list lists what there is of the kind.
func (s *stage) list(ctx context.Context, reader client.Reader, namespace string) ([]client.Object, error) {
	list, opts := s.newList(), []client.ListOption{client.InNamespace(namespace)}
	if s.selector != nil {
		opts = append(opts, s.selector)
	}
	if err := reader.List(ctx, list, opts...); err != nil {
		return nil, fmt.Errorf("listing the %s in %s: %w", s.name, namespace, err)
	}
	var out []client.Object
	err := meta.EachListItem(list, func(item runtime.Object) error {
		out = append(out, item.(client.Object))
		return nil
	})
	return out, err
}

func (a *actuator) deleteObject(ctx context.Context, obj client.Object) error {
	uid := obj.GetUID()
	if err := a.client.Delete(ctx, obj, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s: %w", client.ObjectKeyFromObject(obj), err)
	}
	return nil
}

func shorten(names []string) string {
	slices.Sort(names)
	if len(names) > missingMax {
		return strings.Join(names[:missingMax], ", ") + fmt.Sprintf(" and %d more", len(names)-missingMax)
	}
	return strings.Join(names, ", ")
}

// deleteUnwanted deletes what belongs to pools and classes that are not wanted any more. It waits until their deployments
// are gone, unless nobody is there to delete them.
func (a *actuator) deleteUnwanted(ctx context.Context, op *operation, machines []zoned, existing *observed) error {
	want := wanted(machines)
	var left []machinev1alpha1.MachineDeployment
	for _, deployment := range existing.deployments {
		if want.HasDeployment(deployment.Name) {
			continue
		}
		left = append(left, deployment)
		if deployment.DeletionTimestamp == nil {
			if err := a.deleteObject(ctx, deployment.DeepCopy()); err != nil {
				return err
			}
		}
	}
	for i := range existing.classes {
		class := &existing.classes[i]
		if want.HasClass(class.Name) {
			continue
		}
		if class.DeletionTimestamp == nil {
			if err := a.deleteObject(ctx, class.DeepCopy()); err != nil {
				return err
			}
		}
	}
	if err := a.deleteUnwantedSecrets(ctx, op, machines); err != nil {
		return err
	}
	return a.awaitUnwanted(ctx, op.Object, left)
}

// deleteUnwantedSecrets asks the API server whether or not there is a class that is not wanted any more: a Secret is there
// before its class, and may be left when that is gone. A Worker that is created has none yet, unless its pools are changed
// meanwhile, for which there is the next reconcile.
func (a *actuator) deleteUnwantedSecrets(ctx context.Context, op *operation, machines []zoned) error {
	if op.Type == gardencorev1beta1.LastOperationTypeCreate {
		return nil
	}
	want, secrets := wanted(machines), secretsOfClasses()
	objects, err := secrets.list(ctx, a.reader, op.Object.Namespace)
	if err != nil {
		return err
	}
	for _, secret := range objects {
		if !want.HasSecret(secret.GetName()) && secret.GetDeletionTimestamp() == nil {
			if err := a.deleteObject(ctx, secret); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *actuator) awaitUnwanted(ctx context.Context, w *extensionsv1alpha1.Worker, left []machinev1alpha1.MachineDeployment) error {
	if len(left) == 0 {
		return nil
	}
	key := client.ObjectKey{Namespace: w.Namespace, Name: v1beta1constants.DeploymentNameMachineControllerManager}
	manager := &appsv1.Deployment{}
	if err := a.client.Get(ctx, key, manager); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Deployment %s: %w", key, err)
	}
	if ptr.Deref(manager.Spec.Replicas, 0) == 0 {
		return nil
	}
	if err := anyFailed(left); err != nil {
		return err
	}
	var names []string
	for _, deployment := range left {
		names = append(names, deployment.Name)
	}
	return a.waitSince(w.Status.MachineDeploymentsLastUpdateTime.Time, fmt.Errorf("waiting for the deletion of %d machine deployments: %s", len(names), shorten(names)), retryWait)
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	"github.com/gardener/gardener/pkg/utils/kubernetes"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// retrySecret is for what no watch tells: whether machine-controller-manager has acquired or released the credentials.
	// Secrets are not watched, as there are many more in a seed than these.
	retrySecret = 2 * time.Second
	// settledAfter is when the cache has all that was deployed.
	settledAfter = 10 * time.Second
	// remoteTimeout bounds what a forced deletion spends on a cluster that a user has named.
	remoteTimeout = 20 * time.Second
)

// stage is one kind of what machines are made of.
type stage struct {
	name string
	list client.ObjectList
	// labels are those of Secrets.
	labels client.MatchingLabels
}

// stages returns all kinds in the order in which they are deleted: each is needed to delete those before it.
func stages() []stage {
	return []stage{
		{name: "machine deployments", list: &machinev1alpha1.MachineDeploymentList{}},
		{name: "machine sets", list: &machinev1alpha1.MachineSetList{}},
		{name: "machines", list: &machinev1alpha1.MachineList{}},
		{name: "machine classes", list: &machinev1alpha1.MachineClassList{}},
		{name: "secrets of machine classes", list: metadataOf("Secret"), labels: labelsOfClassSecrets()},
	}
}

func labelsOfClassSecrets() client.MatchingLabels {
	return client.MatchingLabels{v1beta1constants.GardenerPurpose: v1beta1constants.GardenPurposeMachineClass}
}

// metadataOf returns a list of the metadata of a kind of the core group, whose content nobody needs.
func metadataOf(kind string) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
	return list
}

// Delete implements reconciler.Actuator. It takes all steps of a deletion up to the first for which something else has to happen
// before.
func (a *actuator) Delete(ctx context.Context, op *operation) (err error) {
	defer func() { err = transient(err) }()
	w := op.Object
	existing, err := a.observe(ctx, w.Namespace)
	if err != nil {
		return err
	}
	if existing.isUntouched() {
		if err := a.prepareDeletion(ctx, op, existing); err != nil {
			return err
		}
	}
	if err := a.forceDeletion(ctx, existing.machines.Items); err != nil {
		return err
	}
	for i, s := range stages() {
		target, retryAfter := reconciler.Target{Client: a.client, Cache: a.client}, retryWait
		switch last := w.Status.MachineDeploymentsLastUpdateTime; {
		case s.labels != nil:
			// Secrets are not cached, and no watch tells when machine-controller-manager has released them.
			target.Live, target.Cache, retryAfter = a.client, nil, retrySecret
		case i == 0 && (last == nil || a.Clock.Since(last.Time) <= settledAfter):
			// MachineDeployments that were deployed a moment ago may not be in the cache yet; what is made of them is there
			// before they are gone.
			target.Live = a.reader
		}
		left, err := op.DeleteAll(ctx, target, s.list, w.Namespace, s.labels)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			continue
		}
		// Only now: a machine that cannot be deleted is no reason to keep the others.
		if err := deletionFailed(existing); err != nil {
			return err
		}
		return a.waitSince(w.DeletionTimestamp.Time, fmt.Errorf("waiting for the deletion of %d %s: %s", len(left), s.name, namesOf(left)), retryAfter)
	}
	return client.IgnoreNotFound(a.awaitCredentials(ctx, w, release))
}

// isUntouched reports whether there are machines to delete and what makes them is not being deleted yet.
func (o *observed) isUntouched() bool {
	if len(o.deployments.Items) > 0 {
		return !slices.ContainsFunc(o.deployments.Items, func(d machinev1alpha1.MachineDeployment) bool { return d.DeletionTimestamp != nil })
	}
	return len(o.sets.Items)+len(o.machines.Items) > 0 &&
		!slices.ContainsFunc(o.sets.Items, func(s machinev1alpha1.MachineSet) bool { return s.DeletionTimestamp != nil }) &&
		!slices.ContainsFunc(o.machines.Items, func(m machinev1alpha1.Machine) bool { return m.DeletionTimestamp != nil })
}

// prepareDeletion has machine-controller-manager know what it takes to delete machines: the classes as they are to be now,
// and the credentials.
func (a *actuator) prepareDeletion(ctx context.Context, op *operation, existing *observed) error {
	w := op.Object
	machines, err := a.machinesOf(w, op.Cluster, nil)
	if err == nil {
		err = a.deployClasses(ctx, op, machines, existing.classes.Items, false)
	}
	if err != nil {
		// The classes that are there have made these machines, and nobody should have to repair what is to go.
		op.Log.Error(err, "Machines are deleted with their machine classes as they are")
	}

	err = a.awaitCredentials(ctx, w, acquire)
	if apierrors.IsNotFound(err) {
		return reconciler.ConfigurationProblem(fmt.Errorf("the Secret %s/%s which spec.secretRef names does not exist: create it, the machines that are left cannot be deleted without",
			w.Spec.SecretRef.Namespace, w.Spec.SecretRef.Name), reconciler.RetryMissing)
	}
	return err
}

// What machine-controller-manager does to the Secret with the credentials, by its finalizer.
const acquire, release = "acquire", "release"

// awaitCredentials waits until machine-controller-manager has acquired or released the Secret with the credentials.
func (a *actuator) awaitCredentials(ctx context.Context, w *extensionsv1alpha1.Worker, do string) error {
	ref := &w.Spec.SecretRef
	secret, err := kubernetes.GetSecretMetadataByReference(ctx, a.reader, ref)
	if err != nil {
		return err
	}
	isAcquired := controllerutil.ContainsFinalizer(secret, mcmFinalizer) || controllerutil.ContainsFinalizer(secret, driverFinalizer)
	if isAcquired == (do == acquire) {
		return nil
	}
	cause := fmt.Errorf("waiting for machine-controller-manager to %s the Secret %s/%s with the credentials", do, ref.Namespace, ref.Name)
	return a.waitSince(w.DeletionTimestamp.Time, cause, retrySecret)
}

// deletionFailed returns an error with codes if machines cannot be deleted.
func deletionFailed(existing *observed) error {
	var failed []*machinev1alpha1.MachineSummary
	for i := range existing.machines.Items {
		if m := &existing.machines.Items[i]; cannotBeDeleted(m) {
			failed = append(failed, &machinev1alpha1.MachineSummary{Name: m.Name, LastOperation: m.Status.LastOperation})
		}
	}
	return failedMachines(failed)
}

func cannotBeDeleted(m *machinev1alpha1.Machine) bool {
	return m.DeletionTimestamp != nil && m.Status.LastOperation.State == machinev1alpha1.MachineStateFailed
}

func namesOf(objects []client.Object) string {
	var names []string
	for _, obj := range objects {
		names = append(names, obj.GetName())
	}
	slices.Sort(names)
	return reconciler.JoinSome(names, ", ")
}

// deleteUnwanted deletes what belongs to pools and classes that are not wanted any more. It waits until their deployments
// are gone, unless nobody is there to delete them.
func (a *actuator) deleteUnwanted(ctx context.Context, op *operation, machines []zoned, existing *observed) error {
	w, want := op.Object, wanted(machines)
	var left, unwanted []client.Object
	var deployments []machinev1alpha1.MachineDeployment
	for i := range existing.deployments.Items {
		if deployment := &existing.deployments.Items[i]; !want.HasDeployment(deployment.Name) {
			left, deployments = append(left, deployment), append(deployments, *deployment)
		}
	}
	for i := range existing.classes.Items {
		if class := &existing.classes.Items[i]; !want.HasClass(class.Name) {
			unwanted = append(unwanted, class)
		}
	}
	// A Secret is there before its class, and may be left when that is gone, so the API server is asked for them in any case. A
	// Worker that is created has none yet, unless its pools are changed meanwhile, for which there is the next reconcile.
	if op.Type != gardencorev1beta1.LastOperationTypeCreate {
		secrets := metadataOf("Secret")
		if err := a.reader.List(ctx, secrets, client.InNamespace(w.Namespace), labelsOfClassSecrets()); err != nil {
			return fmt.Errorf("listing the secrets of machine classes in %s: %w", w.Namespace, err)
		}
		for i := range secrets.Items {
			if secret := &secrets.Items[i]; !want.HasSecret(secret.Name) {
				unwanted = append(unwanted, secret)
			}
		}
	}
	for _, obj := range append(unwanted, left...) {
		if obj.GetDeletionTimestamp() != nil {
			continue
		}
		if _, err := op.Delete(ctx, reconciler.Target{Client: a.client}.WithoutState(), []client.Object{obj}, client.Preconditions{UID: new(obj.GetUID())}); err != nil {
			return err
		}
	}
	if len(left) == 0 {
		return nil
	}

	manager := client.ObjectKey{Namespace: w.Namespace, Name: v1beta1constants.DeploymentNameMachineControllerManager}
	replicas, err := kubernetes.CurrentReplicaCountForDeployment(ctx, a.client, manager.Namespace, manager.Name)
	if err != nil {
		return fmt.Errorf("reading Deployment %s: %w", manager, err)
	}
	if replicas == 0 {
		return nil
	}
	if err := anyFailed(deployments); err != nil {
		return err
	}
	return a.waitSince(w.Status.MachineDeploymentsLastUpdateTime.Time, fmt.Errorf("waiting for the deletion of %d machine deployments: %s", len(left), namesOf(left)), retryWait)
}

// ForceDelete implements reconciler.Actuator. It deletes all that machines are made of in the seed, whether or not anybody
// wants to take a finalizer off, and then the machines themselves. It waits for nothing. Machines in another cluster that
// does not answer within remoteTimeout are left there.
func (a *actuator) ForceDelete(ctx context.Context, op *operation) error {
	w := op.Object
	live := reconciler.Target{Client: a.client, Live: a.reader}
	for _, s := range stages() {
		left, err := op.DeleteAll(ctx, live, s.list, w.Namespace, s.labels)
		if err != nil {
			return err
		}
		for _, obj := range left {
			if err := op.Release(ctx, live, obj); err != nil {
				return err
			}
		}
	}
	if err := a.releaseCredentials(ctx, w); err != nil {
		return err
	}

	if err := deletePods(ctx, a.reader, a.client, w.Namespace); err != nil || a.Clusters == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	found, err := a.Clusters.Get(ctx, w.Spec.SecretRef, w.Namespace)
	if err == nil && found.Remote {
		err = deletePods(ctx, found.Client, found.Client, found.Namespace)
	}
	if err != nil {
		op.Log.Error(err, "Machines are left in the cluster of the credentials, if there is one")
	}
	return nil
}

// releaseCredentials takes the finalizers of machine-controller-manager off the credentials, which are gardenlet's to
// delete.
func (a *actuator) releaseCredentials(ctx context.Context, w *extensionsv1alpha1.Worker) error {
	secret, err := kubernetes.GetSecretMetadataByReference(ctx, a.reader, &w.Spec.SecretRef)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := client.IgnoreNotFound(controllerutils.RemoveFinalizers(ctx, a.client, secret, mcmFinalizer, driverFinalizer)); err != nil {
		return fmt.Errorf("taking the finalizers of machine-controller-manager off the credentials: %w", err)
	}
	return nil
}

// deletePods deletes the machines that are left in a namespace, at once, with what the machine driver has made for them.
func deletePods(ctx context.Context, reader client.Reader, c client.Client, namespace string) error {
	for _, kind := range []string{"Pod", "Service", "Secret"} {
		list := metadataOf(kind)
		if err := reader.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels(machine.Selector())); err != nil {
			return fmt.Errorf("listing the %ss of machines in %s: %w", kind, namespace, err)
		}
		for i := range list.Items {
			if err := client.IgnoreNotFound(c.Delete(ctx, &list.Items[i], client.GracePeriodSeconds(0))); err != nil {
				return fmt.Errorf("deleting what is left of machines: %w", err)
			}
		}
	}
	return nil
}

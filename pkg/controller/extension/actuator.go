// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package extension holds the controllers for Extensions of this provider's types, one controller for each type. What a
// type deploys, where, and whether it is waited for is data, in kind.go: a ManagedResource in the namespace of the
// Extension. The package is added by both programs, each with its classes. What is deployed does nothing: the types are
// there so that the lifecycles of extensions can be seen at work.
package extension

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/extension"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

const (
	// TypeSeed is the type of Extensions that deploy a ServiceAccount into their own namespace, in the seed: that of a
	// shoot, or garden for one of class seed.
	TypeSeed = "local-ext-seed"
	// TypeShoot is the type of Extensions that deploy a ServiceAccount into the namespace kube-system of a shoot or of the
	// virtual garden.
	TypeShoot = "local-ext-shoot"
	// TypeShootAfterWorker is the type of Extensions that deploy a Deployment into the namespace kube-system of a shoot and
	// wait until it is ready.
	TypeShootAfterWorker = "local-ext-shoot-after-worker"

	// pauseImage is the image of its Deployment. Nodes have it anyway, for the sandboxes of pods.
	pauseImage = "registry.k8s.io/pause:3.10"
)

// Options are what the controllers need.
type Options struct {
	reconciler.Shared

	// Resources writes the ManagedResources. It is to use the client of the manager.
	Resources *resources.Writer
	// ForceDeleteTest lets a Shoot ask for leftovers (see AnnotationForceDeleteTest). Those that exist are removed in any case.
	ForceDeleteTest bool
}

// AddToManager adds a controller for each type of Extension that exists for one of the classes. It is an error if the
// set of classes is empty.
//
// Needed permissions, beyond those of reconciler.Reconciler and of resources.Writer: list and watch on ManagedResources; with
// class shoot, get on Namespaces, and create, patch and delete on NetworkPolicies (see AnnotationForceDeleteTest).
func AddToManager(mgr manager.Manager, opts Options) error {
	for _, kind := range kinds() {
		r := newReconciler(mgr, opts, kind)
		err := r.AddToManager(mgr, kind.extensionType, r.WatchManagedResources(kind.managedResources()))
		if err != nil {
			return fmt.Errorf("type %s: %w", kind.extensionType, err)
		}
	}
	return nil
}

func newReconciler(mgr manager.Manager, opts Options, kind kind) *reconciler.Reconciler[*extensionsv1alpha1.Extension] {
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.Extension]{
		Shared:    opts.Shared,
		Client:    mgr.GetClient(),
		Types:     []string{kind.extensionType},
		ExistsFor: kind.classes,
		Finalizer: extension.FinalizerPrefix + "/" + kind.extensionType,
		Actuator:  &actuator{Options: opts, client: mgr.GetClient(), reader: mgr.GetAPIReader(), kind: kind},
	})
}

// retryWait is when an Extension that waits for its ManagedResource is looked at again, should the watch not wake it
// before.
const retryWait = 30 * time.Second

// attempt is one at an operation on an Extension.
type attempt = reconciler.Operation[*extensionsv1alpha1.Extension]

// actuator serves one type of Extension.
type actuator struct {
	Options
	client client.Client
	// reader asks the API server.
	reader client.Reader
	kind   kind
}

// Reconcile deploys the ManagedResource, and waits until its objects are healthy if the type wants that.
func (a *actuator) Reconcile(ctx context.Context, op *attempt) error {
	ex := op.Object
	err := a.Resources.Apply(ctx, a.kind.managedResource(ex))
	if errors.Is(err, resources.ErrDeleting) {
		return waitFor(err)
	}
	if err != nil {
		return err
	}
	if a.ForceDeleteTest && a.asksForLeftovers(op) {
		if err := a.applyLeftovers(ctx, op); err != nil {
			return err
		}
	}
	if a.kind.waits && (a.kind.isInSeed || !op.Cluster.IsHibernated()) {
		if err := a.waitUntilHealthy(ctx, a.kind.key(ex)); err != nil {
			return err
		}
	}
	return reconciler.CheckCluster(ctx, a.reader, ex, op.Cluster)
}

// Delete deletes the ManagedResource. As long as GRM is deleting the objects, it gives the worker back: when the
// ManagedResource is gone, the watch on it brings the Extension here again.
func (a *actuator) Delete(ctx context.Context, op *attempt) error {
	key := a.kind.key(op.Object)
	gone, err := a.Resources.Delete(ctx, key)
	if err != nil || gone {
		return err
	}
	return waitFor(fmt.Errorf("ManagedResource %s is still being deleted, gardener-resource-manager's status on it tells why", key))
}

// ForceDelete deletes the ManagedResource and its Secrets, and waits for nothing: the shoot may be out of reach, so its
// objects are left where they are. gardenlet takes the finalizer off ManagedResources that nobody serves any more.
func (a *actuator) ForceDelete(ctx context.Context, op *attempt) error {
	if a.kind.hasLeftovers && reconciler.IsOfShoot(op.Object) {
		if err := a.removeLeftovers(ctx, op); err != nil {
			return err
		}
	}
	_, err := a.release(ctx, op.Object)
	return err
}

// Migrate deletes the ManagedResource, but not what is in the shoot: that goes on without this seed.
func (a *actuator) Migrate(ctx context.Context, op *attempt) error {
	if a.kind.hasLeftovers && (a.ForceDeleteTest || a.asksForLeftovers(op)) {
		// The other seed gets its own, and the namespace here has to go. There may be some of a former request.
		if err := a.removeLeftovers(ctx, op); err != nil {
			return err
		}
	}

	gone, err := a.release(ctx, op.Object)
	if err != nil || gone {
		return err
	}
	return waitFor(fmt.Errorf("ManagedResource %s is still being deleted for the migration", a.kind.key(op.Object)))
}

// release deletes the ManagedResource, but keeps its objects unless they are in the seed.
func (a *actuator) release(ctx context.Context, ex *extensionsv1alpha1.Extension) (bool, error) {
	if a.kind.isInSeed {
		return a.Resources.Delete(ctx, a.kind.key(ex))
	}
	return a.Resources.Orphan(ctx, a.kind.key(ex))
}

// waitUntilHealthy gives up as long as the ManagedResource is not healthy. That of the cache is asked first, as the watch
// tells when it changes. If it is healthy, it may still be the one from before the last write, if that is not known here.
func (a *actuator) waitUntilHealthy(ctx context.Context, key client.ObjectKey) error {
	mr, err := a.Resources.Check(ctx, a.reader, key, health.CheckManagedResource)
	switch {
	case apierrors.IsNotFound(err):
		return waitFor(fmt.Errorf("ManagedResource %s was written, but is not to be seen yet", key))
	case err == nil || mr == nil:
		return err
	}
	// If GRM says that something is wrong, that is an error. Else it is still to find out.
	isWrong := func(c gardencorev1beta1.Condition) bool {
		return c.Status == gardencorev1beta1.ConditionFalse && (c.Type == resourcesv1alpha1.ResourcesApplied || c.Type == resourcesv1alpha1.ResourcesHealthy)
	}
	if mr.Status.ObservedGeneration == mr.Generation && slices.ContainsFunc(mr.Status.Conditions, isWrong) {
		return &reconcilerutils.RequeueAfterError{Cause: err, RequeueAfter: retryWait}
	}
	return waitFor(err)
}

func waitFor(cause error) error { return reconciler.Waiting(cause, retryWait) }

// AnnotationForceDeleteTest set to "true" on a Shoot has the Extension of type local-ext-shoot leave two NetworkPolicies
// with a finalizer in the shoot's namespace in the seed, as an extension does that lost its infrastructure. A deletion
// leaves them there, and the namespace with them; only a forced deletion takes them away. Gardener's own end-to-end test
// for the forced deletion of shoots sets it. It means nothing without Options.ForceDeleteTest.
const AnnotationForceDeleteTest = "test-force-delete"

// asksForLeftovers reports whether the shoot of an Extension asks for leftovers.
func (a *actuator) asksForLeftovers(op *attempt) bool {
	shoot := op.Cluster.Shoot()
	return a.kind.hasLeftovers && shoot != nil && shoot.Annotations[AnnotationForceDeleteTest] == "true"
}

// applyLeftovers applies them. Their names are fixed, so that a second reconcile makes no more of them and the way out needs no
// list, for which all NetworkPolicies of the seed would be watched.
func (a *actuator) applyLeftovers(ctx context.Context, op *attempt) error {
	for _, policy := range a.kind.leftovers(op.Object.Namespace) {
		if err := op.Apply(ctx, reconciler.Target{Client: a.client}.WithoutState(), policy); err != nil {
			return err
		}
	}
	return nil
}

// removeLeftovers removes them. That there are none is no error.
func (a *actuator) removeLeftovers(ctx context.Context, op *attempt) error {
	for _, policy := range a.kind.leftovers(op.Object.Namespace) {
		target := reconciler.Target{Client: a.client}.WithoutState()
		if err := op.Release(ctx, target, policy); err != nil {
			return err
		}
		if _, err := op.Delete(ctx, target, []client.Object{policy}); err != nil {
			return err
		}
	}
	return nil
}

// leftovers are objects in the seed which nobody but a forced deletion takes away. They select no pod, so nothing is cut off.
func (k kind) leftovers(namespace string) []*networkingv1.NetworkPolicy {
	var out []*networkingv1.NetworkPolicy
	for i := range 2 {
		out = append(out, &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{
				Name:       fmt.Sprintf("%s-leftover-%d", k.extensionType, i),
				Namespace:  namespace,
				Labels:     nameLabel(k.extensionType),
				Finalizers: []string{extension.FinalizerPrefix + "/" + k.extensionType},
			},
			Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/component": "no-pod-has-this"}}},
		})
	}
	return out
}

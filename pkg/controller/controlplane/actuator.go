// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/controlplane/genericactuator"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

const (
	// WebhooksName is the name of the ManagedResource with the webhooks in the shoot.
	WebhooksName = genericactuator.ShootWebhooksResourceName
	// SeedName is the name of the ManagedResource with what is deployed beside the control plane.
	SeedName = genericactuator.ControlPlaneSeedChartResourceName
	// ShootName is the name of the ManagedResource with what is deployed into the shoot.
	ShootName = genericactuator.ControlPlaneShootChartResourceName
	// FormerStorageClassesName is the name of the ManagedResource with the StorageClass alone, which Gardener's generic actuator
	// makes, and with it the provider-local of Gardener itself. Here the StorageClass is in that with all else in the shoot.
	FormerStorageClassesName = genericactuator.StorageClassesChartResourceName

	cloudController = "cloud-controller"

	// emptiedMax is how many ControlPlanes that are being deleted are remembered.
	emptiedMax = 1024
)

// actuator implements reconciler.Actuator.
type actuator struct {
	Options
	client client.Client
	// reader asks the API server.
	reader client.Reader
	// hibernating has the keys of ControlPlanes whose kube-apiserver is to go.
	hibernating sync.Map
	// nodes remembers whether the seed has one node.
	nodes *utilcache.Expiring
	// emptied has the UIDs of ControlPlanes that are being deleted and whose secrets are gone.
	emptied *lru.Cache
}

type operation = reconciler.Operation[*extensionsv1alpha1.ControlPlane]

var _ reconciler.Actuator[*extensionsv1alpha1.ControlPlane] = &actuator{}

// Reconcile deploys the webhooks, and all else once the shoot has them.
func (a *actuator) Reconcile(ctx context.Context, op *operation) error {
	cp, cluster := op.Object, op.Cluster.Decoded()
	if op.Cluster.Shoot() == nil {
		return reconciler.NoCluster(cp.Namespace, "a shoot")
	}
	if err := checkProviderConfig(cp); err != nil {
		return err
	}
	if err := a.deployWebhooks(ctx, op); err != nil {
		return err
	}

	phase, err := a.hibernation(ctx, cluster)
	if err != nil {
		return err
	}
	// One that nothing has ever been said of has none, unless a process has ended half-way: then creating them tells.
	isNew := op.Type == gardencorev1beta1.LastOperationTypeCreate && cp.Status.LastOperation == nil
	secrets, err := a.generateSecrets(ctx, op.Log, cluster, isNew)
	if err != nil {
		return err
	}
	if err := a.deploy(ctx, op, secrets, phase); errors.Is(err, resources.ErrDeleting) {
		return a.wait(op, err)
	} else if err != nil {
		return err
	}
	if err := a.removeFormerStorageClasses(ctx, op); err != nil {
		return err
	}
	if err := secrets.Cleanup(ctx); err != nil {
		return fmt.Errorf("deleting secrets that are not used any more: %w", err)
	}
	if key := client.ObjectKeyFromObject(cp); phase == hibernating {
		a.hibernating.Store(key, nil)
	} else {
		a.hibernating.Delete(key)
	}
	return nil
}

// Restore does the same as Reconcile: objects in the shoot are still there, and Gardener has put the persisted secrets
// there before.
func (a *actuator) Restore(ctx context.Context, op *operation) error {
	return a.Reconcile(ctx, op)
}

// Migrate removes what is in the seed. The shoot goes on without this seed, so what is in it stays, but for the webhooks:
// these call the seed. The secrets stay, too: Gardener takes those that move on from here only later, and the others go
// with the namespace.
func (a *actuator) Migrate(ctx context.Context, op *operation) error {
	if err := a.removeComponents(ctx, op, leaveShoot); err != nil {
		return err
	}
	if err := a.deleteAccess(ctx, op); err != nil {
		return err
	}
	return a.removeWebhooks(ctx, op, leaveShoot)
}

// Delete removes everything. As long as GRM is deleting objects, it gives the worker back.
func (a *actuator) Delete(ctx context.Context, op *operation) error {
	return a.remove(ctx, op, emptyShoot)
}

// ForceDelete removes everything in the seed and waits for nothing: the shoot may be out of reach, so its objects are left
// where they are. gardenlet takes the finalizer off ManagedResources that nobody serves any more.
func (a *actuator) ForceDelete(ctx context.Context, op *operation) error {
	return a.remove(ctx, op, abandonShoot)
}

func (a *actuator) remove(ctx context.Context, op *operation, ending ending) error {
	if err := a.removeComponents(ctx, op, ending); err != nil {
		return err
	}
	uid := op.Object.UID
	if _, ok := a.emptied.Get(uid); !ok {
		if err := a.deleteAccess(ctx, op); err != nil {
			return err
		}
		if err := a.deleteSecrets(ctx, op.Object.Namespace); err != nil {
			return err
		}
		a.emptied.Add(uid, nil)
	}
	return a.removeWebhooks(ctx, op, ending)
}

// phase is how far a shoot's hibernation is.
type phase string

const (
	// awake is also said of a shoot that is deleted or migrated: Gardener wakes it up for that.
	awake phase = ""
	// hibernating means that it is to be hibernated, but kube-apiserver is still there.
	hibernating phase = "hibernating"
	// hibernated means that there is no kube-apiserver.
	hibernated phase = "hibernated"

	// labelHibernation is the label of the ManagedResource with cloud-controller that has the last phase other than awake, for
	// the next instance.
	labelHibernation = "local.provider.extensions.gardener.cloud/hibernation"
)

// hibernation costs a request only for a shoot that is to be hibernated and has a cloud-controller.
func (a *actuator) hibernation(ctx context.Context, cluster *extensionscontroller.Cluster) (phase, error) {
	if !a.isToHibernate(cluster.Shoot) {
		return awake, nil
	}
	up, err := a.hasKubeAPIServer(ctx, cluster.ObjectMeta.Name)
	if err != nil {
		return awake, err
	}
	if up {
		return hibernating, nil
	}
	return hibernated, nil
}

// isToHibernate reports whether cloud-controller is to be stopped once kube-apiserver is gone.
func (a *actuator) isToHibernate(shoot *gardencorev1beta1.Shoot) bool {
	last := shoot.Status.LastOperation
	return a.DeployCloudController && v1beta1helper.HibernationIsEnabled(shoot) && shoot.DeletionTimestamp == nil &&
		(last == nil || last.Type != gardencorev1beta1.LastOperationTypeMigrate)
}

func (a *actuator) hasKubeAPIServer(ctx context.Context, namespace string) (bool, error) {
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: namespace, Name: v1beta1constants.DeploymentNameKubeAPIServer}
	if err := a.reader.Get(ctx, key, deployment); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading Deployment %s: %w", key, err)
	}
	return ptr.Deref(deployment.Spec.Replicas, 0) > 0, nil
}

// isLeftAlone tells of a ControlPlane that has been reconciled whether its shoot has fallen asleep since, so that
// cloud-controller has to, too: it works until kube-apiserver is gone, which is Gardener's order. It also tells of one that an
// instance has left in between, so that this one goes on.
func (a *actuator) isLeftAlone(ctx context.Context, cp *extensionsv1alpha1.ControlPlane) bool {
	if _, ok := a.hibernating.Load(client.ObjectKeyFromObject(cp)); !ok {
		return a.isLeftHibernating(ctx, cp.Namespace)
	}
	up, err := a.hasKubeAPIServer(ctx, cp.Namespace)
	return err == nil && !up
}

// isLeftHibernating costs no request, as both objects are cached.
func (a *actuator) isLeftHibernating(ctx context.Context, namespace string) bool {
	cluster, err := a.ShootClusters.Get(ctx, namespace)
	if err != nil || cluster.Shoot() == nil || !a.isToHibernate(cluster.Shoot()) {
		return false
	}
	mr, err := a.cached(ctx, namespace, SeedName)
	return err == nil && mr != nil && mr.Labels[labelHibernation] == string(hibernating)
}

// ending is what becomes of the objects in the shoot.
type ending int

const (
	// emptyShoot deletes them and waits.
	emptyShoot ending = iota
	// leaveShoot keeps them, but for the webhooks, and waits until GRM has let go of them.
	leaveShoot
	// abandonShoot keeps them and waits for nothing.
	abandonShoot
)

// removeComponents removes the ManagedResources one after the other, the last deployed first, but for the webhooks. Called
// again, it goes on where it was.
func (a *actuator) removeComponents(ctx context.Context, op *operation, ending ending) error {
	names := []string{ShootName, SeedName}
	if former, err := a.cached(ctx, op.Object.Namespace, FormerStorageClassesName); err != nil {
		return err
	} else if former != nil {
		names = slices.Insert(names, 0, former.Name)
	}
	for _, name := range names {
		key := client.ObjectKey{Namespace: op.Object.Namespace, Name: name}
		remove := a.Resources.Delete
		if ending != emptyShoot && name != SeedName {
			remove = a.Resources.Orphan
		}
		gone, err := remove(ctx, key)
		if err != nil {
			return err
		}
		if !gone && ending != abandonShoot {
			return a.wait(op, stillThere(key))
		}
	}
	return nil
}

func (a *actuator) removeWebhooks(ctx context.Context, op *operation, ending ending) error {
	key := client.ObjectKey{Namespace: op.Object.Namespace, Name: WebhooksName}
	if ending == abandonShoot {
		if _, err := a.Resources.Orphan(ctx, key); err != nil {
			return err
		}
	}
	// Those of an instance that had some before they were switched off go, too.
	remove := a.Resources.Delete
	if a.ShootWebhooks != nil {
		remove = func(ctx context.Context, key client.ObjectKey) (bool, error) {
			return a.ShootWebhooks.Delete(ctx, key.Namespace)
		}
	}
	gone, err := remove(ctx, key)
	if err != nil {
		return fmt.Errorf("removing the webhooks of the shoot: %w", err)
	}
	if !gone && ending != abandonShoot {
		return a.wait(op, stillThere(key))
	}
	return nil
}

func stillThere(key client.ObjectKey) error {
	return fmt.Errorf("ManagedResource %s is still being deleted, gardener-resource-manager's status on it tells why", key)
}

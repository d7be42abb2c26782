// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/controlplane/genericactuator"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

const (
	// WebhooksName is the name of the ManagedResource with the webhooks in the shoot.
	WebhooksName = genericactuator.ShootWebhooksResourceName
	// SeedName is the name of the ManagedResource with what is deployed beside the control plane.
	SeedName = genericactuator.ControlPlaneSeedChartResourceName
	// ShootName is the name of the ManagedResource with what is deployed into the shoot.
	ShootName = genericactuator.ControlPlaneShootChartResourceName
	// StorageClassesName is the name of the ManagedResource with the StorageClass.
	StorageClassesName = genericactuator.StorageClassesChartResourceName

	cloudController = "cloud-controller"

	// retryWait is when a ControlPlane that waits for a ManagedResource is looked at again, should the watch not wake it
	// before.
	retryWait = 30 * time.Second
)

// actuator implements controlplane.Actuator of the extension library.
type actuator struct {
	Options
	client client.Client
	// reader asks the API server.
	reader client.Reader
}

// Reconcile deploys all but the webhooks, which check has deployed. As the generic actuator does, it asks to be called
// again as long as a shoot is being hibernated: cloud-controller works until kube-apiserver is gone, which is Gardener's
// order. Without a cloud-controller there is nothing to come back for.
func (a *actuator) Reconcile(ctx context.Context, log logr.Logger, cp *extensionsv1alpha1.ControlPlane, cluster *extensionscontroller.Cluster) (bool, error) {
	if cluster == nil || cluster.Shoot == nil {
		return false, common.NoCluster(cp.Namespace, "a shoot")
	}

	phase, err := a.hibernation(ctx, cluster)
	if err != nil {
		return false, err
	}
	secrets, err := a.generateSecrets(ctx, log, cluster)
	if err != nil {
		return false, err
	}

	if err := a.deploy(ctx, cp, cluster, secrets, phase); errors.Is(err, resources.ErrDeleting) {
		return false, waitFor(err)
	} else if err != nil {
		return false, err
	}

	if err := secrets.Cleanup(ctx); err != nil {
		return false, fmt.Errorf("deleting secrets that are not used any more: %w", err)
	}
	return phase == hibernating, nil
}

// Restore does the same as Reconcile: objects in the shoot are still there, and Gardener has put the persisted secrets
// there before.
func (a *actuator) Restore(ctx context.Context, log logr.Logger, cp *extensionsv1alpha1.ControlPlane, cluster *extensionscontroller.Cluster) (bool, error) {
	return a.Reconcile(ctx, log, cp, cluster)
}

// Migrate removes what is in the seed. The shoot goes on without this seed, so what is in it stays, but for the webhooks:
// these call the seed. The secrets stay, too: Gardener takes those that move on from here only later, and the others go
// with the namespace.
func (a *actuator) Migrate(ctx context.Context, _ logr.Logger, cp *extensionsv1alpha1.ControlPlane, _ *extensionscontroller.Cluster) error {
	return a.migrate(ctx, cp.Namespace)
}

func (a *actuator) migrate(ctx context.Context, namespace string) error {
	if err := a.removeComponents(ctx, namespace, leaveShoot); err != nil {
		return err
	}
	return a.removeWebhooks(ctx, namespace, leaveShoot)
}

// Delete removes everything. As long as GRM is deleting objects, it gives the worker back.
func (a *actuator) Delete(ctx context.Context, log logr.Logger, cp *extensionsv1alpha1.ControlPlane, _ *extensionscontroller.Cluster) error {
	return a.remove(ctx, log, cp.Namespace, emptyShoot)
}

// ForceDelete removes everything in the seed and waits for nothing: the shoot may be out of reach, so its objects are left
// where they are. gardenlet takes the finalizer off ManagedResources that nobody serves any more.
func (a *actuator) ForceDelete(ctx context.Context, log logr.Logger, cp *extensionsv1alpha1.ControlPlane, _ *extensionscontroller.Cluster) error {
	return a.remove(ctx, log, cp.Namespace, abandonShoot)
}

func (a *actuator) remove(ctx context.Context, log logr.Logger, namespace string, ending ending) error {
	if err := a.removeComponents(ctx, namespace, ending); err != nil {
		return err
	}
	if err := a.deleteSecrets(ctx, log, namespace); err != nil {
		return err
	}
	return a.removeWebhooks(ctx, namespace, ending)
}

// phase is how far a shoot's hibernation is.
type phase int

const (
	// awake is also said of a shoot that is deleted or migrated: Gardener wakes it up for that.
	awake phase = iota
	// hibernating means that it is to be hibernated, but kube-apiserver is still there.
	hibernating
	// hibernated means that there is no kube-apiserver.
	hibernated
)

// hibernation costs a request only for a shoot that is to be hibernated and has a cloud-controller.
func (a *actuator) hibernation(ctx context.Context, cluster *extensionscontroller.Cluster) (phase, error) {
	shoot := cluster.Shoot
	last := shoot.Status.LastOperation
	if !a.DeployCloudController || !v1beta1helper.HibernationIsEnabled(shoot) || shoot.DeletionTimestamp != nil ||
		last != nil && last.Type == gardencorev1beta1.LastOperationTypeMigrate {
		return awake, nil
	}

	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: cluster.ObjectMeta.Name, Name: v1beta1constants.DeploymentNameKubeAPIServer}
	if err := a.reader.Get(ctx, key, deployment); client.IgnoreNotFound(err) != nil {
		return awake, fmt.Errorf("reading Deployment %s: %w", key, err)
	}
	if replicas := deployment.Spec.Replicas; replicas != nil && *replicas > 0 {
		return hibernating, nil
	}
	return hibernated, nil
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
func (a *actuator) removeComponents(ctx context.Context, namespace string, ending ending) error {
	for _, name := range []string{StorageClassesName, ShootName, SeedName} {
		key := client.ObjectKey{Namespace: namespace, Name: name}
		if ending != emptyShoot && name != SeedName {
			if err := a.Resources.SetKeepObjects(ctx, key, true); err != nil {
				return err
			}
		}
		gone, err := a.Resources.Delete(ctx, key)
		if err != nil {
			return err
		}
		if !gone && ending != abandonShoot {
			return stillThere(key)
		}
	}
	return a.deleteShootAccess(ctx, namespace)
}

func (a *actuator) removeWebhooks(ctx context.Context, namespace string, ending ending) error {
	key := client.ObjectKey{Namespace: namespace, Name: WebhooksName}
	if ending == abandonShoot {
		if err := a.Resources.SetKeepObjects(ctx, key, true); err != nil {
			return err
		}
	}
	gone, err := a.deleteWebhooks(ctx, key)
	if err != nil {
		return fmt.Errorf("removing the webhooks of the shoot: %w", err)
	}
	if !gone && ending != abandonShoot {
		return stillThere(key)
	}
	return nil
}

// deleteWebhooks deletes also those of an instance that had some before they were switched off.
func (a *actuator) deleteWebhooks(ctx context.Context, key client.ObjectKey) (bool, error) {
	if a.ShootWebhooks == nil {
		return a.Resources.Delete(ctx, key)
	}
	return a.ShootWebhooks.Delete(ctx, key.Namespace)
}

func stillThere(key client.ObjectKey) error {
	return waitFor(fmt.Errorf("ManagedResource %s is still being deleted, gardener-resource-manager's status on it tells why", key))
}

// shootAccess is the Secret with cloud-controller's token for the shoot, which GRM keeps fresh.
func shootAccess(namespace string) *gardenerutils.AccessSecret {
	return gardenerutils.NewShootAccessSecret(cloudController, namespace)
}

func (a *actuator) deleteShootAccess(ctx context.Context, namespace string) error {
	secret := shootAccess(namespace).Secret
	if err := client.IgnoreNotFound(a.client.Delete(ctx, secret)); err != nil {
		return fmt.Errorf("deleting secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}

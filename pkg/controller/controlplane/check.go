// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/controlplane"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// check finds mistakes and does what may have to wait, before the reconciler of the extension library gets its turn. That
// one writes the status twice in each attempt, which wakes it up again as long as the annotation for migrate or restore
// is there; what is returned here is written once.
//
// A deletion is the library's own: its second write does not wake it, and it knows a forced one.
func (a *actuator) check(ctx context.Context, cp *extensionsv1alpha1.ControlPlane, operation gardencorev1beta1.LastOperationType) error {
	cluster, err := extensioncluster.Get(ctx, a.client, cp.Namespace)
	if err != nil {
		return err
	}
	if cluster == nil {
		return common.NoCluster(cp.Namespace, "a shoot")
	}

	switch {
	case extensionscontroller.IsShootFailed(cluster.Shoot()):
		return nil // The library does nothing for it either.
	case operation == gardencorev1beta1.LastOperationTypeDelete:
		return nil
	case operation == gardencorev1beta1.LastOperationTypeMigrate:
		return a.migrate(ctx, cp.Namespace)
	case cluster.Shoot() == nil:
		return common.NoCluster(cp.Namespace, "a shoot")
	}

	if err := checkProviderConfig(cp); err != nil {
		return err
	}
	// Before the first object, else nobody would delete that.
	if !controllerutil.ContainsFinalizer(cp, controlplane.FinalizerName) {
		if err := controllerutils.AddFinalizers(ctx, a.client, cp, controlplane.FinalizerName); err != nil {
			return fmt.Errorf("adding the finalizer: %w", err)
		}
	}
	return a.deployWebhooks(ctx, cp.Namespace, cluster)
}

// checkProviderConfig refuses a configuration: there is no type for it, and to ignore what a user asks for is no answer.
func checkProviderConfig(cp *extensionsv1alpha1.ControlPlane) error {
	config := cp.Spec.ProviderConfig
	if config == nil {
		return nil
	}
	switch strings.TrimSpace(string(config.Raw)) {
	case "", "{}", "null":
		return nil
	}
	return common.ConfigurationProblem(
		errors.New("spec.providerConfig (of a shoot: spec.provider.controlPlaneConfig) is set, but a control plane of type local has no configuration: remove it"),
		common.RetryMistake,
	)
}

// removeFormerWebhooks removes those from before they were switched off, which would call a server that is not there, and
// waits for nothing. Whether there were any, the cache tells.
func (a *actuator) removeFormerWebhooks(ctx context.Context, namespace string) error {
	key := client.ObjectKey{Namespace: namespace, Name: WebhooksName}
	if err := a.client.Get(ctx, key, &resourcesv1alpha1.ManagedResource{}); err != nil {
		return client.IgnoreNotFound(err)
	}
	_, err := a.Resources.Delete(ctx, key)
	return err
}

// deployWebhooks deploys the webhooks and returns an error until the shoot has them: what is deployed next is to go through
// them. A hibernated shoot has nobody to apply them. A self-hosted one gets none.
func (a *actuator) deployWebhooks(ctx context.Context, namespace string, cluster *extensioncluster.Cluster) error {
	if v1beta1helper.IsShootSelfHosted(cluster.Shoot().Spec.Provider.Workers) {
		return nil
	}
	if a.ShootWebhooks == nil {
		return a.removeFormerWebhooks(ctx, namespace)
	}
	if err := a.ShootWebhooks.Apply(ctx, namespace); errors.Is(err, resources.ErrDeleting) {
		return waitFor(err)
	} else if err != nil {
		return fmt.Errorf("deploying the webhooks of the shoot: %w", err)
	}
	if cluster.IsHibernated() {
		return nil
	}

	// That of the cache is asked first, as the watch tells when it changes. If it is healthy, it may still be the one from
	// before the last write.
	key := client.ObjectKey{Namespace: namespace, Name: WebhooksName}
	for _, reader := range []client.Reader{a.client, a.reader} {
		mr := &resourcesv1alpha1.ManagedResource{}
		err := reader.Get(ctx, key, mr)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading ManagedResource %s: %w", key, err)
		}
		if err == nil {
			err = isHealthy(mr)
		}
		if err != nil {
			return waitFor(fmt.Errorf("waiting for the webhooks of the shoot: %w", err))
		}
	}
	return nil
}

func isHealthy(mr *resourcesv1alpha1.ManagedResource) error {
	if err := health.CheckManagedResource(mr); err != nil {
		return err
	}
	return health.CheckManagedResourceProgressing(mr)
}

func waitFor(cause error) error {
	return &reconcilerutils.RequeueAfterError{Cause: cause, RequeueAfter: retryWait}
}

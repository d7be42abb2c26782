// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

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
	return reconciler.ConfigurationProblem(
		errors.New("spec.providerConfig (of a shoot: spec.provider.controlPlaneConfig) is set, but a control plane of type local has no configuration: remove it"),
		reconciler.RetryMistake,
	)
}

// removeFormerWebhooks removes those from before they were switched off, which would call a server that is not there, and
// waits for nothing.
func (a *actuator) removeFormerWebhooks(ctx context.Context, namespace string) error {
	mr, err := a.cached(ctx, namespace, WebhooksName)
	if mr == nil {
		return err
	}
	_, err = a.Resources.Delete(ctx, client.ObjectKeyFromObject(mr))
	return err
}

// deployWebhooks deploys the webhooks and returns an error until the shoot has them: what is deployed next is to go through
// them. A hibernated shoot has nobody to apply them. A self-hosted one gets none.
func (a *actuator) deployWebhooks(ctx context.Context, op *operation) error {
	namespace := op.Object.Namespace
	if v1beta1helper.IsShootSelfHosted(op.Cluster.Shoot().Spec.Provider.Workers) {
		return nil
	}
	if a.ShootWebhooks == nil {
		return a.removeFormerWebhooks(ctx, namespace)
	}
	if err := a.ShootWebhooks.Apply(ctx, namespace); errors.Is(err, resources.ErrDeleting) {
		return a.wait(op, err)
	} else if err != nil {
		return fmt.Errorf("deploying the webhooks of the shoot: %w", err)
	}
	if op.Cluster.IsHibernated() {
		return nil
	}

	mr, err := a.Resources.Check(ctx, a.reader, client.ObjectKey{Namespace: namespace, Name: WebhooksName}, isHealthy)
	if err == nil || mr == nil && !apierrors.IsNotFound(err) {
		return err
	}
	return a.wait(op, fmt.Errorf("waiting for the webhooks of the shoot: %w", err))
}

func isHealthy(mr *resourcesv1alpha1.ManagedResource) error {
	if err := health.CheckManagedResource(mr); err != nil {
		return err
	}
	return health.CheckManagedResourceProgressing(mr)
}

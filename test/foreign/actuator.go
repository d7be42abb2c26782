// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	shootwebhook "github.com/gardener/gardener/extensions/pkg/webhook/shoot"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	extensionsv1alpha1helper "github.com/gardener/gardener/pkg/api/extensions/v1alpha1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/utils/managedresources"
)

const (
	// webhookManagedResource holds the configuration of the webhook in a shoot.
	webhookManagedResource = "foreign-shoot-webhooks"
	patience               = 2 * time.Minute
)

// actuator keeps a ConfigMap with the greeting that an Extension asks for: kube-system/greeting in a shoot, and beside the Extension for the
// other classes.
type actuator struct {
	client client.Client
	// webhooks are the configurations for shoots, nil without.
	webhooks *atomic.Value
}

func isShoots(ex *extensionsv1alpha1.Extension) bool {
	return extensionsv1alpha1helper.GetExtensionClassOrDefault(ex.Spec.Class) == extensionsv1alpha1.ExtensionClassShoot
}

func managedResourceName(ex *extensionsv1alpha1.Extension) string { return "foreign-" + ex.Name }

func (a *actuator) Reconcile(ctx context.Context, _ logr.Logger, ex *extensionsv1alpha1.Extension) error {
	wanted, err := readGreeting(ex.Spec.ProviderConfig)
	if err != nil {
		return v1beta1helper.NewErrorWithCodes(fmt.Errorf("spec.providerConfig: %w", err), gardencorev1beta1.ErrorConfigurationProblem)
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ex.Namespace, Name: "greeting-" + ex.Name}, Data: map[string]string{"text": wanted.Text}}
	if !isShoots(ex) {
		data, err := managedresources.NewRegistry(kubernetes.SeedScheme, kubernetes.SeedCodec, kubernetes.SeedSerializer).AddAllAndSerialize(config)
		if err != nil {
			return err
		}
		return managedresources.CreateForSeed(ctx, a.client, ex.Namespace, managedResourceName(ex), false, data)
	}
	config.Namespace, config.Name = metav1.NamespaceSystem, "greeting"
	data, err := managedresources.NewRegistry(kubernetes.ShootScheme, kubernetes.ShootCodec, kubernetes.ShootSerializer).AddAllAndSerialize(config)
	if err != nil {
		return err
	}
	if err := managedresources.CreateForShoot(ctx, a.client, ex.Namespace, managedResourceName(ex), name, false, data); err != nil {
		return err
	}
	return a.reconcileWebhooks(ctx, ex.Namespace)
}

func (a *actuator) reconcileWebhooks(ctx context.Context, namespace string) error {
	if a.webhooks == nil {
		return nil
	}
	configs, stored := a.webhooks.Load().(*extensionswebhook.Configs)
	if !stored {
		return errors.New("the webhook has no certificate yet")
	}
	shoot, err := extensionscontroller.GetCluster(ctx, a.client, namespace)
	if err != nil {
		return err
	}
	return shootwebhook.ReconcileWebhookConfig(ctx, a.client, namespace, webhookManagedResource, *configs, shoot, true)
}

func (a *actuator) Delete(ctx context.Context, _ logr.Logger, ex *extensionsv1alpha1.Extension) error {
	if err := a.delete(ctx, ex); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if isShoots(ex) {
		if err := managedresources.WaitUntilDeleted(ctx, a.client, ex.Namespace, webhookManagedResource); err != nil {
			return err
		}
	}
	return managedresources.WaitUntilDeleted(ctx, a.client, ex.Namespace, managedResourceName(ex))
}

func (a *actuator) delete(ctx context.Context, ex *extensionsv1alpha1.Extension) error {
	if !isShoots(ex) {
		return managedresources.DeleteForSeed(ctx, a.client, ex.Namespace, managedResourceName(ex))
	}
	return errors.Join(
		managedresources.Delete(ctx, a.client, ex.Namespace, webhookManagedResource, false),
		managedresources.DeleteForShoot(ctx, a.client, ex.Namespace, managedResourceName(ex)),
	)
}

func (a *actuator) ForceDelete(ctx context.Context, _ logr.Logger, ex *extensionsv1alpha1.Extension) error {
	return a.delete(ctx, ex)
}

func (a *actuator) Restore(ctx context.Context, log logr.Logger, ex *extensionsv1alpha1.Extension) error {
	return a.Reconcile(ctx, log, ex)
}

func (a *actuator) Migrate(ctx context.Context, log logr.Logger, ex *extensionsv1alpha1.Extension) error {
	for _, name := range []string{managedResourceName(ex), webhookManagedResource} {
		if err := managedresources.SetKeepObjects(ctx, a.client, ex.Namespace, name, true); err != nil {
			return err
		}
	}
	return a.Delete(ctx, log, ex)
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package machinecontrollermanager gives machine-controller-manager the permissions that the machine driver beside it
// needs in the seed. Gardener knows drivers that talk to a cloud; ours makes Pods and Services. Both containers share one
// ServiceAccount, so its Role is what has to grow.
package machinecontrollermanager

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

const (
	// Name is the name of the webhook, the path below which it is served, and the name of the controller.
	Name = "machinecontrollermanager"
	// RoleName is the name of machine-controller-manager's Role in the namespace of a shoot.
	RoleName = "machine-controller-manager"

	timeoutSeconds = 5
)

// New returns the webhook. It gets the Roles in the namespaces of this provider's shoots. While it cannot be reached, Roles
// are written without the driver's permissions; the controller of AddToManager adds them then.
func New(mgr manager.Manager) (*extensionswebhook.Webhook, error) {
	types := []extensionswebhook.Type{{Obj: &rbacv1.Role{}}}
	handler, err := extensionswebhook.NewBuilder(mgr, mgr.GetLogger().WithName("webhook").WithName(Name)).WithMutator(mutator{}, types...).Build()
	if err != nil {
		return nil, err
	}
	return &extensionswebhook.Webhook{
		Action:            extensionswebhook.ActionMutating,
		Name:              Name,
		Path:              Name,
		Target:            extensionswebhook.TargetSeed,
		Types:             types,
		Webhook:           &admission.Webhook{Handler: handler, RecoverPanic: new(true)},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1beta1constants.LabelShootProvider: localv1alpha1.Type}},
		FailurePolicy:     new(admissionregistrationv1.Ignore),
		TimeoutSeconds:    new(int32(timeoutSeconds)),
	}, nil
}

type mutator struct{}

// Mutate implements extensionswebhook.Mutator.
func (mutator) Mutate(_ context.Context, obj, _ client.Object) error {
	if obj.GetDeletionTimestamp() != nil {
		return nil
	}
	if role, ok := obj.(*rbacv1.Role); ok && role.Name == RoleName {
		role.Rules = withRules(role.Rules, driverRules())
	}
	return nil
}

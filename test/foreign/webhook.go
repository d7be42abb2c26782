// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
)

// newWebhook greets in ConfigMaps of a shoot with the label greeting=please.
func newWebhook(mgr ctrl.Manager) (*extensionswebhook.Webhook, error) {
	webhook, err := extensionswebhook.New(mgr, extensionswebhook.Args{
		Name: kind, Path: kind, Target: extensionswebhook.TargetShoot,
		Mutators:          map[extensionswebhook.Mutator][]extensionswebhook.Type{greeter{}: {{Obj: &corev1.ConfigMap{}}}},
		ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{kind: "please"}},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{metav1.NamespaceSystem}}}},
	})
	if err == nil {
		webhook.FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
	}
	return webhook, err
}

type greeter struct{}

// Mutate implements extensionswebhook.Mutator.
func (greeter) Mutate(_ context.Context, object, _ client.Object) error {
	config, is := object.(*corev1.ConfigMap)
	if !is {
		return fmt.Errorf("expected a ConfigMap, got %T", object)
	}
	if config.Data == nil {
		config.Data = map[string]string{}
	}
	config.Data[kind] = "hello"
	return nil
}

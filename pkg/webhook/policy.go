// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
)

// CheckFailurePolicies returns an error if a webhook could keep a seed from starting without this extension: one with
// failure policy Fail that matches objects in the namespaces kube-system or garden, or objects without a namespace.
func CheckFailurePolicies(c client.Client, webhooks []*extensionswebhook.Webhook) error {
	for _, webhook := range webhooks {
		if webhook.Target != extensionswebhook.TargetSeed || ptr.Deref(webhook.FailurePolicy, admissionregistrationv1.Fail) != admissionregistrationv1.Fail {
			continue
		}
		if err := checkFail(c, webhook); err != nil {
			return fmt.Errorf("webhook %s with failure policy Fail: %w", webhook.Name, err)
		}
	}
	return nil
}

func checkFail(c client.Client, webhook *extensionswebhook.Webhook) error {
	if webhook.NamespaceSelector == nil {
		return errors.New("it needs a namespace selector")
	}
	selector, err := metav1.LabelSelectorAsSelector(webhook.NamespaceSelector)
	if err != nil {
		return fmt.Errorf("namespace selector: %w", err)
	}
	for _, namespace := range []string{metav1.NamespaceSystem, v1beta1constants.GardenNamespace} {
		if selector.Matches(labels.Set{corev1.LabelMetadataName: namespace}) {
			return fmt.Errorf("the namespace selector matches namespace %s", namespace)
		}
	}
	for _, t := range webhook.Types {
		if namespaced, err := c.IsObjectNamespaced(t.Obj); err != nil {
			return fmt.Errorf("looking up %T: %w", t.Obj, err)
		} else if !namespaced {
			return fmt.Errorf("no namespace selector applies to %T", t.Obj)
		}
	}
	return nil
}

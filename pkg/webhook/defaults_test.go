// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
)

func TestRegistrationByDefault(t *testing.T) {
	e := newEnv(t)
	opts := e.options
	opts.Webhooks = []*extensionswebhook.Webhook{seedWebhook(), shootWebhook()}

	seedConfigs, shootConfigs, err := NewConfigs(e.client, opts)
	e.Expect(err).NotTo(HaveOccurred())
	seed, shoot := seedConfigs.MutatingWebhookConfig, shootConfigs.MutatingWebhookConfig

	e.Expect(seed.Name).To(Equal(name))
	e.Expect(seed.Labels).To(HaveKeyWithValue("remediation.webhook.shoot.gardener.cloud/exclude", "true"))
	e.Expect(seed.Webhooks).To(ConsistOf(admissionregistrationv1.MutatingWebhook{
		Name:                    "pods." + name + ".extensions.gardener.cloud",
		AdmissionReviewVersions: []string{"v1", "v1beta1"},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
			Namespace: namespace, Name: name, Port: new(int32(443)), Path: new("/pods"),
		}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: new(admissionregistrationv1.AllScopes)},
		}},
		FailurePolicy:      new(admissionregistrationv1.Ignore),
		MatchPolicy:        new(admissionregistrationv1.Equivalent),
		ReinvocationPolicy: new(admissionregistrationv1.IfNeededReinvocationPolicy),
		SideEffects:        new(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:     new(int32(5)),
		NamespaceSelector:  &metav1.LabelSelector{},
		ObjectSelector:     &metav1.LabelSelector{},
	}))

	e.Expect(shoot.Name).To(Equal(name + "-shoot"))
	e.Expect(shoot.Webhooks).To(HaveLen(1))
	e.Expect(shoot.Webhooks[0].Rules[0].Resources).To(ConsistOf("nodes/status"))
	e.Expect(shoot.Webhooks[0].ClientConfig.URL).To(HaveValue(Equal("https://" + name + "." + namespace + ":443/shoot-nodes")))
}

func TestRegistrationByURL(t *testing.T) {
	e := newEnv(t)
	opts := e.options
	opts.URL = "127.0.0.1:1234"
	opts.Webhooks = []*extensionswebhook.Webhook{seedWebhook(failing, func(w *extensionswebhook.Webhook) { w.TimeoutSeconds = new(int32(9)) }), shootWebhook()}

	seedConfigs, shootConfigs, err := NewConfigs(e.client, opts)
	e.Expect(err).NotTo(HaveOccurred())
	seed, shoot := seedConfigs.MutatingWebhookConfig, shootConfigs.MutatingWebhookConfig
	e.Expect(seed.Webhooks[0].ClientConfig.URL).To(HaveValue(Equal("https://127.0.0.1:1234/pods")))
	e.Expect(seed.Webhooks[0].FailurePolicy).To(HaveValue(Equal(admissionregistrationv1.Fail)), "what a webhook says counts")
	e.Expect(seed.Webhooks[0].TimeoutSeconds).To(HaveValue(BeEquivalentTo(9)))
	e.Expect(shoot.Webhooks[0].ClientConfig.URL).To(HaveValue(Equal("https://127.0.0.1:1234/shoot-nodes")))
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

func TestValidate(t *testing.T) {
	selecting := func(selector *metav1.LabelSelector) func(*extensionswebhook.Webhook) {
		return func(w *extensionswebhook.Webhook) { w.NamespaceSelector = selector }
	}
	shoots := selecting(&metav1.LabelSelector{MatchLabels: map[string]string{"gardener.cloud/role": "shoot"}})

	for name, test := range map[string]struct {
		webhook *extensionswebhook.Webhook
		mutate  func(*Options)
		wrong   string
	}{
		"a webhook for the seed":                                {webhook: seedWebhook()},
		"a webhook for shoots":                                  {webhook: shootWebhook()},
		"Fail in shoots":                                        {webhook: shootWebhook(failing)},
		"Fail in the namespaces of shoots":                      {webhook: seedWebhook(failing, shoots)},
		"a path of several elements":                            {webhook: seedWebhook(func(w *extensionswebhook.Webhook) { w.Path = "/webhooks/pods/" })},
		"Fail without a selector":                               {webhook: seedWebhook(failing), wrong: "needs a namespace selector"},
		"Fail with a selector of all":                           {webhook: seedWebhook(failing, selecting(&metav1.LabelSelector{})), wrong: "matches namespace kube-system"},
		"Fail with a selector of garden":                        {webhook: seedWebhook(failing, selecting(&metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "garden"}})), wrong: "matches namespace garden"},
		"Fail with a selector of all but those with some label": {webhook: seedWebhook(failing, selecting(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: metav1.LabelSelectorOpDoesNotExist}}})), wrong: "matches namespace kube-system"},
		"Fail with a selector that is none":                     {webhook: seedWebhook(failing, selecting(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "?"}}})), wrong: "namespace selector"},
		"Fail for what has no namespace":                        {webhook: seedWebhook(failing, shoots, ofTypes(&corev1.Pod{}, &rbacv1.ClusterRole{})), wrong: "Fail for ClusterRole"},
		"no name":                                               {webhook: seedWebhook(func(w *extensionswebhook.Webhook) { w.Name = "" }), wrong: "bad name"},
		"a path with a wildcard":                                {webhook: seedWebhook(func(w *extensionswebhook.Webhook) { w.Path = "/a/{b}" }), wrong: `path "a/{b}"`},
		"no handler":                                            {webhook: seedWebhook(func(w *extensionswebhook.Webhook) { w.Webhook = nil }), wrong: "no handler"},
		"no types":                                              {webhook: seedWebhook(ofTypes()), wrong: "no types"},
		"a validating webhook":                                  {webhook: seedWebhook(func(w *extensionswebhook.Webhook) { w.Action = extensionswebhook.ActionValidating }), wrong: "not served"},
		"a timeout of no time":                                  {webhook: seedWebhook(func(w *extensionswebhook.Webhook) { w.TimeoutSeconds = new(int32) }), wrong: "timeout of 0 seconds"},
		"a target that is none":                                 {webhook: seedWebhook(func(w *extensionswebhook.Webhook) { w.Target = "garden" }), wrong: `target "garden"`},
		"a namespace that is missing":                           {webhook: seedWebhook(), mutate: func(o *Options) { o.Namespace = "" }, wrong: "namespace of the instance is missing"},
		"a name that no Service can have":                       {webhook: seedWebhook(), mutate: func(o *Options) { o.Name = "a.b" }, wrong: "cannot be that of a Service"},
		"a name that is too long":                               {webhook: seedWebhook(), mutate: func(o *Options) { o.Name = strings.Repeat("a", 60) }, wrong: "too long"},
		"a mode that is none":                                   {webhook: seedWebhook(), mutate: func(o *Options) { o.Mode = "carrier-pigeon" }, wrong: `mode "carrier-pigeon"`},
		"a URL":                                                 {webhook: seedWebhook(), mutate: func(o *Options) { o.Mode, o.URL, o.ServicePort = "url", "127.0.0.1:1234", 0 }},
		"a URL without a port":                                  {webhook: seedWebhook(), mutate: func(o *Options) { o.Mode, o.URL = "url", "127.0.0.1" }, wrong: "not HOST:PORT"},
		"a Service without a port":                              {webhook: seedWebhook(), mutate: func(o *Options) { o.ServicePort = 0 }, wrong: "service port 0"},
		"two webhooks at one path": {webhook: seedWebhook(), mutate: func(o *Options) {
			o.Webhooks = append(o.Webhooks, seedWebhook(func(w *extensionswebhook.Webhook) { w.Name, w.Path = "others", "pods" }))
		}, wrong: "seed path pods"},
		"two webhooks of one name": {webhook: seedWebhook(), mutate: func(o *Options) {
			o.Webhooks = append(o.Webhooks, seedWebhook(func(w *extensionswebhook.Webhook) { w.Path = "others" }))
		}, wrong: "seed name pods"},
		"two targets at one path": {webhook: seedWebhook(), mutate: func(o *Options) {
			o.Webhooks = append(o.Webhooks, shootWebhook(func(w *extensionswebhook.Webhook) { w.Path = "pods" }))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			opts := e.options
			opts.Webhooks = []*extensionswebhook.Webhook{test.webhook}
			if test.mutate != nil {
				test.mutate(&opts)
			}
			err := opts.complete().validate(e.client)
			if test.wrong == "" {
				e.Expect(err).NotTo(HaveOccurred())
			} else {
				e.Expect(err).To(MatchError(ContainSubstring(test.wrong)))
			}
		})
	}
}

func TestWebhooksForShootsNeedClassShoot(t *testing.T) {
	e := newEnv(t)
	seedOnly, err := class.New([]extensionsv1alpha1.ExtensionClass{"seed"}, "seed", "shoot")
	e.Expect(err).NotTo(HaveOccurred())
	opts := e.options
	opts.Classes, opts.Webhooks = seedOnly, []*extensionswebhook.Webhook{seedWebhook(), shootWebhook()}

	seed, shoot, err := buildConfigs(e.client, opts.complete())
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(seed.Webhooks).To(HaveLen(1))
	e.Expect(shoot).To(BeNil())
}

func TestRegistrationByDefault(t *testing.T) {
	e := newEnv(t)
	opts := e.options
	given := []*extensionswebhook.Webhook{seedWebhook(), shootWebhook()}
	opts.Webhooks = given

	seed, shoot, err := buildConfigs(e.client, opts.complete())
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(given[0].FailurePolicy).To(BeNil(), "what the caller has is left alone")

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
	e.Expect(withBundle(shoot, []byte("CA"), "/"+shootNamespace).Webhooks[0].ClientConfig).To(Equal(admissionregistrationv1.WebhookClientConfig{
		URL: new("https://" + name + "." + namespace + ":443/shoot-nodes/" + shootNamespace), CABundle: []byte("CA"),
	}))
}

func TestRegistrationByURL(t *testing.T) {
	e := newEnv(t)
	opts := e.options
	opts.Mode, opts.URL = "url", "127.0.0.1:1234"
	opts.Webhooks = []*extensionswebhook.Webhook{seedWebhook(failing, func(w *extensionswebhook.Webhook) { w.TimeoutSeconds = new(int32(9)) }), shootWebhook()}

	seed, shoot, err := buildConfigs(e.client, opts.complete())
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(seed.Webhooks[0].ClientConfig.URL).To(HaveValue(Equal("https://127.0.0.1:1234/pods")))
	e.Expect(seed.Webhooks[0].FailurePolicy).To(HaveValue(Equal(admissionregistrationv1.Fail)), "what a webhook says counts")
	e.Expect(seed.Webhooks[0].TimeoutSeconds).To(HaveValue(BeEquivalentTo(9)))
	e.Expect(shoot.Webhooks[0].ClientConfig.URL).To(HaveValue(Equal("https://127.0.0.1:1234/shoot-nodes")))
}

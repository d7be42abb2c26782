// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/pkg/client/kubernetes"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook"
)

// fakeManager has a client and nothing else.
type fakeManager struct {
	manager.Manager
	client client.Client
}

func (m fakeManager) GetClient() client.Client    { return m.client }
func (m fakeManager) GetAPIReader() client.Reader { return m.client }
func (m fakeManager) GetScheme() *runtime.Scheme  { return m.client.Scheme() }

func newFake(t testing.TB, funcs interceptor.Funcs) client.Client {
	t.Helper()
	return fakeclient.NewClientBuilder().WithScheme(kubernetes.GardenScheme).WithRESTMapper(NewRESTMapper()).WithInterceptorFuncs(funcs).
		WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "owner", UID: "uid"}}).Build()
}

func TestEachWebhookIsCalledForOneKindOfOurTypeAndFailsClosed(t *testing.T) {
	g := NewWithT(t)
	c := newFake(t, interceptor.Funcs{})
	opts, err := complete(fakeManager{client: c}, webhook.Options{Namespace: "garden", ServicePort: 443})
	g.Expect(err).NotTo(HaveOccurred())
	configs, shoots, err := webhook.NewConfigs(c, opts)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(shoots.HasWebhookConfig()).To(BeFalse())

	var rules []string
	for _, webhook := range configs.ValidatingWebhookConfig.Webhooks {
		g.Expect(*webhook.FailurePolicy).To(Equal(admissionregistrationv1.Fail))
		g.Expect(*webhook.MatchPolicy).To(Equal(admissionregistrationv1.Equivalent))
		g.Expect(webhook.ObjectSelector.MatchLabels).To(HaveLen(1))
		for _, rule := range webhook.Rules {
			g.Expect(rule.Operations).To(ConsistOf(admissionregistrationv1.Create, admissionregistrationv1.Update))
			rules = append(rules, rule.APIGroups[0]+"/"+rule.APIVersions[0]+"/"+rule.Resources[0])
		}
		g.Expect(*webhook.ClientConfig.URL).To(Equal("https://gardener-extension-admission-local.garden.svc:443/validate/" + webhook.Rules[0].Resources[0]))
	}
	g.Expect(rules).To(HaveExactElements("core.gardener.cloud/v1beta1/cloudprofiles", "core.gardener.cloud/v1beta1/namespacedcloudprofiles",
		"core.gardener.cloud/v1beta1/shoots", "core.gardener.cloud/v1beta1/shoots/binding", "core.gardener.cloud/v1beta1/seeds",
		"security.gardener.cloud/v1alpha1/workloadidentities", "/v1/secrets", "core.gardener.cloud/v1beta1/internalsecrets"))

	g.Expect(configs.MutatingWebhookConfig.Webhooks).To(HaveLen(1))
	mutating := configs.MutatingWebhookConfig.Webhooks[0]
	g.Expect(*mutating.FailurePolicy).To(Equal(admissionregistrationv1.Fail))
	g.Expect(mutating.Rules[0].Resources).To(HaveExactElements("namespacedcloudprofiles/status"))
	g.Expect(configs.MutatingWebhookConfig.Name).To(Equal(Name))
	g.Expect(configs.ValidatingWebhookConfig.Name).To(Equal(Name))
}

func TestAURLTakesThePlaceOfTheService(t *testing.T) {
	g := NewWithT(t)
	opts, err := complete(fakeManager{client: newFake(t, interceptor.Funcs{})}, webhook.Options{URL: "[::1]:1"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(opts.URL).To(Equal("[::1]:1"))
}

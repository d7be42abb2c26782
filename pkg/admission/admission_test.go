// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/upkeep"
)

var opts = Options{Namespace: "garden", ServicePort: 443, CertificateNamespace: "certificates", OwnerNamespace: "owner"}

// fakeManager has a client and nothing else.
type fakeManager struct {
	manager.Manager
	client client.Client
}

func (m fakeManager) GetClient() client.Client   { return m.client }
func (m fakeManager) GetScheme() *runtime.Scheme { return m.client.Scheme() }

func newFake(t testing.TB, funcs interceptor.Funcs) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(AddToScheme(scheme)).To(Succeed())
	return fakeclient.NewClientBuilder().WithScheme(scheme).WithRESTMapper(NewRESTMapper()).WithInterceptorFuncs(funcs).
		WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "owner", UID: "uid"}}).Build()
}

// leader returns a registrar whose clusters are one.
func leader(t *testing.T, c client.Client) *registrar {
	t.Helper()
	g := NewWithT(t)
	webhooks, err := newWebhooks(fakeManager{client: c}, c)
	g.Expect(err).NotTo(HaveOccurred())
	configs, err := newConfigs(c, webhooks, opts)
	g.Expect(err).NotTo(HaveOccurred())
	clock := testclock.NewFakeClock(time.Now())
	authority, err := certificate.New(certificate.Options{
		Client: c, Clock: clock, Log: logr.Discard(), Identity: identity, Namespace: opts.CertificateNamespace, DNSNames: opts.serviceNames(),
	})
	g.Expect(err).NotTo(HaveOccurred())
	loop := upkeep.NewLoop()
	loop.Limiter = flowcontrol.NewFakeAlwaysRateLimiter()
	return &registrar{
		log: logr.Discard(), clock: clock, garden: c, authority: authority, configs: configs, ownerNamespace: opts.OwnerNamespace,
		loop: loop,
	}
}

func TestEachWebhookIsCalledForOneKindOfOurTypeAndFailsClosed(t *testing.T) {
	g := NewWithT(t)
	c := newFake(t, interceptor.Funcs{})
	configs := leader(t, c).configs

	var rules []string
	for _, webhook := range configs.ValidatingWebhookConfig.Webhooks {
		g.Expect(*webhook.FailurePolicy).To(Equal(admissionregistrationv1.Fail))
		g.Expect(*webhook.MatchPolicy).To(Equal(admissionregistrationv1.Equivalent))
		g.Expect(webhook.ObjectSelector.MatchLabels).To(HaveLen(1))
		g.Expect(webhook.Rules).To(HaveLen(1))
		rule := webhook.Rules[0]
		g.Expect(rule.Operations).To(ConsistOf(admissionregistrationv1.Create, admissionregistrationv1.Update))
		rules = append(rules, rule.APIGroups[0]+"/"+rule.APIVersions[0]+"/"+rule.Resources[0])
		g.Expect(*webhook.ClientConfig.URL).To(Equal("https://gardener-extension-admission-local.garden.svc:443/validate/" + rule.Resources[0]))
	}
	g.Expect(rules).To(HaveExactElements("core.gardener.cloud/v1beta1/cloudprofiles", "core.gardener.cloud/v1beta1/namespacedcloudprofiles",
		"core.gardener.cloud/v1beta1/shoots", "core.gardener.cloud/v1beta1/seeds", "security.gardener.cloud/v1alpha1/credentialsbindings",
		"core.gardener.cloud/v1beta1/secretbindings", "security.gardener.cloud/v1alpha1/workloadidentities", "/v1/secrets", "core.gardener.cloud/v1beta1/internalsecrets"))

	g.Expect(configs.MutatingWebhookConfig.Webhooks).To(HaveLen(1))
	mutating := configs.MutatingWebhookConfig.Webhooks[0]
	g.Expect(*mutating.FailurePolicy).To(Equal(admissionregistrationv1.Fail))
	g.Expect(mutating.Rules[0].Resources).To(HaveExactElements("namespacedcloudprofiles/status"))
	g.Expect(configs.MutatingWebhookConfig.Name).To(Equal(Name))
	g.Expect(configs.ValidatingWebhookConfig.Name).To(Equal(Name))
}

func registered(t *testing.T, c client.Client) (*admissionregistrationv1.ValidatingWebhookConfiguration, *admissionregistrationv1.MutatingWebhookConfiguration) {
	t.Helper()
	validating, mutating := &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{}
	NewWithT(t).Expect(c.Get(t.Context(), client.ObjectKey{Name: Name}, validating)).To(Succeed())
	NewWithT(t).Expect(c.Get(t.Context(), client.ObjectKey{Name: Name}, mutating)).To(Succeed())
	return validating, mutating
}

func TestTheLeaderRegistersOnceAndPutsRight(t *testing.T) {
	g := NewWithT(t)
	c := newFake(t, interceptor.Funcs{})
	r := leader(t, c)
	_, err := r.authority.Rotate(t.Context(), r.publish)
	g.Expect(err).NotTo(HaveOccurred())
	validating, mutating := registered(t, c)
	for _, obj := range []client.Object{validating, mutating} {
		g.Expect(obj.GetOwnerReferences()).To(ConsistOf(metav1.OwnerReference{
			APIVersion: "v1", Kind: "Namespace", Name: "owner", UID: "uid", Controller: new(true), BlockOwnerDeletion: new(false),
		}))
		g.Expect(obj.GetLabels()).To(HaveKey("remediation.webhook.shoot.gardener.cloud/exclude"))
	}
	g.Expect(validating.Webhooks).To(HaveEach(HaveField("ClientConfig.CABundle", Not(BeEmpty()))))

	_, err = r.authority.Rotate(t.Context(), r.publish)
	g.Expect(err).NotTo(HaveOccurred())
	again, _ := registered(t, c)
	g.Expect(again.ResourceVersion).To(Equal(validating.ResourceVersion), "nothing is written if nothing has changed")

	again.Webhooks, again.OwnerReferences = again.Webhooks[:1], nil
	g.Expect(c.Update(t.Context(), again)).To(Succeed())
	g.Expect(c.Delete(t.Context(), mutating)).To(Succeed())
	_, err = r.authority.Rotate(t.Context(), r.publish)
	g.Expect(err).NotTo(HaveOccurred())
	again, mutating = registered(t, c)
	g.Expect(again.Webhooks).To(Equal(validating.Webhooks))
	g.Expect(again.OwnerReferences).To(Equal(validating.OwnerReferences))
	g.Expect(mutating.Webhooks).To(HaveLen(1))
}

func TestTheLeaderTriesAgainAndStops(t *testing.T) {
	g := NewWithT(t)
	fail := make(chan struct{}, 1)
	fail <- struct{}{}
	c := newFake(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		if _, ok := obj.(*admissionregistrationv1.MutatingWebhookConfiguration); ok {
			select {
			case <-fail:
				return errors.New("a moment, please")
			default:
			}
		}
		return c.Create(ctx, obj, opts...)
	}})
	r := leader(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- r.Start(ctx) }()
	g.Eventually(func() error {
		r.loop.Wake()
		return c.Get(t.Context(), client.ObjectKey{Name: Name}, &admissionregistrationv1.MutatingWebhookConfiguration{})
	}, "30s").Should(Succeed())
	cancel()
	g.Eventually(stopped, "10s").Should(Receive(BeNil()))
}

func TestWithoutTheOwnerNothingIsRegistered(t *testing.T) {
	g := NewWithT(t)
	c := newFake(t, interceptor.Funcs{})
	r := leader(t, c)
	r.ownerNamespace = "missing"
	g.Expect(r.publish(t.Context(), []byte("x"))).To(MatchError(ContainSubstring("virtual garden: reading the namespace missing")))
	g.Expect(client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKey{Name: Name}, &admissionregistrationv1.ValidatingWebhookConfiguration{}))).To(Succeed())
}

func TestByWhichNamesAPIServersCall(t *testing.T) {
	for name, test := range map[string]struct{ url, names, addresses, wrong string }{
		"the Service":  {names: "gardener-extension-admission-local.garden.svc"},
		"a host":       {url: "host.example:1", names: "host.example"},
		"an address":   {url: "[::1]:1", addresses: "::1"},
		"no host:port": {url: "x", wrong: "the URL of the webhooks is not HOST:PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := opts
			o.URL = test.url
			names, addresses, err := o.serverNames()
			if test.wrong != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.wrong)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			if test.names != "" {
				g.Expect(names).To(ContainElement(test.names))
			}
			if test.addresses != "" {
				g.Expect(addresses[0].String()).To(Equal(test.addresses))
			}
		})
	}
}

func TestOptionsThatAreIncompleteAreRefused(t *testing.T) {
	for _, o := range []Options{
		{CertificateNamespace: "a", OwnerNamespace: "b"}, {Namespace: "a", OwnerNamespace: "b"}, {Namespace: "a", CertificateNamespace: "b"},
	} {
		o.Runtime = &rest.Config{}
		NewWithT(t).Expect(AddToManager(fakeManager{}, nil, o)).To(MatchError(MatchRegexp("the namespace .* is missing")))
	}
}

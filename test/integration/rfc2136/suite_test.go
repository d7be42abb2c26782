// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package rfc2136_test runs the controller for DNSRecords, with no more permissions than it says it needs, against a real
// kube-apiserver and a real BIND 9 that takes dynamic updates. Two instances, each with namespaces of its own, stand for
// two seeds that share that server; one of them has a real CoreDNS too.
package rfc2136_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	logzap "sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/logger"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/dnsrecord"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

const (
	gardenNamespace  = "garden"
	coreDNSNamespace = "coredns"
	// The shoot of the first seed, and the same one after a move to the second.
	sourceNamespace      = "shoot--local--source"
	destinationNamespace = "shoot--local--destination"
	// corefile serves what the instance writes as it is.
	corefile = updateZone + ":9053 {\n errors\n custom literal\n}\n"
)

var (
	env                 *environment.Environment
	c                   client.Client
	scheme              *runtime.Scheme
	named               *bind
	coreDNS             *environment.CoreDNS
	source, destination *instance
)

func TestRFC2136(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "DNSRecords on a real BIND 9")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText, logzap.WriteTo(GinkgoWriter)))
	By("starting BIND")
	named = newBind()
	named.start(ctx)
	DeferCleanup(func() { named.stop() })

	By("starting the API server")
	scheme = suite.NewScheme(extensionsv1alpha1.AddToScheme)
	var err error
	env, err = environment.Start(scheme)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	c = env.Client
	Expect(env.CreateNamespaces(ctx, gardenNamespace, coreDNSNamespace, "source", "destination")).To(Succeed())
	for _, namespace := range []string{sourceNamespace, destinationNamespace} {
		createShoot(ctx, namespace)
	}
	for _, namespace := range []string{gardenNamespace, sourceNamespace, destinationNamespace} {
		Expect(c.Create(ctx, newSecret(namespace, "dns", "hmac-sha256"))).To(Succeed())
	}

	By("starting CoreDNS")
	startCoreDNS(ctx)

	By("running the instances with the permissions that they name")
	source = newInstance(ctx, "source", configv1alpha1.DNSProviderCoreDNS, append(permissions(), permissionsForCoreDNS()...), gardenNamespace, sourceNamespace)
	destination = newInstance(ctx, "destination", configv1alpha1.DNSProviderRFC2136, permissions(), destinationNamespace)
	for _, i := range []*instance{source, destination} {
		i.start()
		DeferCleanup(func() { i.Stop() })
	}
})

var _ = AfterEach(func() {
	if CurrentSpecReport().Failed() {
		AddReportEntry("log of BIND", named.log())
	}
})

// permissions are those that the controller and the provider document.
func permissions() []rbacv1.PolicyRule {
	extensions, read := []string{extensionsv1alpha1.SchemeGroupVersion.Group}, []string{"get", "list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: extensions, Resources: []string{"dnsrecords"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: extensions, Resources: []string{"dnsrecords/status"}, Verbs: []string{"patch"}},
		{APIGroups: extensions, Resources: []string{"clusters"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}},
	}
}

// permissionsForCoreDNS are those that an instance needs besides where CoreDNS is its provider.
func permissionsForCoreDNS() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get", "list", "watch"}},
	}
}

// instance runs the controller in a manager, and again.
type instance struct {
	*suite.Running

	name            string
	defaultProvider configv1alpha1.DNSProvider
	namespaces      []string
	restConfig      *rest.Config
}

func newInstance(ctx context.Context, name string, defaultProvider configv1alpha1.DNSProvider, rules []rbacv1.PolicyRule, namespaces ...string) *instance {
	GinkgoHelper()
	return &instance{name: name, defaultProvider: defaultProvider, namespaces: namespaces, restConfig: suite.Account(ctx, env, name, name, rules...)}
}

// start runs the controllers until stop.
func (i *instance) start() {
	GinkgoHelper()
	byObject := coredns.CacheOptions(coreDNSNamespace)
	namespaces := map[string]cache.Config{}
	for _, namespace := range i.namespaces {
		namespaces[namespace] = cache.Config{}
	}
	byObject[&extensionsv1alpha1.DNSRecord{}] = cache.ByObject{Namespaces: namespaces}
	mgr, err := manager.New(rest.CopyConfig(i.restConfig), manager.Options{
		Scheme:     scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{ByObject: byObject},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		Controller: suite.Controllers(),
	})
	Expect(err).NotTo(HaveOccurred())

	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"garden", "seed", "shoot"}, "garden", "seed", "shoot")
	Expect(err).NotTo(HaveOccurred())
	dnsConfig := i.config()
	providers, err := dnsrecord.NewProviders(mgr, coredns.SetupOptions{
		DNS: dnsConfig, Place: i.name, ServiceAccount: types.NamespacedName{Namespace: i.name, Name: i.name}, Classes: classes,
	})
	Expect(err).NotTo(HaveOccurred())
	opts := dnsrecord.Options{Shared: reconciler.Shared{Classes: classes}, Providers: providers, DefaultProvider: i.defaultProvider, DefaultTTL: 77}
	opts.Controller.MaxConcurrentReconciles = 10
	Expect(dnsrecord.AddToManager(mgr, opts)).To(Succeed())

	i.Running = suite.Run("instance "+i.name, mgr.Start)
}

func (i *instance) config() configv1alpha1.DNSConfiguration {
	return configv1alpha1.DNSConfiguration{
		Zones: []string{updateZone}, DefaultTTL: new(int64(77)), Provider: i.defaultProvider,
		RFC2136: configv1alpha1.RFC2136Configuration{Server: named.address, Zones: []string{updateZone, openZone}, Timeout: &metav1.Duration{Duration: time.Second}},
		CoreDNS: configv1alpha1.CoreDNSConfiguration{
			Namespace: coreDNSNamespace, Deploy: new(false), ClusterDomain: "cluster.local", Servers: []string{coreDNS.Address},
			BatchWindow: &metav1.Duration{}, ConfirmTimeout: &metav1.Duration{Duration: 5 * time.Second},
		},
	}
}

// startCoreDNS starts the CoreDNS of the source seed.
func startCoreDNS(ctx context.Context) {
	GinkgoHelper()
	suite.Grant(ctx, c, coreDNSNamespace, "coredns", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}})
	coreDNS = suite.StartCoreDNS(env, coreDNSNamespace, corefile, suite.FreePort(), func(server *environment.CoreDNS) error {
		_, err := matchers.Resolve(ctx, "tcp", server.Address, updateZone, 1)
		return err
	})
	DeferCleanup(func(ctx SpecContext) { Expect(coreDNS.Kill(ctx)).To(Succeed()) })
}

func createShoot(ctx context.Context, namespace string) {
	GinkgoHelper()
	Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"gardener.cloud/role": "shoot"}}})).To(Succeed())
	raw := func(kind string) runtime.RawExtension {
		return runtime.RawExtension{Raw: fmt.Appendf(nil, `{"apiVersion":"core.gardener.cloud/v1beta1","kind":%q,"metadata":{"name":"local"},"spec":{},"status":{"technicalID":"shoot--local--local"}}`, kind)}
	}
	Expect(c.Create(ctx, &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec:       extensionsv1alpha1.ClusterSpec{CloudProfile: raw("CloudProfile"), Seed: new(raw("Seed")), Shoot: raw("Shoot")},
	})).To(Succeed())
}

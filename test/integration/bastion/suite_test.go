// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package bastion_test runs the controller for Bastions beside our controller for Services of type LoadBalancer against a
// real dual-stack API server, with no more permissions than they say they need. Its hand is that of gardenlet and of a
// kubelet.
package bastion_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/logger"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/bastion"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/service"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const (
	instanceNamespace = "extension-provider-local"
	// another is the user in the cluster of a shoot's credentials.
	another = "another"
)

var (
	env            *environment.Environment
	seed           client.Client
	scheme         *runtime.Scheme
	instanceConfig *rest.Config
	requests       = &suite.Recorder{}
	instance       *suite.Running
)

func TestBastion(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Bastions in a real API server")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText))
	scheme = suite.NewScheme(extensionsv1alpha1.AddToScheme)

	var err error
	env, err = environment.Start(scheme, environment.OffLoopback(), environment.WithAPIServerFlag("service-cluster-ip-range", "10.96.0.0/16,fd00:10:96::/112"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	seed = env.Client

	Expect(env.CreateNamespaces(ctx, instanceNamespace)).To(Succeed())
	instanceConfig = suite.Account(ctx, env, instanceNamespace, "instance", permissions()...)
	instanceConfig.QPS, instanceConfig.Burst = 100, 130
	instanceConfig.Wrap(requests.Wrap)
	suite.Grant(ctx, seed, instanceNamespace, another, remotePermissions()...)
	suite.Background("the kubelet", kubelet)
	instance = run()
	DeferCleanup(func() { instance.Stop() })
})

// permissions are those that AddToManager documents, those that cluster.New does, and those of the Service controller.
func permissions() []rbacv1.PolicyRule {
	core, extensions := []string{""}, []string{extensionsv1alpha1.SchemeGroupVersion.Group}
	return []rbacv1.PolicyRule{
		{APIGroups: extensions, Resources: []string{"bastions"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: extensions, Resources: []string{"bastions/status"}, Verbs: []string{"patch"}},
		{APIGroups: extensions, Resources: []string{"clusters"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: []string{"create", "patch", "delete"}},
		{APIGroups: core, Resources: []string{"secrets"}, Verbs: []string{"get", "create", "patch", "delete"}},
		{APIGroups: core, Resources: []string{"services"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		{APIGroups: core, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "create", "delete"}},

		{APIGroups: core, Resources: []string{"services/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
}

// remotePermissions are those that the kubeconfig of a shoot's credentials needs for Bastions.
func remotePermissions() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: []string{"create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"services", "pods"}, Verbs: []string{"get", "create", "patch", "delete"}},
	}
}

// run runs a manager with the controllers until it is stopped. A spec may replace the one that runs.
func run() *suite.Running {
	GinkgoHelper()
	byObject := coredns.CacheOptions(instanceNamespace)
	for object, options := range bastion.CacheOptions() {
		byObject[object] = options
	}
	mgr, err := manager.New(instanceConfig, manager.Options{
		Scheme:     scheme,
		Controller: suite.Controllers(),
		NewClient:  suite.NewClient,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{ByObject: byObject},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.Pod{}}}},
	})
	Expect(err).NotTo(HaveOccurred())

	config := &configv1alpha1.ExtensionConfiguration{LoadBalancers: configv1alpha1.LoadBalancersConfiguration{Pools: []string{"172.18.255.128/25", "fd00:ff::1:0/120"}}}
	configv1alpha1.SetDefaults(config)
	services := service.Options{LoadBalancers: config.LoadBalancers}
	Expect(service.AddToManager(mgr, services)).To(Succeed())

	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassShoot}, extensionsv1alpha1.ExtensionClassShoot)
	Expect(err).NotTo(HaveOccurred())
	bastions := bastion.Options{Shared: reconciler.Shared{Classes: classes}, Clusters: cluster.New(mgr.GetClient(), mgr.GetConfig())}
	bastions.Controller.MaxConcurrentReconciles = 5
	Expect(bastion.AddToManager(mgr, bastions)).To(Succeed())
	return suite.Run("the manager", mgr.Start)
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package service_test runs the controller for Services of type LoadBalancer against a real dual-stack API server, with no
// more permissions than it says it needs.
package service_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gardener/gardener/pkg/logger"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/service"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const instanceNamespace = "extension-provider-local"

var (
	env            *environment.Environment
	seed           client.Client
	scheme         *runtime.Scheme
	instanceConfig *rest.Config
	requests       = &suite.Recorder{}
)

func TestService(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Services of type LoadBalancer in a real API server")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText))
	scheme = suite.NewScheme()

	var err error
	env, err = environment.StartShoot(scheme,
		environment.WithAPIServerFlag("service-cluster-ip-range", "10.96.0.0/16,fd00:10:96::/112"),
		environment.WithAPIServerFlag("service-node-port-range", "30000-32767"),
	)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	seed = env.Client

	Expect(env.CreateNamespaces(ctx, instanceNamespace, "garden", "istio-ingress", "istio-ingress--0", "istio-ingress--other")).To(Succeed())
	instanceConfig = suite.Account(ctx, env, instanceNamespace, "instance", permissions()...)
	instanceConfig.QPS, instanceConfig.Burst = 100, 130
	instanceConfig.Wrap(requests.Wrap)
})

// permissions are those that AddToManager documents.
func permissions() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"services/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
}

// defaults returns the default configuration with other pools.
func defaults(pools ...string) configv1alpha1.LoadBalancersConfiguration {
	config := &configv1alpha1.ExtensionConfiguration{LoadBalancers: configv1alpha1.LoadBalancersConfiguration{Pools: pools}}
	configv1alpha1.SetDefaults(config)
	return config.LoadBalancers
}

// run runs a manager with the controller until the spec ends or the returned function is called.
func run(loadBalancers configv1alpha1.LoadBalancersConfiguration) func() {
	GinkgoHelper()
	mgr, err := manager.New(instanceConfig, manager.Options{
		Scheme:     scheme,
		Controller: suite.Controllers(),
		NewClient:  suite.NewClient,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{ByObject: coredns.CacheOptions(instanceNamespace)},
	})
	Expect(err).NotTo(HaveOccurred())
	opts := service.Options{LoadBalancers: loadBalancers, Namespace: instanceNamespace, CoreDNSNamespace: configv1alpha1.DefaultCoreDNSNamespace}
	opts.Controller.MaxConcurrentReconciles = 5
	// There is one after the other.
	Expect(service.AddToManager(mgr, opts)).To(Succeed())

	return suite.Background("the manager", mgr.Start).Stop
}

// requestsForServices returns those that were recorded, as "METHOD PATH CODE" without the path of the API.
func requestsForServices() []string {
	var out []string
	for _, request := range requests.List() {
		if strings.Contains(request.Path, "/services") {
			out = append(out, fmt.Sprintf("%s %s %d", request.Method, strings.TrimPrefix(request.Path, "/api/v1/"), request.Code))
		}
	}
	return out
}

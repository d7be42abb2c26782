// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package service_test runs the controller for Services of type LoadBalancer against a real dual-stack API server, with no
// more permissions than it says it needs.
package service_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
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
)

const instanceNamespace = "extension-provider-local"

var (
	env            *environment.Environment
	seed           client.Client
	scheme         *runtime.Scheme
	instanceConfig *rest.Config
	requests       = &recorder{}
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
	scheme = runtime.NewScheme()
	Expect(kubernetesscheme.AddToScheme(scheme)).To(Succeed())

	var err error
	env, err = environment.StartShoot(scheme,
		environment.WithAPIServerFlag("service-cluster-ip-range", "10.96.0.0/16,fd00:10:96::/112"),
		environment.WithAPIServerFlag("service-node-port-range", "30000-32767"),
	)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	seed = env.Client

	Expect(env.CreateNamespaces(ctx, instanceNamespace, "garden", "istio-ingress", "istio-ingress--0", "istio-ingress--other")).To(Succeed())
	Expect(seed.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "service"}, Rules: permissions()})).To(Succeed())
	Expect(seed.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "service"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "service"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: instanceNamespace, Name: "instance"}},
	})).To(Succeed())
	instanceConfig, err = env.ServiceAccountConfig(instanceNamespace, "instance")
	Expect(err).NotTo(HaveOccurred())
	instanceConfig.QPS, instanceConfig.Burst = 100, 130
	instanceConfig.Wrap(requests.wrap)
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
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{ByObject: coredns.CacheOptions(instanceNamespace)},
	})
	Expect(err).NotTo(HaveOccurred())
	opts := service.Options{LoadBalancers: loadBalancers}
	opts.Controller.MaxConcurrentReconciles = 5
	// There is one after the other.
	opts.Controller.SkipNameValidation = new(true)
	Expect(service.AddToManager(mgr, opts)).To(Succeed())

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		Eventually(ended).Should(Receive(BeNil()), "the manager ends without an error")
	})
	DeferCleanup(stop)
	return stop
}

// recorder knows all requests for Services but watches. Informers renew those from time to time.
type recorder struct {
	mu   sync.Mutex
	seen []string
}

func (r *recorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if query := request.URL.Query(); query.Get("watch") != "true" && query.Get("watch") != "1" && strings.Contains(request.URL.Path, "/services") {
			code := 0
			if response != nil {
				code = response.StatusCode
			}
			r.mu.Lock()
			r.seen = append(r.seen, fmt.Sprintf("%s %s %d", request.Method, strings.TrimPrefix(request.URL.Path, "/api/v1/"), code))
			r.mu.Unlock()
		}
		return response, err
	})
}

func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = nil
}

func (r *recorder) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

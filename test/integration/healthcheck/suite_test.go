// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package healthcheck_test runs the health check controllers against two real API servers, that of a seed and that of a
// shoot, with no more permissions than they say they need. Its hand is that of gardener-resource-manager, of
// machine-controller-manager and of the kubelets.
package healthcheck_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/logger"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/healthcheck"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
)

const (
	instanceNamespace = "extension-provider-local"
	// syncPeriod is short so that a test sees several, and long compared to what an event takes.
	syncPeriod = 6 * time.Second
	// cacheSyncTimeout is after how long a manager dies of a watch that does not come about.
	cacheSyncTimeout = 2 * time.Second
)

var (
	env       *environment.Environment
	seed      client.Client
	shootEnv  *environment.Environment
	shoot     client.Client
	requests  = &recorder{}
	mgr       manager.Manager
	ended     = make(chan error, 1)
	readNodes = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}}}
)

func TestHealthCheck(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Health checks against real API servers")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText))

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		kubernetesscheme.AddToScheme, extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme, machinev1alpha1.AddToScheme,
	} {
		Expect(add(scheme)).To(Succeed())
	}

	By("starting the API server of the seed")
	var err error
	// The machine API is not there yet: gardenlet may install it later.
	env, err = environment.Start(scheme, environment.WithoutCRDs(machinev1alpha1.GroupName))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	seed = env.Client

	By("starting the API server of the shoot")
	shootEnv, err = environment.StartShoot(scheme)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(shootEnv.Stop)
	shoot = shootEnv.Client
	Expect(shoot.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "read-nodes"}, Rules: readNodes})).To(Succeed())

	By("running the controllers with the permissions that they name")
	Expect(env.CreateNamespaces(ctx, instanceNamespace)).To(Succeed())
	Expect(seed.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "healthcheck"}, Rules: permissions()})).To(Succeed())
	Expect(seed.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "healthcheck"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "healthcheck"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: instanceNamespace, Name: "instance"}},
	})).To(Succeed())
	instanceConfig, err := env.ServiceAccountConfig(instanceNamespace, "instance")
	Expect(err).NotTo(HaveOccurred())
	run(instanceConfig, scheme)
})

// permissions are those that AddToManager documents.
func permissions() []rbacv1.PolicyRule {
	extensions, read := []string{extensionsv1alpha1.SchemeGroupVersion.Group}, []string{"get", "list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: extensions, Resources: []string{"controlplanes", "networks", "workers", "clusters"}, Verbs: read},
		{APIGroups: extensions, Resources: []string{"controlplanes/status", "networks/status", "workers/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{resourcesv1alpha1.SchemeGroupVersion.Group}, Resources: []string{"managedresources"}, Verbs: read},
		{APIGroups: []string{machinev1alpha1.GroupName}, Resources: []string{"machines", "machinedeployments"}, Verbs: read},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{"machine-controller-manager"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"gardener", "gardener-internal"}, Verbs: []string{"get"}},
	}
}

// run runs a manager with the controllers until the suite ends.
func run(config *rest.Config, scheme *runtime.Scheme) {
	GinkgoHelper()
	config.Wrap(requests.wrap)

	var err error
	mgr, err = manager.New(config, manager.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{ByObject: healthcheck.CacheOptions()},
		Client:  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &appsv1.Deployment{}}}},
	})
	Expect(err).NotTo(HaveOccurred())

	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassShoot}, extensionsv1alpha1.ExtensionClassShoot)
	Expect(err).NotTo(HaveOccurred())
	opts := healthcheck.Options{Classes: classes, SyncPeriod: syncPeriod}
	opts.Controller.CacheSyncTimeout = cacheSyncTimeout
	Expect(healthcheck.AddToManager(mgr, opts)).To(Succeed())

	managerCtx, cancel := context.WithCancel(context.Background())
	go func() { ended <- mgr.Start(managerCtx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(ended).Should(Receive(BeNil()), "the manager ends without an error")
	})
}

// recorder knows all requests but watches. Informers renew those from time to time.
type recorder struct {
	mu   sync.Mutex
	seen []string
}

func (r *recorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if query := request.URL.Query(); query.Get("watch") != "true" && query.Get("watch") != "1" {
			r.mu.Lock()
			r.seen = append(r.seen, fmt.Sprintf("%s %s", request.Method, request.URL.Path))
			r.mu.Unlock()
		}
		return next.RoundTrip(request)
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

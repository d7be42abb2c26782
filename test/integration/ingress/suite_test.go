// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package ingress_test runs the Ingress controller against a real API server, with no more permissions than it says it
// needs. Its hand is that of users, of the Ingress controller that serves, of gardenlet and of the DNSRecord controller.
package ingress_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
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

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/ingress"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const instanceNamespace = "extension-provider-local"

var (
	env      *environment.Environment
	seed     client.Client
	scheme   *runtime.Scheme
	access   *rest.Config
	requests = &suite.Recorder{}
	instance *running
	nginx    = client.ObjectKey{Namespace: "garden", Name: "nginx-ingress-controller"}
	istio    = client.ObjectKey{Namespace: "istio-ingress", Name: "istio-ingressgateway"}
)

func TestIngress(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Ingresses against a real API server")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText))

	scheme = suite.NewScheme(extensionsv1alpha1.AddToScheme)

	By("starting the API server of the seed")
	var err error
	env, err = environment.Start(scheme, environment.WithAPIServerFlag("enable-admission-plugins", "OwnerReferencesPermissionEnforcement"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	seed = env.Client
	Expect(env.CreateNamespaces(ctx, instanceNamespace, nginx.Namespace, istio.Namespace)).To(Succeed())

	By("running the controller with the permissions that it names")
	access = suite.Account(ctx, env, instanceNamespace, "instance", permissions()...)
	// A limit by which times can be compared.
	access.QPS, access.Burst = 100, 130
	access.Wrap(requests.Wrap)
	instance = run()
	DeferCleanup(func() { instance.Stop() })
})

// permissions are those that AddToManager documents.
func permissions() []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{extensionsv1alpha1.SchemeGroupVersion.Group}, Resources: []string{"dnsrecords"}, Verbs: append(read, "create", "patch", "delete")},
		{APIGroups: []string{networkingv1.GroupName}, Resources: []string{"ingresses"}, Verbs: read},
		{APIGroups: []string{networkingv1.GroupName}, Resources: []string{"ingresses/finalizers"}, Verbs: []string{"update"}},
		{APIGroups: []string{corev1.GroupName}, Resources: []string{"services", "namespaces"}, Verbs: read},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
}

// running is a manager with the controller.
type running struct {
	*suite.Running
	manager.Manager
}

// run runs a manager with the controller and the caches that gardenlet-extension gives it.
func run() *running {
	GinkgoHelper()
	mgr, err := manager.New(access, manager.Options{
		Scheme:     scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{ByObject: coredns.CacheOptions("gardener-extension-provider-local-coredns"), DefaultTransform: cache.TransformStripManagedFields()},
		Controller: suite.Controllers(),
	})
	Expect(err).NotTo(HaveOccurred())
	opts := ingress.Options{Gateways: []client.ObjectKey{nginx, istio}}
	opts.Controller.MaxConcurrentReconciles = 5
	Expect(ingress.AddToManager(mgr, opts)).To(Succeed())

	return &running{Running: suite.Run("the manager", mgr.Start), Manager: mgr}
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package healthcheck_test runs the health check controllers against a real API server, that of a seed, with no more
// permissions than they say they need. Its hand is that of gardener-resource-manager and of machine-controller-manager.
package healthcheck_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
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
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/logger"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/healthcheck"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const (
	instanceNamespace = "extension-provider-local"
	// syncPeriod is short so that a test sees several, and long compared to what an event takes.
	syncPeriod = 6 * time.Second
)

var (
	env      *environment.Environment
	seed     client.Client
	requests = &suite.Recorder{}
	mgr      manager.Manager
	instance *suite.Running
)

func TestHealthCheck(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Health checks against real API servers")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText))

	scheme := suite.NewScheme(extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme, machinev1alpha1.AddToScheme)

	By("starting the API server of the seed")
	var err error
	env, err = environment.Start(scheme)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	seed = env.Client

	By("running the controllers with the permissions that they name")
	Expect(env.CreateNamespaces(ctx, instanceNamespace)).To(Succeed())
	run(suite.Account(ctx, env, instanceNamespace, "instance", permissions()...), scheme)
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
	}
}

// run runs a manager with the controllers until the suite ends.
func run(config *rest.Config, scheme *runtime.Scheme) {
	GinkgoHelper()
	config.Wrap(requests.Wrap)

	var err error
	mgr, err = manager.New(config, manager.Options{
		Scheme:     scheme,
		Controller: suite.Controllers(),
		NewClient:  suite.NewClient,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{ByObject: healthcheck.CacheOptions()},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &appsv1.Deployment{}}}},
	})
	Expect(err).NotTo(HaveOccurred())

	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassShoot}, extensionsv1alpha1.ExtensionClassShoot)
	Expect(err).NotTo(HaveOccurred())
	Expect(healthcheck.AddToManager(mgr, healthcheck.Options{Shared: reconciler.Shared{Classes: classes}, SyncPeriod: syncPeriod})).To(Succeed())

	instance = suite.Background("the manager", mgr.Start)
}

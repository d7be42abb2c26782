// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package worker_test runs the Worker controller against a real API server, with no more permissions than it says it
// needs and a single worker. Its hands are those of gardenlet and of machine-controller-manager.
package worker_test

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
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/logger"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/worker"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const instanceNamespace = "extension-provider-local"

var (
	env      *environment.Environment
	seed     client.Client
	requests = &suite.Recorder{}
)

func TestWorker(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Workers in a real API server")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText))
	scheme := suite.NewScheme(extensionsv1alpha1.AddToScheme, machinev1alpha1.AddToScheme)

	var err error
	env, err = environment.Start(scheme)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	seed = env.Client

	Expect(env.CreateNamespaces(ctx, instanceNamespace)).To(Succeed())
	_, err = env.InstallChart(ctx, instanceNamespace, suite.SeedValues()) // The machine driver's ClusterRole.
	Expect(err).NotTo(HaveOccurred())
	run(suite.Account(ctx, env, instanceNamespace, "instance", permissions()...), scheme)
})

// permissions are those that AddToManager documents, and those of the extension library.
func permissions() []rbacv1.PolicyRule {
	manager := []string{"machine-controller-manager"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"extensions.gardener.cloud"}, Resources: []string{"workers"}, Verbs: []string{"get", "list", "watch", "patch", "update"}},
		{APIGroups: []string{"extensions.gardener.cloud"}, Resources: []string{"workers/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"extensions.gardener.cloud"}, Resources: []string{"clusters"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}},
		{
			APIGroups: []string{"machine.sapcloud.io"}, Resources: []string{"machinedeployments", "machinesets", "machines", "machineclasses"},
			Verbs: []string{"get", "list", "watch", "create", "patch", "delete", "deletecollection"},
		},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "create", "patch", "delete", "deletecollection"}},
		{APIGroups: []string{""}, Resources: []string{"pods", "services"}, Verbs: []string{"list", "delete"}},
		{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"rolebindings"}, ResourceNames: []string{worker.DriverRole}, Verbs: []string{"create", "patch"}},
		// What is in the machine driver's ClusterRole.
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "create", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get", "create", "delete"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: manager, Verbs: []string{"get"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}, ResourceNames: manager, Verbs: []string{"patch"}},
	}
}

// run runs a manager with the controller until the suite ends.
func run(config *rest.Config, scheme *runtime.Scheme) {
	GinkgoHelper()
	config.Wrap(requests.Wrap)
	mgr, err := manager.New(config, manager.Options{
		Scheme:     scheme,
		Controller: suite.Controllers(),
		NewClient:  suite.NewClient,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &appsv1.Deployment{}, &corev1.Pod{}}}},
	})
	Expect(err).NotTo(HaveOccurred())

	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassShoot}, extensionsv1alpha1.ExtensionClassShoot)
	Expect(err).NotTo(HaveOccurred())
	opts := worker.Options{
		Shared: reconciler.Shared{Classes: classes, ShootClusters: reconciler.NewClusters(mgr.GetClient())},
		Sizing: localv1alpha1.MachineSizingExact, AllowedSizings: localv1alpha1.DefaultAllowedSizings(localv1alpha1.MachineSizingExact), GPUResourceName: "nvidia.com/gpu",
	}
	opts.Controller.MaxConcurrentReconciles = 1
	Expect(worker.AddToManager(mgr, opts)).To(Succeed())

	suite.Background("the manager", mgr.Start)
}

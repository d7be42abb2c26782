// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package cloudcontroller_test runs what the command cloud-controller runs between two real API servers, a shoot and its
// seed, with just the permissions that the chart charts/components/cloud-controller gives to it. In the seed there is the
// controller that gives addresses to Services of type LoadBalancer. There is no kube-controller-manager and no kubelet:
// the suite writes the Nodes, the pods of the machines and the EndpointSlices of the shoot's Services.
package cloudcontroller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gardener/gardener/pkg/logger"

	"github.com/gardener/gardener-extension-provider-local/charts/components"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/service"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer/shoot"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const technicalID = "shoot--local--foo"

var (
	scheme *runtime.Scheme
	// seedEnv and shootEnv are both dual-stack.
	seedEnv, shootEnv *environment.Environment
	seed, shootClient client.Client
	// inSeed and inShoot are cloud-controller's access.
	inSeed, inShoot *rest.Config
	requests        = &suite.Recorder{}
)

func TestCloudController(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "LoadBalancer Services of a shoot in real API servers")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	log := logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText)
	logf.SetLogger(log)
	klog.SetLogger(log)
	scheme = suite.NewScheme()
	seedEnv, shootEnv = start(true), start(true)
	seed, shootClient = seedEnv.Client, shootEnv.Client
	inSeed, inShoot = install(ctx, seedEnv, shootEnv)
	inSeed.Wrap(requests.Wrap)
	inShoot.Wrap(requests.Wrap)
	serveSeed(seedEnv, "10.1.0.0/24", "fd00:1::/120")
})

// start starts an API server.
func start(dualStack bool) *environment.Environment {
	GinkgoHelper()
	ranges := "10.96.0.0/16"
	if dualStack {
		ranges += ",fd00:10:96::/112"
	}
	env, err := environment.StartShoot(scheme, environment.WithAPIServerFlag("service-cluster-ip-range", ranges))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	return env
}

// install creates the RBAC of the chart in both clusters and returns cloud-controller's access to them.
func install(ctx SpecContext, seedEnv, shootEnv *environment.Environment) (*rest.Config, *rest.Config) {
	GinkgoHelper()
	Expect(seedEnv.CreateNamespaces(ctx, technicalID)).To(Succeed())
	renderer, err := chart.NewRenderer("v1.36.3")
	Expect(err).NotTo(HaveOccurred())
	objects, err := renderer.Render(ctx, chart.Embedded(components.FS, components.CloudController), chart.Release{Name: "cloud-controller", Namespace: technicalID}, map[string]any{
		"image":        "gardenlet-extension:test",
		"shootAccess":  map[string]any{"kubeconfigSecret": "kubeconfig", "tokenSecret": "token"},
		"serverSecret": "server",
	})
	Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		switch object.GetObjectKind().GroupVersionKind().Kind {
		case "Role", "RoleBinding":
			Expect(client.IgnoreAlreadyExists(seedEnv.Client.Create(ctx, object))).To(Succeed())
		case "ClusterRole", "ClusterRoleBinding":
			Expect(client.IgnoreAlreadyExists(shootEnv.Client.Create(ctx, object))).To(Succeed())
		}
	}

	inSeed, err := seedEnv.ServiceAccountConfig(technicalID, "cloud-controller")
	Expect(err).NotTo(HaveOccurred())
	inShoot, err := shootEnv.ServiceAccountConfig("kube-system", "cloud-controller")
	Expect(err).NotTo(HaveOccurred())
	for _, config := range []*rest.Config{inSeed, inShoot} {
		config.QPS, config.Burst = 200, 400 // Those of the command.
	}
	return inSeed, inShoot
}

// serveSeed runs the controller that gives addresses to Services in a seed until the end of the suite or spec.
func serveSeed(env *environment.Environment, pools ...string) {
	GinkgoHelper()
	config := &configv1alpha1.ExtensionConfiguration{LoadBalancers: configv1alpha1.LoadBalancersConfiguration{Pools: pools}}
	configv1alpha1.SetDefaults(config)
	mgr, err := manager.New(env.Config, manager.Options{
		Scheme:     scheme,
		Controller: suite.Controllers(),
		NewClient:  suite.NewClient,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{ByObject: coredns.CacheOptions("default")},
	})
	Expect(err).NotTo(HaveOccurred())
	opts := service.Options{LoadBalancers: config.LoadBalancers}
	opts.Controller.MaxConcurrentReconciles = 5
	Expect(service.AddToManager(mgr, opts)).To(Succeed())
	suite.Background("the seed's controller for Services", mgr.Start)
}

// run runs cloud-controller until the spec ends or the returned function is called.
func run(change ...func(*shoot.Options)) func() {
	GinkgoHelper()
	return runBetween(inSeed, inShoot, change...)
}

func runBetween(inSeed, inShoot *rest.Config, change ...func(*shoot.Options)) func() {
	GinkgoHelper()
	opts := shoot.Options{
		Log: logf.Log.WithName("cloud-controller"), Namespace: technicalID, Seed: inSeed, Shoot: inShoot,
		Server: metricsserver.Options{BindAddress: "0"},
	}
	for _, change := range change {
		change(&opts)
	}
	mgr, err := shoot.New(opts)
	Expect(err).NotTo(HaveOccurred())
	return suite.Background("cloud-controller", mgr.Start).Stop
}

// writes returns the requests of cloud-controller that are no reads, as "METHOD PATH CODE", but for those for Events.
func writes() []string {
	var out []string
	for _, request := range requests.Writes() {
		if !strings.HasSuffix(request.Path, "/events") && !strings.Contains(request.Path, "/events/") {
			out = append(out, fmt.Sprintf("%s %s %d", request.Method, request.Path, request.Code))
		}
	}
	slices.Sort(out)
	return out
}

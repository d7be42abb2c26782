// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package operator_test runs the garden instance, as the program runs it, against a real kube-apiserver and etcd, a real
// CoreDNS, and with no more permissions than those of the chart.
package operator_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/logger"

	"github.com/gardener/gardener-extension-provider-local/operator-extension/app"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const (
	gardenNamespace   = "garden"
	instanceNamespace = "runtime-extension-provider-local"
	coreDNSNamespace  = configv1alpha1.DefaultCoreDNSNamespace
)

var (
	env            *environment.Environment
	c              client.Client
	release        *environment.Release
	instanceConfig *rest.Config
	buckets        string
	dnsPort        int
	coreDNS        *environment.CoreDNS
	running        *process
)

func TestOperator(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Garden instance against a real API server")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.DebugLevel, logger.FormatText))

	By("starting the API server")
	var err error
	env, err = environment.Start(suite.NewScheme(extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	c = env.Client
	Expect(env.CreateNamespaces(ctx, gardenNamespace, instanceNamespace)).To(Succeed())
	Expect(c.Create(ctx, secret("backup"))).To(Succeed())
	Expect(c.Create(ctx, secret("dns"))).To(Succeed())

	By("running gardener-resource-manager for ManagedResources of class seed")
	suite.Background("gardener-resource-manager", func(ctx context.Context) error {
		return env.RunResourceManager(ctx, environment.ResourceManagerOptions{Class: "seed"})
	})

	By("running the instance with the permissions of the chart")
	dnsPort = suite.FreePort()
	release, err = env.InstallChart(ctx, instanceNamespace, suite.GardenValues())
	Expect(err).NotTo(HaveOccurred())
	instanceConfig, err = env.ServiceAccountConfig(instanceNamespace, app.Name)
	Expect(err).NotTo(HaveOccurred())
	buckets = GinkgoT().TempDir()
	running = start(nil)
	DeferCleanup(func() { running.Stop() })

	By("starting CoreDNS as the instance deployed it")
	coreDNS = startCoreDNS(ctx)
	DeferCleanup(func(ctx SpecContext) { Expect(coreDNS.Kill(ctx)).To(Succeed()) })
})

// process is a running instance.
type process struct {
	*suite.Running

	// health and metrics are the URLs of its servers.
	health, metrics string
}

// start runs an instance by the configuration of the chart, which change may change.
func start(change func(*configv1alpha1.ExtensionConfiguration)) *process {
	GinkgoHelper()

	config := release.Config.DeepCopy()
	config.Backup.Directory = buckets
	config.Backup.HostPath = "/on/the/node"
	config.DNS.CoreDNS.Servers = []string{serverAddress()}
	config.DNS.CoreDNS.ConfirmTimeout = &metav1.Duration{Duration: 3 * time.Second}
	suite.OwnPorts(config)
	if change != nil {
		change(config)
	}

	return &process{
		Running: suite.Run("the instance", func(ctx context.Context) error {
			return app.Run(ctx, app.Options{
				Log:          logf.Log,
				Config:       config,
				RESTConfig:   rest.CopyConfig(instanceConfig),
				Namespace:    instanceNamespace,
				AllowRestart: true,
			})
		}),
		health:  fmt.Sprintf("http://127.0.0.1:%d", config.Server.HealthProbes.Port),
		metrics: fmt.Sprintf("http://127.0.0.1:%d", config.Server.Metrics.Port),
	}
}

// restart stops the instance that runs, does something, and runs another one.
func restart(meanwhile func()) {
	GinkgoHelper()
	running.Stop()
	meanwhile()
	running = start(nil)
}

func startCoreDNS(ctx context.Context) *environment.CoreDNS {
	GinkgoHelper()
	return suite.StartCoreDNS(env, coreDNSNamespace, suite.DeployedCorefile(ctx, c, coreDNSNamespace), dnsPort, func(*environment.CoreDNS) error {
		_, err := resolve(ctx, "udp", "local.gardener.cloud", dns.TypeSOA)
		return err
	})
}

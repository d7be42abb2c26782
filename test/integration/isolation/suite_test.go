// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package isolation_test runs the garden instance and the seed instance in one cluster, as they are where a seed is the
// garden runtime cluster too, each with no more permissions than the chart gives to it. The audit log of the API server
// proves that neither writes to an object of the other.
package isolation_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	logzap "sigs.k8s.io/controller-runtime/pkg/log/zap"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/logger"

	seedapp "github.com/gardener/gardener-extension-provider-local/gardenlet-extension/app"
	gardenapp "github.com/gardener/gardener-extension-provider-local/operator-extension/app"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

const (
	gardenNamespace  = "garden"
	coreDNSNamespace = configv1alpha1.DefaultCoreDNSNamespace
	// gardenPlace and seedPlace are the namespaces of the instances.
	gardenPlace = "runtime-extension-provider-local"
	seedPlace   = "extension-provider-local"
	// namespaces is the number of shoots, and of further namespaces with an Extension of class seed.
	namespaces = 40

	gardenUser = "system:serviceaccount:" + gardenPlace + ":" + gardenapp.Name
	seedUser   = "system:serviceaccount:" + seedPlace + ":" + seedapp.Name
)

var (
	env *environment.Environment
	c   client.Client

	gardenInstance, seedInstance *instance
)

func TestIsolation(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(3 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	RunSpecs(t, "Two instances in one cluster")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.ErrorLevel, logger.FormatText, logzap.WriteTo(GinkgoWriter)))

	scheme := suite.NewScheme(extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme)

	By("starting the API server")
	var err error
	env, err = environment.Start(scheme, environment.WithAuditLog())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	c = env.Client
	Expect(env.CreateNamespaces(ctx, gardenNamespace, gardenPlace, seedPlace)).To(Succeed())
	for i := range namespaces {
		suite.CreateShoot(ctx, c, suite.NewCluster(shootNamespace(i), nil))
		Expect(env.CreateNamespaces(ctx, seedNamespace(i))).To(Succeed())
	}
	secrets := []string{"dns", ofGarden, ofSeed}
	for i := range changing {
		for _, prefix := range []string{"anew", "changed"} {
			secrets = append(secrets, fmt.Sprintf("backup-bucket-%s-%d", prefix, i), fmt.Sprintf("backup-entry-%s-%d", prefix, i))
		}
	}
	for _, name := range secrets {
		Expect(c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: gardenNamespace, Name: name}})).To(Succeed())
	}

	By("running gardener-resource-manager for ManagedResources of class seed")
	suite.Background("gardener-resource-manager", func(ctx context.Context) error {
		return env.RunResourceManager(ctx, environment.ResourceManagerOptions{Class: "seed"})
	})

	By("running both instances with the permissions of the chart")
	port := suite.FreePort()
	buckets := GinkgoT().TempDir()
	prepareGarden(ctx, buckets, fmt.Sprintf("127.0.0.1:%d", port))
	prepareSeed(ctx, buckets, fmt.Sprintf("127.0.0.1:%d", port))
	gardenInstance.start()
	DeferCleanup(gardenInstance.stop)
	eventuallyServedBy(ctx, gardenPlace, coreDNSService)
	seedInstance.start()
	DeferCleanup(seedInstance.stop)

	By("starting the CoreDNS that they share")
	startCoreDNS(ctx, port)
})

// instance is one of the two, which specs may stop and start.
type instance struct {
	run     func(context.Context) error
	running *suite.Running
}

func (i *instance) start() { i.running = suite.Run("an instance", i.run) }

func (i *instance) stop() { i.running.Stop() }

func prepareGarden(ctx context.Context, buckets, dnsServer string) {
	GinkgoHelper()
	release, err := env.InstallChart(ctx, gardenPlace, suite.GardenValues())
	Expect(err).NotTo(HaveOccurred())
	restConfig, err := env.ServiceAccountConfig(gardenPlace, gardenapp.Name)
	Expect(err).NotTo(HaveOccurred())
	config := configure(release.Config, buckets, dnsServer)
	gardenInstance = &instance{run: func(ctx context.Context) error {
		return gardenapp.Run(ctx, gardenapp.Options{Log: logf.Log, Config: config, RESTConfig: restConfig, Namespace: gardenPlace, AllowRestart: true})
	}}
}

func prepareSeed(ctx context.Context, buckets, dnsServer string) {
	GinkgoHelper()
	release, err := env.InstallChart(ctx, seedPlace, suite.SeedValues())
	Expect(err).NotTo(HaveOccurred())
	restConfig, err := env.ServiceAccountConfig(seedPlace, seedapp.Name)
	Expect(err).NotTo(HaveOccurred())
	config := configure(release.Config, buckets, dnsServer)
	// The API server would have to reach them, and they touch no object of a class.
	suite.DisableWebhooks(config)
	seedInstance = &instance{run: func(ctx context.Context) error {
		return seedapp.Run(ctx, seedapp.Options{Log: logf.Log, Config: config, RESTConfig: restConfig, Namespace: seedPlace, AllowRestart: true})
	}}
}

// configure adapts the configuration of the chart to this machine. Both instances have the same folder of buckets, as on
// a node of a cluster that is garden runtime cluster and seed.
func configure(config *configv1alpha1.ExtensionConfiguration, buckets, dnsServer string) *configv1alpha1.ExtensionConfiguration {
	GinkgoHelper()
	config = config.DeepCopy()
	config.Backup.Directory, config.Backup.HostPath = buckets, "/on/the/node"
	config.Charts.Cache.Directory = GinkgoT().TempDir()
	config.DNS.CoreDNS.Servers = []string{dnsServer}
	suite.OwnPorts(config)
	return config
}

// startCoreDNS runs CoreDNS as the instances deployed it.
func startCoreDNS(ctx context.Context, port int) {
	GinkgoHelper()
	server := suite.StartCoreDNS(env, coreDNSNamespace, suite.DeployedCorefile(ctx, c, coreDNSNamespace), port, func(server *environment.CoreDNS) error {
		_, err := matchers.Resolve(ctx, "tcp", server.Address, "local.gardener.cloud", dns.TypeSOA)
		return err
	})
	DeferCleanup(func(ctx SpecContext) { Expect(server.Kill(ctx)).To(Succeed()) })
}

func shootNamespace(i int) string { return fmt.Sprintf("shoot--local--%d", i) }

func seedNamespace(i int) string { return fmt.Sprintf("of-seed-%d", i) }

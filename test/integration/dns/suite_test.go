// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package dns_test runs the DNS of a seed instance, as the program runs it, against a real kube-apiserver and etcd, with no
// more permissions than those of the chart. A real CoreDNS runs by the Corefile that the instance deploys and finds the
// Services of the cluster by the plugin kubernetes, where in a cluster it asks the name server of the cluster.
package dns_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	logzap "sigs.k8s.io/controller-runtime/pkg/log/zap"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/logger"

	"github.com/gardener/gardener-extension-provider-local/gardenlet-extension/app"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

const (
	gardenNamespace   = "garden"
	instanceNamespace = "extension-provider-local"
	coreDNSNamespace  = configv1alpha1.DefaultCoreDNSNamespace
	rootForward       = "forward . /etc/resolv.conf {\n        max_concurrent 1000\n    }"
)

var (
	env     *environment.Environment
	c       client.Client
	running *instance
	coreDNS *environment.CoreDNS
)

func TestDNS(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "The DNS of a seed")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText, logzap.WriteTo(GinkgoWriter)))

	By("starting the API server")
	var err error
	env, err = environment.Start(suite.NewScheme(extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	c = env.Client
	Expect(env.CreateNamespaces(ctx, gardenNamespace, instanceNamespace)).To(Succeed())

	By("running gardener-resource-manager")
	suite.Background("gardener-resource-manager", func(ctx context.Context) error {
		return env.RunResourceManager(ctx, environment.ResourceManagerOptions{Class: "seed"})
	})

	By("running the instance with the permissions of the chart")
	port := suite.FreePort()
	running = newInstance(ctx, fmt.Sprintf("127.0.0.1:%d", port))
	running.start()
	DeferCleanup(func() { running.Stop() })

	By("starting CoreDNS as the instance deployed it")
	coreDNS = startCoreDNS(ctx, port)
	DeferCleanup(func(ctx SpecContext) { Expect(coreDNS.Kill(ctx)).To(Succeed()) })
})

// instance runs the seed instance, and again.
type instance struct {
	*suite.Running

	config     *configv1alpha1.ExtensionConfiguration
	restConfig *rest.Config
}

// newInstance returns an instance that does nothing but DNS: gateways get their addresses from the specs.
func newInstance(ctx context.Context, server string) *instance {
	GinkgoHelper()
	release, err := env.InstallChart(ctx, instanceNamespace, suite.SeedValues())
	Expect(err).NotTo(HaveOccurred())
	restConfig, err := env.ServiceAccountConfig(instanceNamespace, app.Name)
	Expect(err).NotTo(HaveOccurred())

	config := release.Config
	suite.DisableControllers(config, &config.Controllers.DNSRecord)
	suite.DisableWebhooks(config)
	config.Backup.Directory = GinkgoT().TempDir()
	config.DNS.CoreDNS.Servers = []string{server}
	suite.OwnPorts(config)
	return &instance{config: config, restConfig: restConfig}
}

func (i *instance) start() {
	GinkgoHelper()
	i.Running = suite.Run("the instance", func(ctx context.Context) error {
		return app.Run(ctx, app.Options{
			Log: logf.Log, Config: i.config.DeepCopy(), RESTConfig: rest.CopyConfig(i.restConfig), Namespace: instanceNamespace, AllowRestart: true,
		})
	})
}

func startCoreDNS(ctx context.Context, port int) *environment.CoreDNS {
	GinkgoHelper()
	corefile, services := suite.DeployedCorefile(ctx, c, coreDNSNamespace), clusterDNS(ctx)
	Expect(corefile).To(ContainSubstring(rootForward))
	corefile = strings.ReplaceAll(corefile, rootForward, "kubernetes cluster.local {\n kubeconfig "+services+"\n }")

	return suite.StartCoreDNS(env, coreDNSNamespace, corefile, port, func(server *environment.CoreDNS) error {
		answer, err := matchers.Resolve(ctx, "udp", server.Address, "kubernetes.default.svc.cluster.local", dns.TypeA)
		if err == nil && (len(answer) != 1 || !strings.HasPrefix(answer[0], "10.")) {
			err = errors.New("the answer is " + strings.Join(answer, ", "))
		}
		return err
	})
}

// clusterDNS returns the kubeconfig for the part of CoreDNS that stands in for the name server of the cluster.
func clusterDNS(ctx context.Context) string {
	GinkgoHelper()
	suite.Grant(ctx, c, "kube-system", "cluster-dns",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces", "services"}, Verbs: []string{"list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
	)
	path, err := env.ServiceAccountKubeconfig(GinkgoT().TempDir(), "kube-system", "cluster-dns")
	Expect(err).NotTo(HaveOccurred())
	return path
}

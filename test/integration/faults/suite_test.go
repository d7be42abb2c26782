// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package faults_test runs the seed instance as a process of its own, with the permissions of the chart, against a real
// kube-apiserver, etcd, CoreDNS and gardener-resource-manager, and takes away what it needs: its life, its Lease, the state of
// the cluster, room on its disks, CoreDNS. Afterwards nothing may be lost, duplicated or stuck.
//
// FAULT_KILLS and FAULT_OBJECTS are the numbers of kills and objects; -ginkgo.seed repeats a run.
package faults_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
)

var (
	env     *environment.Environment
	c       client.Client
	program *environment.Program
	// config and access are those of all instances.
	config  *configv1alpha1.ExtensionConfiguration
	access  *rest.Config
	buckets string

	resourceManager *suite.Running

	coreDNS  *environment.CoreDNS
	corefile string
	dnsPort  int
)

func TestFaults(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "An instance that loses what it needs")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText, logzap.WriteTo(GinkgoWriter)))

	By("building the program")
	var err error
	program, err = environment.BuildProgram(GinkgoT().TempDir(), "gardenlet-extension")
	Expect(err).NotTo(HaveOccurred())

	By("starting the API server")
	env, err = environment.Start(suite.NewScheme(extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme), environment.Restartable())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	c = env.Client
	Expect(env.CreateNamespaces(ctx, gardenNamespace, instanceNamespace)).To(Succeed())
	Expect(c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: gardenNamespace, Name: "backup"}})).To(Succeed())

	By("running gardener-resource-manager")
	runResourceManager()
	DeferCleanup(func() { resourceManager.Stop() })

	By("configuring the instance by the chart")
	release, err := env.InstallChart(ctx, instanceNamespace, suite.SeedValues())
	Expect(err).NotTo(HaveOccurred())
	access, err = env.ServiceAccountConfig(instanceNamespace, app.Name)
	Expect(err).NotTo(HaveOccurred())
	buckets, dnsPort = GinkgoT().TempDir(), suite.FreePort()
	config = configure(release.Config)

	By("starting CoreDNS as the instance deploys it")
	first := newInstance()
	first.start(ctx)
	corefile = suite.DeployedCorefile(ctx, c, coreDNSNamespace)
	startCoreDNS(ctx)
	DeferCleanup(func(ctx SpecContext) { Expect(coreDNS.Kill(ctx)).To(Succeed()) })
	Expect(first.process.Stop(ctx)).To(Succeed())
	Expect(first.process.ExitCode()).To(BeZero())
})

// configure leaves the controllers whose objects need neither machines nor a shoot's API server. There is no leader election: a
// process that was killed would keep the next one waiting until its Lease has expired.
func configure(config *configv1alpha1.ExtensionConfiguration) *configv1alpha1.ExtensionConfiguration {
	config.Backup.Directory, config.Backup.HostPath = buckets, "/on/the/node"
	config.DNS.CoreDNS.Servers = []string{dnsAddress()}
	config.DNS.CoreDNS.ConfirmTimeout = &metav1.Duration{Duration: 3 * time.Second}
	config.LeaderElection.LeaderElect = new(false)
	suite.DisableWebhooks(config)
	c := &config.Controllers
	suite.DisableControllers(config, &c.BackupBucket, &c.BackupEntry, &c.DNSRecord, &c.Extension)
	return config
}

// instance is a process of the program.
type instance struct {
	config  *configv1alpha1.ExtensionConfiguration
	access  *rest.Config
	dir     string
	mounts  []environment.Tmpfs
	process *environment.Process
}

// newInstance returns an instance with ports of its own. It is killed at the end of the spec.
func newInstance() *instance {
	GinkgoHelper()
	i := &instance{config: config.DeepCopy(), access: access, dir: GinkgoT().TempDir()}
	suite.OwnPorts(i.config)
	DeferCleanup(func(ctx SpecContext) {
		if i.process != nil {
			Expect(i.process.Kill(ctx)).To(Succeed())
		}
	})
	return i
}

// start starts the process and waits until its informers are in sync.
func (i *instance) start(ctx context.Context) {
	GinkgoHelper()
	i.startOnly()
	Eventually(i.isReady).WithContext(ctx).Should(Succeed(), "the instance is ready")
}

func (i *instance) startOnly() {
	GinkgoHelper()
	process, err := program.Start(i.dir, instanceNamespace, i.config, i.access, GinkgoWriter, i.mounts...)
	Expect(err).NotTo(HaveOccurred())
	i.process = process
}

// isReady fails for good if the process has ended.
func (i *instance) isReady(ctx context.Context) error {
	select {
	case <-i.process.Done():
		return StopTrying(fmt.Sprintf("the instance has ended with exit code %d", i.process.ExitCode()))
	default:
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/readyz", i.config.Server.HealthProbes.Port), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz says %s", response.Status)
	}
	return nil
}

func runResourceManager() {
	GinkgoHelper()
	resourceManager = suite.Run("gardener-resource-manager", func(ctx context.Context) error {
		return env.RunResourceManager(ctx, environment.ResourceManagerOptions{Class: "seed"})
	})
}

func startCoreDNS(ctx context.Context) {
	GinkgoHelper()
	coreDNS = suite.StartCoreDNS(env, coreDNSNamespace, corefile, dnsPort, func(*environment.CoreDNS) error {
		_, err := matchers.Resolve(ctx, "udp", dnsAddress(), "local.gardener.cloud", dns.TypeSOA)
		return err
	})
}

// resolve asks a server for the record of an object.
func resolve(ctx context.Context, server string, o *object) ([]string, error) {
	return matchers.Resolve(ctx, "tcp", server, domainOf(o.group), dns.TypeA)
}

func dnsAddress() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(dnsPort)) }

// number returns what an environment variable says, or what CI has time for.
func number(variable string, inCI int) int {
	GinkgoHelper()
	value := os.Getenv(variable)
	if value == "" {
		return inCI
	}
	n, err := strconv.Atoi(value)
	Expect(err).NotTo(HaveOccurred(), variable)
	return n
}

// report prints what was watched, also of a run that succeeds.
func report(format string, args ...any) {
	AddReportEntry("watched", fmt.Sprintf(format, args...), ReportEntryVisibilityAlways)
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package operator_test runs the garden instance, as the program runs it, against a real kube-apiserver and etcd, a real
// CoreDNS, and with no more permissions than those of the chart.
package operator_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/logger"

	"github.com/gardener/gardener-extension-provider-local/operator-extension/app"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
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

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubernetesscheme.AddToScheme, extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme} {
		Expect(add(scheme)).To(Succeed())
	}

	By("starting the API server")
	var err error
	env, err = environment.Start(scheme)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	c = env.Client
	Expect(env.CreateNamespaces(ctx, gardenNamespace, instanceNamespace)).To(Succeed())
	Expect(c.Create(ctx, secret("backup"))).To(Succeed())
	Expect(c.Create(ctx, secret("dns"))).To(Succeed())

	By("running gardener-resource-manager for ManagedResources of class seed")
	managerCtx, cancel := context.WithCancel(context.Background())
	managerDone := make(chan struct{})
	DeferCleanup(func() {
		cancel()
		Eventually(managerDone).Should(BeClosed())
	})
	go func() {
		defer GinkgoRecover()
		defer close(managerDone)
		Expect(env.RunResourceManager(managerCtx, environment.ResourceManagerOptions{Class: "seed"})).To(Succeed())
	}()

	By("running the instance with the permissions of the chart")
	dnsPort, err = environment.FreePort()
	Expect(err).NotTo(HaveOccurred())
	release, err = env.InstallChart(ctx, instanceNamespace, map[string]any{
		"gardener": map[string]any{"runtimeCluster": map[string]any{"enabled": "true", "priorityClassName": "gardener-garden-system-200"}},
		"image":    "operator-extension:test",
		"dns":      map[string]any{"coreDNS": map[string]any{"image": "coredns:test"}},
	})
	Expect(err).NotTo(HaveOccurred())
	instanceConfig, err = env.ServiceAccountConfig(instanceNamespace, app.Name)
	Expect(err).NotTo(HaveOccurred())
	buckets = GinkgoT().TempDir()
	running = start(nil)
	DeferCleanup(func() { running.stop() })

	By("starting CoreDNS as the instance deployed it")
	coreDNS = startCoreDNS(ctx)
	DeferCleanup(func(ctx SpecContext) { Expect(coreDNS.Kill(ctx)).To(Succeed()) })
})

// process is a running instance.
type process struct {
	cancel context.CancelFunc
	done   chan error
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
	for _, server := range []*configv1alpha1.Server{config.Server.HealthProbes, config.Server.Metrics} {
		port, err := environment.FreePort()
		Expect(err).NotTo(HaveOccurred())
		server.BindAddress, server.Port = "127.0.0.1", port
	}
	if change != nil {
		change(config)
	}

	ctx, cancel := context.WithCancel(context.Background())
	p := &process{
		cancel:  cancel,
		done:    make(chan error, 1),
		health:  fmt.Sprintf("http://127.0.0.1:%d", config.Server.HealthProbes.Port),
		metrics: fmt.Sprintf("http://127.0.0.1:%d", config.Server.Metrics.Port),
	}
	go func() {
		p.done <- app.Run(ctx, app.Options{
			Log:          logf.Log,
			Config:       config,
			RESTConfig:   rest.CopyConfig(instanceConfig),
			Namespace:    instanceNamespace,
			AllowRestart: true,
		})
	}()
	return p
}

// stop stops the instance as a signal would and waits for its end.
func (p *process) stop() {
	GinkgoHelper()
	p.cancel()
	Eventually(p.done).WithTimeout(40*time.Second).Should(Receive(BeNil()), "an instance that is told to stop ends without an error")
	p.done <- nil
}

// restart stops the instance that runs, does something, and runs another one.
func restart(meanwhile func()) {
	GinkgoHelper()
	running.stop()
	meanwhile()
	running = start(nil)
}

func startCoreDNS(ctx context.Context) *environment.CoreDNS {
	GinkgoHelper()

	corefile := &corev1.ConfigMap{}
	Eventually(func(g Gomega) {
		select {
		case err := <-running.done:
			running.done <- err
			StopTrying("the instance has ended").Wrap(err).Now()
		default:
		}
		configMaps := &corev1.ConfigMapList{}
		g.Expect(c.List(ctx, configMaps, client.InNamespace(coreDNSNamespace))).To(Succeed())
		for _, configMap := range configMaps.Items {
			if configMap.Data["Corefile"] != "" {
				*corefile = configMap
			}
		}
		g.Expect(corefile.Data).To(HaveKey("Corefile"))
	}).Should(Succeed(), "the instance deploys CoreDNS by a ManagedResource")

	dir := GinkgoT().TempDir()
	kubeconfig, err := env.ServiceAccountKubeconfig(dir, coreDNSNamespace, "coredns")
	Expect(err).NotTo(HaveOccurred())
	logs, err := os.Create(filepath.Join(dir, "log"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(logs.Close)
	server, err := environment.StartCoreDNS(corefile.Data["Corefile"], kubeconfig, coreDNSNamespace, dir, dnsPort, logs)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error {
		select {
		case <-server.Done():
			log, _ := os.ReadFile(logs.Name())
			return StopTrying("CoreDNS has ended: " + string(log))
		default:
		}
		_, err := resolve(ctx, "udp", "local.gardener.cloud", dns.TypeSOA)
		return err
	}).Should(Succeed(), "CoreDNS answers")
	return server
}

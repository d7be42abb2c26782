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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
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
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

const (
	gardenNamespace   = "garden"
	instanceNamespace = "extension-provider-local"
	coreDNSNamespace  = configv1alpha1.DefaultCoreDNSNamespace
	rootForward       = "forward . /etc/resolv.conf"
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

	By("running gardener-resource-manager")
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
	port, err := environment.FreePort()
	Expect(err).NotTo(HaveOccurred())
	running = newInstance(ctx, fmt.Sprintf("127.0.0.1:%d", port))
	running.start()
	DeferCleanup(func() { running.stop() })

	By("starting CoreDNS as the instance deployed it")
	coreDNS = startCoreDNS(ctx, port)
	DeferCleanup(func(ctx SpecContext) { Expect(coreDNS.Kill(ctx)).To(Succeed()) })
})

// instance runs the seed instance, and again.
type instance struct {
	config     *configv1alpha1.ExtensionConfiguration
	restConfig *rest.Config
	cancel     context.CancelFunc
	done       chan struct{}
	err        error
}

// newInstance returns an instance that does nothing but DNS: gateways get their addresses from the specs.
func newInstance(ctx context.Context, server string) *instance {
	GinkgoHelper()
	release, err := env.InstallChart(ctx, instanceNamespace, map[string]any{
		"image":        "gardenlet-extension:test",
		"dns":          map[string]any{"coreDNS": map[string]any{"image": "coredns:test"}},
		"controlPlane": map[string]any{"localPathProvisioner": map[string]any{"image": "local-path-provisioner:test"}},
	})
	Expect(err).NotTo(HaveOccurred())
	restConfig, err := env.ServiceAccountConfig(instanceNamespace, app.Name)
	Expect(err).NotTo(HaveOccurred())

	config := release.Config
	controllers, webhooks := &config.Controllers, &config.Webhooks
	for _, controller := range []*configv1alpha1.ControllerConfiguration{&controllers.BackupBucket, &controllers.BackupEntry, &controllers.Extension,
		&controllers.ControlPlane, &controllers.Ingress, &controllers.Service, &controllers.HealthCheck.ControllerConfiguration} {
		controller.Disabled = true
	}
	for _, webhook := range []*configv1alpha1.WebhookConfiguration{&webhooks.ControlPlane, &webhooks.DNSConfig, &webhooks.MachineControllerManager,
		&webhooks.Node, &webhooks.Shoot, &webhooks.ETCD} {
		webhook.Disabled = true
	}
	config.Backup.Directory = GinkgoT().TempDir()
	config.DNS.CoreDNS.Servers = []string{server}
	for _, own := range []**configv1alpha1.Server{&config.Server.HealthProbes, &config.Server.Metrics, &config.Server.Webhooks} {
		port, err := environment.FreePort()
		Expect(err).NotTo(HaveOccurred())
		*own = &configv1alpha1.Server{BindAddress: "127.0.0.1", Port: port}
	}
	return &instance{config: config, restConfig: restConfig}
}

func (i *instance) start() {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	i.cancel, i.done = cancel, done
	go func() {
		defer close(done)
		i.err = app.Run(ctx, app.Options{
			Log: logf.Log, Config: i.config.DeepCopy(), RESTConfig: rest.CopyConfig(i.restConfig), Namespace: instanceNamespace, AllowRestart: true,
		})
	}()
}

func (i *instance) stop() {
	GinkgoHelper()
	i.cancel()
	Eventually(i.done).Should(BeClosed(), "the instance ends when it is told to")
	Expect(i.err).NotTo(HaveOccurred())
}

func startCoreDNS(ctx context.Context, port int) *environment.CoreDNS {
	GinkgoHelper()
	corefile := &corev1.ConfigMap{}
	Eventually(func(g Gomega) {
		select {
		case <-running.done:
			StopTrying("the instance has ended").Wrap(running.err).Now()
		default:
		}
		list := &corev1.ConfigMapList{}
		g.Expect(c.List(ctx, list, client.InNamespace(coreDNSNamespace), client.MatchingLabels{"app.kubernetes.io/name": "coredns"})).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1))
		*corefile = list.Items[0]
	}).Should(Succeed(), "the instance deploys CoreDNS by a ManagedResource")

	dir := GinkgoT().TempDir()
	kubeconfig, err := env.ServiceAccountKubeconfig(dir, coreDNSNamespace, "coredns")
	Expect(err).NotTo(HaveOccurred())
	services := clusterDNS(ctx, dir)
	Expect(corefile.Data["Corefile"]).To(ContainSubstring(rootForward))
	contents := strings.ReplaceAll(corefile.Data["Corefile"], rootForward, "kubernetes cluster.local {\n kubeconfig "+services+"\n }")

	logs, err := os.Create(filepath.Join(dir, "log"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(logs.Close)
	server, err := environment.StartCoreDNS(contents, kubeconfig, coreDNSNamespace, dir, port, logs)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error {
		select {
		case <-server.Done():
			log, err := os.ReadFile(logs.Name())
			return StopTrying("CoreDNS has ended: " + string(log)).Wrap(err)
		default:
		}
		answer, err := matchers.Resolve(ctx, "udp", server.Address, "kubernetes.default.svc.cluster.local", dns.TypeA)
		if err == nil && (len(answer) != 1 || !strings.HasPrefix(answer[0], "10.")) {
			err = errors.New("the answer is " + strings.Join(answer, ", "))
		}
		return err
	}).Should(Succeed(), "CoreDNS answers")
	return server
}

// clusterDNS returns the kubeconfig for the part of CoreDNS that stands in for the name server of the cluster.
func clusterDNS(ctx context.Context, dir string) string {
	GinkgoHelper()
	Expect(c.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "cluster-dns"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces", "services"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
	}})).To(Succeed())
	Expect(c.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-dns"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-dns"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "cluster-dns"}},
	})).To(Succeed())
	path, err := env.ServiceAccountKubeconfig(dir, "kube-system", "cluster-dns")
	Expect(err).NotTo(HaveOccurred())
	return path
}

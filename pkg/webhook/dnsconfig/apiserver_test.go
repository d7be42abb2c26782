// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dnsconfig_test

import (
	"context"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/dnsconfig"
)

const (
	shootNamespace = "shoot--project--name"
	dnsNamespace   = "coredns"
	user           = "restricted"
)

// TestMendingWithAnAPIServer shows against a real API server that objects written before the webhooks served are mended,
// by a user who may do just what the documentation of the package says.
func TestMendingWithAnAPIServer(t *testing.T) {
	if os.Getenv("TEST_ASSET_KUBE_APISERVER") == "" || os.Getenv("TEST_ASSET_ETCD") == "" {
		t.Skip("TEST_ASSET_KUBE_APISERVER and TEST_ASSET_ETCD name no API server and etcd; `make test` does")
	}
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(20 * time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	env := &envtest.Environment{}
	config, err := env.Start()
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(env.Stop()).To(Succeed()) }()
	admin, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	g.Expect(err).NotTo(HaveOccurred())

	prober, exporter := deployment("garden", "dependency-watchdog-prober"), deployment(shootNamespace, "blackbox-exporter")
	for _, obj := range append(namespaces(), append(permissions(), prober, exporter)...) {
		g.Expect(admin.Create(ctx, obj)).To(Succeed())
	}

	mgr, stop := start(ctx, g, env, config)
	defer stop()

	t.Run("Deployments follow as soon as CoreDNS has an address", func(t *testing.T) {
		g := NewWithT(t)
		g.SetDefaultEventuallyTimeout(20 * time.Second)
		for _, obj := range []*appsv1.Deployment{prober, exporter} {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
			g.Expect(obj.Spec.Template.Spec.DNSPolicy).To(Equal(corev1.DNSClusterFirst))
		}

		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: dnsNamespace, Name: "coredns"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}}}}
		g.Expect(admin.Create(ctx, service)).To(Succeed())
		for _, obj := range []*appsv1.Deployment{prober, exporter} {
			g.Eventually(func(g Gomega) {
				g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
				g.Expect(obj.Spec.Template.Spec.DNSPolicy).To(Equal(corev1.DNSNone))
				g.Expect(obj.Spec.Template.Spec.DNSConfig.Nameservers).To(Equal(service.Spec.ClusterIPs))
			}).Should(Succeed())
		}

		machine := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: shootNamespace, Name: "machine", Labels: map[string]string{"app": "machine", "machine-provider": "local"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Image: "node"}}},
		}
		g.Expect(admin.Create(ctx, machine)).To(Succeed())
		g.Expect(machine.Spec.DNSPolicy).To(Equal(corev1.DNSNone))
		g.Expect(machine.Spec.DNSConfig.Nameservers).To(Equal(service.Spec.ClusterIPs))
		machine.Labels["new"] = "label"
		g.Expect(admin.Update(ctx, machine)).To(Succeed(), "what is immutable is not touched")
	})

	t.Run("a second time nothing is written", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(dnsconfig.Touch(ctx, mgr.GetAPIReader(), mgr.GetClient(), dnsNamespace)).To(Succeed())
		version := prober.ResourceVersion
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(prober), prober)).To(Succeed())
		g.Expect(prober.ResourceVersion).To(Equal(version))
	})
}

// start runs a manager with the webhooks as the restricted user, and registers them.
func start(ctx context.Context, g Gomega, env *envtest.Environment, config *rest.Config) (manager.Manager, func()) {
	serving := &env.WebhookInstallOptions
	restricted := rest.CopyConfig(config)
	restricted.Impersonate = rest.ImpersonationConfig{UserName: user}
	mgr, err := manager.New(restricted, manager.Options{
		Logger: logr.Discard(), Scheme: scheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:         cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Service{}: {Namespaces: map[string]cache.Config{dnsNamespace: {}}}}},
		Controller:    controllerconfig.Controller{SkipNameValidation: new(true)},
		WebhookServer: webhook.NewServer(webhook.Options{Host: serving.LocalServingHost, Port: serving.LocalServingPort, CertDir: serving.LocalServingCertDir}),
	})
	g.Expect(err).NotTo(HaveOccurred())

	webhooks, err := dnsconfig.New(mgr, dnsconfig.Options{Namespace: dnsNamespace, ClusterDomain: "cluster.local"})
	g.Expect(err).NotTo(HaveOccurred())
	for _, w := range webhooks {
		mgr.GetWebhookServer().Register("/"+w.Path, w.Webhook)
	}

	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	g.Eventually(func() error { return mgr.GetWebhookServer().StartedChecker()(nil) }).Should(Succeed())

	registration, _, err := extensionswebhook.BuildWebhookConfigs(webhooks, mgr.GetClient(), "extension", "local", false, 0, extensionswebhook.ModeURL, "127.0.0.1", serving.LocalServingCAData, false)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(register(ctx, config, serving, registration.MutatingWebhookConfig, webhooks)).To(Succeed())
	return mgr, func() {
		cancel()
		g.Eventually(done).Should(Receive(BeNil()))
	}
}

// register points the webhooks to the manager's server, and has the API server wait for each of them.
func register(ctx context.Context, config *rest.Config, serving *envtest.WebhookInstallOptions, registration *admissionregistrationv1.MutatingWebhookConfiguration, webhooks []*extensionswebhook.Webhook) error {
	admin, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return err
	}
	for i := range registration.Webhooks {
		registration.Webhooks[i].ClientConfig.URL = new("https://" + net.JoinHostPort(serving.LocalServingHost, strconv.Itoa(serving.LocalServingPort)) + "/" + webhooks[i].Path)
		registration.Webhooks[i].FailurePolicy = new(admissionregistrationv1.Fail)
	}
	return admin.Create(ctx, registration)
}

func namespaces() []client.Object {
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "garden"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: dnsNamespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shootNamespace, Labels: map[string]string{"shoot.gardener.cloud/provider": "local"}}},
	}
}

// permissions are what the package needs.
func permissions() []client.Object {
	return []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list"}},
			{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{"blackbox-exporter", "dependency-watchdog-prober"}, Verbs: []string{"patch"}},
		}},
		binding(user),
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: dnsNamespace, Name: user}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"list", "watch"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: dnsNamespace, Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: user},
			Subjects:   []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: user}},
		},
	}
}

func binding(role string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: user}},
	}
}

func deployment(namespace, name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}},
			},
		},
	}
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package admission_test runs the admission webhooks, as the program runs them, against a real gardener-apiserver behind a
// real kube-apiserver, and with no more permissions than those of the two charts. One cluster is both the garden runtime
// cluster and the virtual garden here; the program has a ServiceAccount for each.
package admission_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"
	"github.com/gardener/gardener/pkg/logger"

	"github.com/gardener/gardener-extension-provider-local/operator-extension/app"
	"github.com/gardener/gardener-extension-provider-local/pkg/admission"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const (
	gardenNamespace = "garden"
	ownerNamespace  = "extension-provider-local"
	project         = "garden-local"
	gardenAccount   = "extension-admission-provider-local"
)

var (
	c       client.Client
	config  *configv1alpha1.AdmissionConfiguration
	start   func() *suite.Running
	running *suite.Running
)

func TestAdmission(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Admission through a real gardener-apiserver")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.DebugLevel, logger.FormatText))

	By("starting the garden")
	garden := startGarden(ctx)
	var err error
	c, err = client.New(garden.Config, client.Options{Scheme: suite.NewScheme(gardencorev1beta1.AddToScheme, securityv1alpha1.AddToScheme)})
	Expect(err).NotTo(HaveOccurred())
	for _, namespace := range []string{gardenNamespace, ownerNamespace, project} {
		Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	}

	By("installing the charts with the values of gardener-operator")
	installChart(ctx, "runtime", gardenNamespace, map[string]any{
		"runtimeCluster": map[string]any{"priorityClassName": "gardener-garden-system-400"},
		"virtualCluster": map[string]any{"enabled": true, "namespace": ownerNamespace},
	})
	installChart(ctx, "application", ownerNamespace, map[string]any{
		"virtualCluster": map[string]any{"enabled": true, "serviceAccount": map[string]any{"name": gardenAccount, "namespace": metav1.NamespaceSystem}},
	})
	Expect(config).NotTo(BeNil())

	By("running the program with the permissions of the charts")
	runtimeAccess := account(garden, gardenNamespace, admission.Name)
	gardenAccess := account(garden, metav1.NamespaceSystem, gardenAccount)
	for _, server := range []**configv1alpha1.Server{&config.Server.HealthProbes, &config.Server.Metrics, &config.Server.Webhooks} {
		*server = &configv1alpha1.Server{BindAddress: "127.0.0.1", Port: suite.FreePort()}
	}
	start = func() *suite.Running {
		return suite.Run("the admission", func(ctx context.Context) error {
			return app.RunAdmission(ctx, app.AdmissionOptions{
				Log: logf.Log, Config: config.DeepCopy(), Garden: gardenAccess, Runtime: runtimeAccess, Namespace: gardenNamespace,
				URL: net.JoinHostPort("127.0.0.1", strconv.Itoa(config.Server.Webhooks.Port)),
			})
		})
	}
	running = start()
	DeferCleanup(func() { running.Stop() })
	waitUntilCalled(ctx)
})

// account returns the access of a ServiceAccount: nothing but what RBAC gives to it.
func account(garden *envtest.Environment, namespace, name string) *rest.Config {
	GinkgoHelper()
	user, err := garden.AddUser(envtest.User{
		Name:   "system:serviceaccount:" + namespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}, rest.CopyConfig(garden.Config))
	Expect(err).NotTo(HaveOccurred())
	return user.Config()
}

// installChart creates the permissions of a chart, and reads the configuration of the program.
func installChart(ctx context.Context, name, namespace string, gardener map[string]any) {
	GinkgoHelper()
	renderer, err := chart.NewRenderer("v1.36.3")
	Expect(err).NotTo(HaveOccurred())
	objects, err := renderer.Render(ctx, chart.Embedded(os.DirFS(filepath.Join("..", "..", "..", "charts", "admission-local")), name),
		chart.Release{Name: "provider-local", Namespace: namespace}, map[string]any{"gardener": gardener, "image": "operator-extension:test"})
	Expect(err).NotTo(HaveOccurred())
	for _, obj := range objects {
		switch kind := obj.GetObjectKind().GroupVersionKind().Kind; kind {
		case "Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
			Expect(c.Create(ctx, obj)).To(Succeed())
		case "ConfigMap":
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
			Expect(err).NotTo(HaveOccurred())
			file, _, err := unstructured.NestedString(content, "data", "config.yaml")
			Expect(err).NotTo(HaveOccurred())
			config = &configv1alpha1.AdmissionConfiguration{}
			Expect(configv1alpha1.Decode([]byte(file), config)).To(Succeed())
		}
	}
}

// waitUntilCalled waits until both API servers call the webhooks: they learn of a registration by a watch.
func waitUntilCalled(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		registered := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		g.Expect(c.Get(ctx, client.ObjectKey{Name: admission.Name}, registered)).To(Succeed())
		g.Expect(registered.Webhooks).To(HaveEach(HaveField("ClientConfig.CABundle", Not(BeEmpty()))))
	}).Should(Succeed())
	dryRun := func(obj client.Object) func() error {
		return func() error { return c.Create(ctx, obj.DeepCopyObject().(client.Object), client.DryRunAll) }
	}
	bad := cloudProfile("probe")
	bad.Spec.ProviderConfig = nil
	Eventually(dryRun(bad)).Should(MatchError(ContainSubstring("spec.providerConfig: Required value")))
	Eventually(dryRun(credentials("probe", map[string][]byte{"kubeconfig": []byte("x")}, true))).Should(MatchError(ContainSubstring("data[kubeconfig]: Invalid value")))
}

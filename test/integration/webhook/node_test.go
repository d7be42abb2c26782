// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/node"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

// The API server is the seed's and, for the second webhook, that of a shoot.
var _ = Describe("Webhooks for Nodes", Ordered, func() {
	const (
		serviceAccount = "nodes"
		nodeShoot      = "shoot--local--nodes"
	)
	var (
		mgr        manager.Manager
		webhooks   []*extensionswebhook.Webhook
		registered = make(chan struct{})
		capacity   = configv1alpha1.NodeCapacity{CPU: new(resource.MustParse("100")), Memory: new(resource.MustParse("100Gi"))}
	)

	BeforeAll(func(ctx SpecContext) {
		scheme := suite.NewScheme(extensionsv1alpha1.AddToScheme)

		By("giving what the package says that it needs")
		config := suite.Account(ctx, env, instanceNamespace, serviceAccount,
			rbacv1.PolicyRule{APIGroups: []string{"extensions.gardener.cloud"}, Resources: []string{"clusters"}, Verbs: []string{"get", "list", "watch"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
		)

		var err error
		mgr, err = manager.New(config, manager.Options{Scheme: scheme, Controller: suite.Controllers(), Metrics: metricsserver.Options{BindAddress: "0"}})
		Expect(err).NotTo(HaveOccurred())
		webhooks = node.New(mgr, node.Options{Capacity: capacity, GPUResourceName: "nvidia.com/gpu"})
		Expect(node.AddTouchToManager(mgr, capacity, registered)).To(Succeed())

		admin, err := client.New(env.Config, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		Expect(admin.Create(ctx, clusterWithPool(nodeShoot))).To(Succeed())

		suite.Background("the manager", mgr.Start)
	})

	newNode := func(name string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"worker.gardener.cloud/pool": "small"}},
			Status: corev1.NodeStatus{
				Capacity:    corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110")},
				Allocatable: corev1.ResourceList{"cpu": resource.MustParse("7920m"), "memory": resource.MustParse("15Gi"), "pods": resource.MustParse("110")},
			},
		}
	}
	// says returns cpu, memory, pods and then the same of what is allocatable.
	says := func(ctx SpecContext, name string) []string {
		GinkgoHelper()
		got := &corev1.Node{}
		Expect(c.Get(ctx, client.ObjectKey{Name: name}, got)).To(Succeed())
		var result []string
		for _, list := range []corev1.ResourceList{got.Status.Capacity, got.Status.Allocatable} {
			result = append(result, list.Cpu().String(), list.Memory().String(), list.Pods().String())
		}
		return result
	}
	measured := []string{"8", "16Gi", "110", "7920m", "15Gi", "110"}
	ofSeed := []string{"100", "100Gi", "110", "99920m", "99Gi", "110"}

	create := func(ctx SpecContext, name string) {
		GinkgoHelper()
		Expect(c.Create(ctx, newNode(name))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(c.Delete(ctx, newNode(name))).To(Succeed()) })
	}

	It("should have an empty patch bring Nodes to the webhook that are older than it", func(ctx SpecContext) {
		create(ctx, "older")
		Expect(says(ctx, "older")).To(Equal(measured))

		register(ctx, webhooks[0], "")
		close(registered)
		Eventually(says).WithArguments(ctx, "older").Should(Equal(ofSeed))
	})

	It("should set the capacity of a Node that a kubelet registers or updates, and write nothing twice", func(ctx SpecContext) {
		register(ctx, webhooks[0], "")
		eventuallyCalled(ctx, newNode("probe"), "100")

		create(ctx, "registered")
		Expect(says(ctx, "registered")).To(Equal(ofSeed))

		// A kubelet sends the difference between what it has measured and what it has read.
		patch := []byte(`{"status":{"capacity":{"cpu":"8","memory":"16Gi"},"allocatable":{"cpu":"7920m","memory":"15Gi"}}}`)
		// With the first one it becomes the manager of the fields.
		updated := newNode("registered")
		Expect(c.Status().Patch(ctx, updated, client.RawPatch(types.StrategicMergePatchType, patch))).To(Succeed())
		version := updated.ResourceVersion
		Expect(c.Status().Patch(ctx, updated, client.RawPatch(types.StrategicMergePatchType, patch))).To(Succeed())
		Expect(says(ctx, "registered")).To(Equal(ofSeed))
		Expect(updated.ResourceVersion).To(Equal(version), "the API server finds nothing to write")

		By("an update of labels")
		Expect(c.Patch(ctx, updated, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)))).To(Succeed())
		Expect(says(ctx, "registered")).To(Equal(ofSeed))
	})

	It("should give a shoot's Node what its machine type says", func(ctx SpecContext) {
		register(ctx, webhooks[1], nodeShoot)
		eventuallyCalled(ctx, newNode("probe"), "4")
		create(ctx, "machine")
		Expect(says(ctx, "machine")).To(Equal([]string{"4", "8Gi", "110", "3920m", "7Gi", "110"}))
	})

	It("should let Nodes report while nobody serves", func(ctx SpecContext) {
		server := register(ctx, webhooks[0], "")
		eventuallyCalled(ctx, newNode("probe"), "100")
		server.Close()
		create(ctx, "alone")
		Expect(says(ctx, "alone")).To(Equal(measured))
	})
})

// eventuallyCalled waits until the API server calls the webhook, which gives Nodes so many CPUs.
func eventuallyCalled(ctx SpecContext, probe *corev1.Node, cpu string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		probed := probe.DeepCopy()
		g.Expect(c.Create(ctx, probed, client.DryRunAll)).To(Succeed())
		g.Expect(probed.Status.Capacity.Cpu().String()).To(Equal(cpu))
	}).Should(Succeed())
}

// register serves the webhook, as for that shoot if one is given, and registers it as package webhook does, until the spec
// ends.
func register(ctx SpecContext, target *extensionswebhook.Webhook, namespace string) *httptest.Server {
	GinkgoHelper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target.Webhook.ServeHTTP(w, r.WithContext(webhook.WithShootNamespace(r.Context(), namespace)))
	}))
	DeferCleanup(server.Close)

	var rules []admissionregistrationv1.RuleWithOperations
	for _, t := range target.Types {
		name := "nodes"
		if t.Subresource != nil {
			name += "/" + *t.Subresource
		}
		rules = append(rules, admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{name}},
		})
	}
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "nodes"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: target.Name + ".provider-local.gardener.cloud", Rules: rules,
			FailurePolicy: target.FailurePolicy, TimeoutSeconds: target.TimeoutSeconds,
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      new(server.URL + "/" + target.Path),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
		}},
	}
	Expect(c.Create(ctx, configuration)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(c.Delete(ctx, configuration)).To(Succeed()) })
	return server
}

func clusterWithPool(name string) *extensionsv1alpha1.Cluster {
	raw := func(obj any) runtime.RawExtension {
		data, err := json.Marshal(obj)
		Expect(err).NotTo(HaveOccurred())
		return runtime.RawExtension{Raw: data}
	}
	gardencore := gardencorev1beta1.SchemeGroupVersion.String()
	return &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: extensionsv1alpha1.ClusterSpec{
			CloudProfile: raw(&gardencorev1beta1.CloudProfile{
				TypeMeta: metav1.TypeMeta{APIVersion: gardencore, Kind: "CloudProfile"},
				Spec: gardencorev1beta1.CloudProfileSpec{MachineTypes: []gardencorev1beta1.MachineType{
					{Name: "local", CPU: resource.MustParse("4"), Memory: resource.MustParse("8Gi")},
				}},
			}),
			Seed: new(raw(&gardencorev1beta1.Seed{TypeMeta: metav1.TypeMeta{APIVersion: gardencore, Kind: "Seed"}})),
			Shoot: raw(&gardencorev1beta1.Shoot{
				TypeMeta: metav1.TypeMeta{APIVersion: gardencore, Kind: "Shoot"},
				Spec: gardencorev1beta1.ShootSpec{Provider: gardencorev1beta1.Provider{Workers: []gardencorev1beta1.Worker{
					{Name: "small", Machine: gardencorev1beta1.Machine{Type: "local"}},
				}}},
			}),
		},
	}
}

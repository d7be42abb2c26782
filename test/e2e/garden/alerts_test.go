// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package garden_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

// The alerts of the chart in a Prometheus, in shorter times than theirs: each fires if what it is for happens.
var _ = Describe("The alerts", Label("observability"), Serial, Ordered, func() {
	var prometheus landscape.Prometheus
	// firing returns the names of the alerts that fire.
	firing := func(ctx context.Context) ([]string, error) {
		rules, err := prometheus.AlertingRules(ctx, "e2e")
		names := []string{}
		for _, rule := range rules {
			if rule.State == "firing" {
				names = append(names, rule.Name)
			}
		}
		return names, err
	}
	// Prometheus asks an instance and looks at the rules each minute, and rates need three minutes.
	const patience = 8 * time.Minute
	eventually := func(ctx context.Context, actual any) AsyncAssertion {
		return Eventually(actual).WithContext(ctx).WithTimeout(patience).WithPolling(5 * time.Second)
	}

	BeforeAll(func(ctx SpecContext) {
		landscape.RequireObservability()
		prometheus = landscape.Prometheus{Name: "garden", Clientset: clientset}
		rules := &monitoringv1.PrometheusRule{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: instanceNamespace, Name: instanceName}, rules)).To(Succeed())
		quick := &monitoringv1.PrometheusRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: instanceNamespace, Name: "e2e", Labels: map[string]string{"prometheus": rules.Labels["prometheus"]}},
			Spec:       rules.Spec,
		}
		quick.Spec.Groups[0].Name = "e2e"
		for i := range quick.Spec.Groups[0].Rules {
			shorten(&quick.Spec.Groups[0].Rules[i])
		}
		create(ctx, quick)
		eventually(ctx, func() ([]landscape.AlertingRule, error) { return prometheus.AlertingRules(ctx, "e2e") }).Should(And(
			HaveLen(len(quick.Spec.Groups[0].Rules)), HaveEach(And(HaveField("Health", "ok"), HaveField("State", "inactive")))), "nothing is broken")
		DeferCleanup(func(ctx SpecContext) { eventually(ctx, firing).Should(BeEmpty(), "nothing is broken any more") }, NodeTimeout(patience+time.Minute))
	}, NodeTimeout(patience+time.Minute))

	It("fire while nothing can be written, and if that took long", func(ctx SpecContext) {
		webhook := hangWrites()
		create(ctx, webhook)
		asInstance := rest.CopyConfig(restConfig)
		asInstance.Impersonate.UserName = instanceUser
		instance, err := client.New(asInstance, client.Options{Scheme: c.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error {
			return instance.Patch(ctx, permissions(), client.RawPatch(types.MergePatchType, []byte("{}")), client.DryRunAll)
		}).Should(MatchError(ContainSubstring(webhook.Webhooks[0].Name)), "the API server knows the webhook")

		records := make([]*extensionsv1alpha1.DNSRecord, 20)
		for i := range records {
			records[i] = newRecord(fmt.Sprintf("e2e-alerts-%d", i), fmt.Sprintf("alerts-%d.e2e.local.gardener.cloud", i), extensionsv1alpha1.DNSRecordTypeA, "192.0.2.1")
			create(ctx, records[i])
		}
		Expect(c.Delete(ctx, permissions())).To(Succeed())
		eventually(ctx, firing).Should(ContainElements(
			"ProviderLocalDNSNotWritten", "ProviderLocalDNSFails", "ProviderLocalReconcilesFail", "ProviderLocalReconcileHangs", "ProviderLocalManagedResourcesNotWritten"))

		By("letting it write")
		Expect(c.Delete(ctx, webhook.DeepCopy())).To(Succeed())
		for _, record := range records {
			Eventually(get(ctx, record)).Should(matchers.HaveSucceeded())
		}
		eventually(ctx, firing).Should(ContainElement("ProviderLocalDNSSlow"))
		Expect(get(ctx, permissions())()).To(HaveField("DeletionTimestamp", BeNil()))
	}, SpecTimeout(30*time.Minute))

	It("fire while charts come from the cache, as their registry is down", func(ctx SpecContext) {
		repository := pushCoreDNSChart(ctx)
		changeValues(ctx, func(values map[string]any) {
			Expect(unstructured.SetNestedMap(values, map[string]any{"ref": repository, "plainHTTP": true}, "charts", "sources", "coredns")).To(Succeed())
		})
		eventually(ctx, func() ([]landscape.Sample, error) {
			return prometheus.Query(ctx, `provider_local_chart_pulls_total{result="Success"} > 0`)
		}).ShouldNot(BeEmpty(), "the chart is pulled")

		By("stopping the registry")
		DeferCleanup(startRegistry)
		stopRegistry()
		annotate := func(ctx context.Context, value string) error {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"test":`+value+`}}}`))
			return c.Patch(ctx, permissions(), patch)
		}
		DeferCleanup(annotate, "null")
		eventually(ctx, func() ([]string, error) {
			// Whenever it changes, the instance deploys CoreDNS again.
			if err := annotate(ctx, strconv.Quote(time.Now().String())); err != nil {
				return nil, err
			}
			return firing(ctx)
		}).Should(ContainElement("ProviderLocalChartsStale"))
	}, SpecTimeout(30*time.Minute))

	It("fire while no instance runs", func(ctx SpecContext) {
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: instanceNamespace, Name: "e2e"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
		}
		DeferCleanup(func(ctx SpecContext) {
			// The ReplicaSet has given up for some time.
			Expect(c.DeleteAllOf(ctx, &appsv1.ReplicaSet{}, client.InNamespace(instanceNamespace))).To(Succeed())
			Eventually(func() (int32, error) {
				deployment := &appsv1.Deployment{}
				err := c.Get(ctx, client.ObjectKey{Namespace: instanceNamespace, Name: instanceName}, deployment)
				return deployment.Status.ReadyReplicas, err
			}).Should(BeNumerically(">", 0))
		})
		create(ctx, quota)
		Eventually(get(ctx, quota)).Should(HaveField("Status.Hard", Not(BeEmpty())))
		Expect(c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(instanceNamespace))).To(Succeed())
		eventually(ctx, firing).Should(ConsistOf("ProviderLocalDown"))
	}, SpecTimeout(30*time.Minute))
})

var rangeOfRates = regexp.MustCompile(`\[\d+m\]`)

// shorten has an alert fire within minutes: it looks at three minutes, the least that a rate needs, and does not wait.
func shorten(rule *monitoringv1.Rule) {
	expression := rangeOfRates.ReplaceAllString(rule.Expr.String(), "[3m]")
	// A reconcile hangs after three seconds, records are slow from half a second.
	expression = strings.NewReplacer("> 900", "> 3", "> 5", "> 0.5").Replace(expression)
	rule.Expr, rule.For = intstr.FromString(expression), nil
}

// hangWrites is a webhook without which the instance can write no ConfigMap and no ManagedResource, and which never answers.
func hangWrites() *admissionregistrationv1.ValidatingWebhookConfiguration {
	GinkgoHelper()
	// The kernel takes connections, and nobody reads from them.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(silent.Close)
	rule := func(group, resource string) admissionregistrationv1.RuleWithOperations {
		return admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
		}
	}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "provider-local-e2e"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "silent.e2e.local.gardener.cloud",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: new("https://" + silent.Addr().String())},
			Rules:                   []admissionregistrationv1.RuleWithOperations{rule("", "configmaps"), rule("resources.gardener.cloud", "managedresources")},
			MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "instance", Expression: fmt.Sprintf("request.userInfo.username == %q", instanceUser)}},
			TimeoutSeconds:          new(int32(5)),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// permissions is what the instance deploys for itself beside CoreDNS. Without CoreDNS no name would resolve.
func permissions() *resourcesv1alpha1.ManagedResource {
	return &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Namespace: gardenNamespace, Name: "gardener-extension-provider-local-coredns-garden"}}
}

const instanceUser = "system:serviceaccount:" + instanceNamespace + ":" + instanceName

// pushCoreDNSChart pushes the chart that the program embeds, and returns its tag.
func pushCoreDNSChart(ctx context.Context) string {
	GinkgoHelper()
	const repository = "/charts/e2e/coredns:1.0.0"
	cmd := exec.CommandContext(ctx, "go", "run", "-trimpath", "./skaffold/publish", "chart", "charts/components/coredns", registryOnHost+repository) // #nosec G204 -- a program of this repository.
	cmd.Dir = filepath.Join("..", "..", "..")
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return "registry.local.gardener.cloud:5001" + repository
}

// changeValues changes the values of the instance until the spec ends.
func changeValues(ctx context.Context, change func(values map[string]any)) {
	GinkgoHelper()
	extension := &operatorv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "provider-local"}}
	set := func(ctx context.Context, values *apiextensionsv1.JSON) {
		GinkgoHelper()
		Expect(c.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
		patch := client.MergeFrom(extension.DeepCopy())
		extension.Spec.Deployment.ExtensionDeployment.RuntimeClusterValues = values
		Expect(c.Patch(ctx, extension, patch)).To(Succeed())
	}
	Expect(c.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
	before := extension.Spec.Deployment.ExtensionDeployment.RuntimeClusterValues.DeepCopy()
	var values map[string]any
	Expect(json.Unmarshal(before.Raw, &values)).To(Succeed())
	change(values)
	changed, err := json.Marshal(values)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) { set(ctx, before) })
	set(ctx, &apiextensionsv1.JSON{Raw: changed})
}

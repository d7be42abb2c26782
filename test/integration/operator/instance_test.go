// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/managedresources"

	"github.com/gardener/gardener-extension-provider-local/operator-extension/app"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

var _ = Describe("The instance", func() {
	It("is ready once its informers are in sync, healthy, and serves metrics", func(ctx SpecContext) {
		for _, url := range []string{running.health + "/readyz", running.health + "/healthz", running.metrics + "/metrics"} {
			Eventually(status).WithContext(ctx).WithArguments(url).Should(Equal(http.StatusOK), url)
		}
	})

	It("renews its heartbeat and holds its own Lease", func(ctx SpecContext) {
		heartbeat := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: instanceNamespace, Name: "gardener-extension-heartbeat"}}
		Eventually(get(ctx, heartbeat)).Should(HaveField("Spec.HolderIdentity", HaveValue(Equal(app.Name))))
		Expect(heartbeat.Spec.RenewTime.Time).To(BeTemporally("~", time.Now(), time.Minute))
		leader := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: instanceNamespace, Name: app.Name + "-leader-election"}}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(leader), leader)).To(Succeed())
	})

	It("gives its Lease back when it stops, so that the next one starts at once", func() {
		restart(func() {
			leader := &coordinationv1.Lease{}
			Expect(c.Get(context.Background(), client.ObjectKey{Namespace: instanceNamespace, Name: app.Name + "-leader-election"}, leader)).To(Succeed())
			Expect(leader.Spec.HolderIdentity).To(HaveValue(BeEmpty()))
		})
		Eventually(status).WithArguments(context.Background(), running.health+"/readyz").Should(Equal(http.StatusOK), "the next instance is ready")
	})

	DescribeTable("refuses to serve what is not its own",
		func(ctx SpecContext, message string, classes ...extensionsv1alpha1.ExtensionClass) {
			config := release.Config.DeepCopy()
			config.ExtensionClasses = classes
			Expect(app.Run(ctx, app.Options{Log: logf.Log, Config: config, RESTConfig: rest.CopyConfig(instanceConfig), Namespace: instanceNamespace, AllowRestart: true})).
				To(MatchError(ContainSubstring(message)))
		},
		Entry("no class", "no extension class given: this instance serves garden"),
		Entry("another class", `extension class "shoot" is not served by this instance`, extensionsv1alpha1.ExtensionClassShoot),
		Entry("another class beside its own", `extension class "seed" is not served`, garden, extensionsv1alpha1.ExtensionClassSeed),
	)
})

var _ = Describe("Extension", func() {
	It("gets its ServiceAccount by a compressed ManagedResource, which goes with it", func(ctx SpecContext) {
		extension := create(ctx, &extensionsv1alpha1.Extension{
			ObjectMeta: metav1.ObjectMeta{Name: "local-ext-shoot", Namespace: gardenNamespace},
			Spec:       extensionsv1alpha1.ExtensionSpec{DefaultSpec: defaultSpec("local-ext-shoot", garden)},
		})
		Eventually(get(ctx, extension)).Should(matchers.HaveSucceeded())

		mr := &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Name: "local-ext-shoot", Namespace: gardenNamespace}}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(mr), mr)).To(Succeed())
		Expect(mr.Spec.SecretRefs).To(HaveLen(1))
		data := secret(mr.Spec.SecretRefs[0].Name)
		Expect(c.Get(ctx, client.ObjectKeyFromObject(data), data)).To(Succeed())
		Expect(data.Data).To(And(HaveLen(1), HaveKey("data.yaml.br")))
		objects, err := managedresources.ExtractObjectsFromSecret(yaml.NewDecodingSerializer(unstructured.UnstructuredJSONScheme), data)
		Expect(err).NotTo(HaveOccurred())
		Expect(objects).To(HaveExactElements(And(
			HaveField("GetName()", "local-ext-shoot"), HaveField("GetNamespace()", metav1.NamespaceSystem),
		)))

		remove(ctx, extension)
		eventuallyGone(ctx, mr)
	})

	It("of class shoot is left alone", func(ctx SpecContext) {
		other := create(ctx, &extensionsv1alpha1.Extension{
			ObjectMeta: metav1.ObjectMeta{Name: "of-a-shoot", Namespace: gardenNamespace},
			Spec:       extensionsv1alpha1.ExtensionSpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local-ext-shoot"}},
		})
		bucket := create(ctx, newBucket("beside-extension"))
		Eventually(get(ctx, bucket)).Should(matchers.HaveSucceeded(), "by now the Extension would have been seen as well")
		Expect(get(ctx, other)()).To(HaveField("Finalizers", BeEmpty()))
	})

	It("leaves no Secret behind that nobody refers to", func(ctx SpecContext) {
		secrets := &corev1.SecretList{}
		Expect(c.List(ctx, secrets, client.InNamespace(gardenNamespace), client.MatchingLabels{"resources.gardener.cloud/garbage-collectable-reference": "true"})).To(Succeed())
		for _, candidate := range secrets.Items {
			Expect(candidate.Name).NotTo(ContainSubstring("local-ext-shoot"), "it was made at %s", candidate.CreationTimestamp)
		}
	})
})

// status returns the HTTP status of url.
// reconciled is how often the controller of DNSRecords has been called.
func reconciled(ctx context.Context) (sum float64) {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, running.metrics+"/metrics", nil)
	Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	lines, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	counters := regexp.MustCompile(`(?m)^controller_runtime_reconcile_total\{controller="dnsrecord",.*\} (.+)$`).FindAllStringSubmatch(string(lines), -1)
	Expect(counters).NotTo(BeEmpty())
	for _, counter := range counters {
		count, err := strconv.ParseFloat(counter[1], 64)
		Expect(err).NotTo(HaveOccurred())
		sum += count
	}
	return sum
}

func status(ctx context.Context, url string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

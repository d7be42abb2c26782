// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager"
)

const asSeedSays = seedCPU + ", " + seedMemory

var _ = Describe("The webhooks", Serial, func() {
	var instance *appsv1.Deployment

	BeforeEach(func(ctx SpecContext) {
		instance = named[*appsv1.Deployment](seedInstanceNamespace, seedInstance)
		eventuallyReady(ctx, instance)
	})

	It("give the seed's Nodes the capacity of the configuration, asked by the API server through the Service", func(ctx SpecContext) {
		Eventually(func() map[string]string { return nodes(ctx) }).Should(HaveEach(asSeedSays))
		Eventually(func() (string, error) { return admitted(ctx) }).Should(Equal(asSeedSays))

		pods, err := podsOf(ctx, seedInstanceNamespace, instance.Spec.Selector.MatchLabels)
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).To(HaveLen(1))
		port := pods[0].Annotations["prometheus.io/port"]
		metrics, err := clientset.CoreV1().Pods(seedInstanceNamespace).ProxyGet("http", pods[0].Name, port, "metrics", nil).DoRaw(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(metrics)).To(MatchRegexp(`controller_runtime_webhook_requests_total\{code="200",webhook="/node-seed"\} [1-9]`))
	})

	It("give a shoot's Node what its machine type has, asked by the URL that the shoot has", func(ctx SpecContext) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "machine", Labels: map[string]string{v1beta1constants.LabelWorkerPool: smallPool}}}
		Expect(capacityOf(reviewed(ctx, "node-shoot/"+shootNamespace, node))).To(Equal(smallCPU + ", " + smallMemory))
		node.Labels = nil
		Expect(capacityOf(reviewed(ctx, "node-shoot/"+shootNamespace, node))).To(Equal(asSeedSays))
	})

	It("block nothing while the pod is killed and comes back, and keep their certificate", func(ctx SpecContext) {
		before := served(ctx)
		Expect(c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(seedInstanceNamespace), client.GracePeriodSeconds(0),
			client.MatchingLabels(instance.Spec.Selector.MatchLabels))).To(Succeed())
		Eventually(func(g Gomega) {
			nothingIsBlocked(ctx)
			g.Expect(admitted(ctx)).To(Equal(asSeedSays))
		}).Should(Succeed(), "the new pod is asked")
		eventuallyReady(ctx, instance)
		Expect(served(ctx).Equal(before)).To(BeTrue())
	})

	It("block nothing while there is no pod at all", func(ctx SpecContext) {
		before := served(ctx)
		mr := named[*resourcesv1alpha1.ManagedResource](gardenNamespace, installation)
		annotate(ctx, mr, resourcesv1alpha1.Ignore, "true")
		DeferCleanup(func(ctx SpecContext) {
			annotate(ctx, mr, resourcesv1alpha1.Ignore, "")
			eventuallyReady(ctx, instance)
		})
		scale(ctx, instance, 0)
		Eventually(func() (string, error) { return admitted(ctx) }).ShouldNot(Equal(asSeedSays), "nobody is asked")
		nothingIsBlocked(ctx)

		scale(ctx, instance, 1)
		Eventually(func() (string, error) { return admitted(ctx) }).Should(Equal(asSeedSays))
		Expect(served(ctx).Equal(before)).To(BeTrue())
	})

	It("serve a new certificate without a restart when the Secret of the old one is deleted", func(ctx SpecContext) {
		before := served(ctx)
		pods, err := podsOf(ctx, seedInstanceNamespace, instance.Spec.Selector.MatchLabels)
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).To(HaveLen(1))

		Expect(c.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(seedInstanceNamespace),
			client.MatchingLabels{secretsmanager.LabelKeyName: "webhook-server"})).To(Succeed())
		Eventually(func() bool { return served(ctx).Equal(before) }).Should(BeFalse(), "another one is served")
		Expect(admitted(ctx)).To(Equal(asSeedSays), "the API server trusts it")

		pod := &pods[0]
		Expect(c.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed(), "it is the same pod")
		Expect(pod.Status.ContainerStatuses).To(HaveEach(HaveField("RestartCount", BeZero())))
	})
})

// admitted is the capacity of a Node that the API server would take in. Nothing is created.
func admitted(ctx context.Context) (string, error) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	err := c.Create(ctx, node, client.DryRunAll)
	return capacityOf(node), err
}

// nothingIsBlocked writes what the seed must be able to write at any time: a pod, and the status of a Node.
func nothingIsBlocked(ctx context.Context) {
	GinkgoHelper()
	begin := time.Now()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: gardenNamespace, GenerateName: "e2e-"},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "any", Image: "registry.k8s.io/pause:3.10"}}},
	}
	Expect(c.Create(ctx, pod)).To(Succeed())
	Expect(c.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
	list := &corev1.NodeList{}
	Expect(c.List(ctx, list)).To(Succeed())
	for _, node := range list.Items {
		Expect(c.Status().Patch(ctx, &node, client.RawPatch(types.MergePatchType, []byte("{}")))).To(Succeed())
	}
	Expect(time.Since(begin)).To(BeNumerically("<", 20*time.Second), "nor is it held up for long")
}

// served is the certificate that clients get at the Service. What is registered vouches for it.
func served(ctx context.Context) *x509.Certificate {
	GinkgoHelper()
	registered := named[*admissionregistrationv1.MutatingWebhookConfiguration]("", seedInstance)
	Expect(c.Get(ctx, client.ObjectKeyFromObject(registered), registered)).To(Succeed())
	Expect(registered.Webhooks).NotTo(BeEmpty())
	Expect(registered.OwnerReferences).To(ConsistOf(HaveField("Name", seedInstanceNamespace)))
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(registered.Webhooks[0].ClientConfig.CABundle)).To(BeTrue())

	service := named[*corev1.Service](seedInstanceNamespace, seedInstance)
	Expect(c.Get(ctx, client.ObjectKeyFromObject(service), service)).To(Succeed())
	dialer := &tls.Dialer{
		NetDialer: &net.Dialer{Timeout: 5 * time.Second},
		Config:    &tls.Config{RootCAs: roots, ServerName: seedInstance + "." + seedInstanceNamespace + ".svc", MinVersion: tls.VersionTLS12},
	}
	connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(service.Spec.ClusterIP, "443"))
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = connection.Close() }()
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

// reviewed asks a webhook as a shoot's API server does, which reaches the Service by its name, and returns the Node with what
// the webhook changes.
func reviewed(ctx context.Context, path string, node *corev1.Node) *corev1.Node {
	GinkgoHelper()
	raw, err := json.Marshal(node)
	Expect(err).NotTo(HaveOccurred())
	review := &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       "e2e",
			Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Node"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "nodes"},
			Name:      node.Name,
			Operation: admissionv1.Create,
			Object:    runtime.RawExtension{Raw: raw},
		},
	}
	body, err := json.Marshal(review)
	Expect(err).NotTo(HaveOccurred())
	answer, err := clientset.CoreV1().RESTClient().Post().Namespace(seedInstanceNamespace).Resource("services").
		Name("https:"+seedInstance+":webhooks").SubResource("proxy").Suffix(path).
		SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred(), string(answer))

	review = &admissionv1.AdmissionReview{}
	Expect(json.Unmarshal(answer, review)).To(Succeed())
	Expect(review.Response.Allowed).To(BeTrue())
	patch, err := jsonpatch.DecodePatch(review.Response.Patch)
	Expect(err).NotTo(HaveOccurred())
	raw, err = patch.Apply(raw)
	Expect(err).NotTo(HaveOccurred())
	changed := &corev1.Node{}
	Expect(json.Unmarshal(raw, changed)).To(Succeed())
	return changed
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package garden_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

var _ = Describe("What gardener-operator deployed", func() {
	It("is the chart that the Extension names by digest", func(ctx SpecContext) {
		extension := &operatorv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "provider-local"}}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
		ref := extension.Spec.Deployment.ExtensionDeployment.Helm.OCIRepository.GetURL()
		Expect(ref).To(ContainSubstring("@sha256:"), "the chart is pinned")

		deployment := &appsv1.Deployment{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: instanceNamespace, Name: instanceName}, deployment)).To(Succeed())
		Expect(deployment.Annotations).To(HaveKeyWithValue("resources.gardener.cloud/origin", ContainSubstring("garden/extension-provider-local-garden")))
		Expect(deployment.Spec.Template.Spec.PriorityClassName).To(Equal("gardener-garden-system-200"))
		Expect(deployment.Status.ReadyReplicas).To(BeNumerically(">=", 1))
		for _, container := range deployment.Spec.Template.Spec.Containers {
			Expect(container.Image).To(ContainSubstring("@sha256:"), "the image is pinned")
			Expect(container.SecurityContext.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()))
		}
	})

	It("lives: its heartbeat is renewed", func(ctx SpecContext) {
		lease, key := &coordinationv1.Lease{}, client.ObjectKey{Namespace: instanceNamespace, Name: "gardener-extension-heartbeat"}
		Expect(c.Get(ctx, key, lease)).To(Succeed())
		Expect(lease.Spec.HolderIdentity).To(HaveValue(Equal(instanceName)))
		first := lease.Spec.RenewTime.Time
		Eventually(func(g Gomega) {
			g.Expect(c.Get(ctx, key, lease)).To(Succeed())
			g.Expect(lease.Spec.RenewTime.Time).To(BeTemporally(">", first))
		}).WithTimeout(time.Minute).Should(Succeed(), "every 30 seconds")
	})

	It("is required and healthy", func(ctx SpecContext) {
		extension := &operatorv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "provider-local"}}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
		Expect(extension.Status.Conditions).To(ContainElement(And(
			HaveField("Type", operatorv1alpha1.ExtensionRequiredRuntime), HaveField("Status", gardencorev1beta1.ConditionTrue),
		)))

		mr := &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Namespace: gardenNamespace, Name: "extension-provider-local-garden"}}
		Eventually(get(ctx, mr)).Should(HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", resourcesv1alpha1.ResourcesHealthy), HaveField("Status", gardencorev1beta1.ConditionTrue),
		))), "what gardener-operator deployed is healthy")
	})
})

// newAgent runs a pod that asks for names (test/probe).
func newAgent(ctx context.Context) *corev1.Pod {
	GinkgoHelper()
	namespace := landscape.Create(ctx, c, landscape.Named[*corev1.Namespace]("", "e2e-garden"))
	agent := landscape.ProbePod(namespace.Name, "agent", landscape.Connect().PushProbe(ctx), "agent", "-http", ":8080")
	Eventually(func() error { return c.Create(ctx, agent) }).Should(Succeed(), "the namespace has its service account")
	landscape.EventuallyPodReady(ctx, c, agent)
	return agent
}

func ofGarden(spec extensionsv1alpha1.DefaultSpec) bool {
	return spec.Class != nil && *spec.Class == extensionsv1alpha1.ExtensionClassGarden
}

var _ = Describe("What the Garden asked for", func() {
	It("is a bucket with its Secret", func(ctx SpecContext) {
		buckets := &extensionsv1alpha1.BackupBucketList{}
		Expect(c.List(ctx, buckets)).To(Succeed())
		// A seed in the same cluster has one as well.
		buckets.Items = slices.DeleteFunc(buckets.Items, func(b extensionsv1alpha1.BackupBucket) bool { return !ofGarden(b.Spec.DefaultSpec) })
		Expect(buckets.Items).To(HaveLen(1))
		for _, bucket := range buckets.Items {
			Expect(&bucket).To(matchers.HaveSucceeded(), bucket.Name)
			Expect(bucket.Status.GeneratedSecretRef).NotTo(BeNil())
			secret := &corev1.Secret{}
			Expect(c.Get(ctx, client.ObjectKey{Namespace: bucket.Status.GeneratedSecretRef.Namespace, Name: bucket.Status.GeneratedSecretRef.Name}, secret)).To(Succeed())
			Expect(secret.Data).To(HaveKey("hostPath"))
		}
	})

	It("is an entry in the bucket, with the Secret that etcd mounts", func(ctx SpecContext) {
		entries := &extensionsv1alpha1.BackupEntryList{}
		Expect(c.List(ctx, entries)).To(Succeed())
		entries.Items = slices.DeleteFunc(entries.Items, func(e extensionsv1alpha1.BackupEntry) bool { return !ofGarden(e.Spec.DefaultSpec) })
		Expect(entries.Items).To(HaveLen(1))
		for _, entry := range entries.Items {
			Expect(&entry).To(matchers.HaveSucceeded(), entry.Name)
		}
		secret := &corev1.Secret{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: gardenNamespace, Name: "etcd-backup"}, secret)).To(Succeed())
		Expect(secret.Data).To(HaveKeyWithValue("bucketName", []byte(entries.Items[0].Spec.BucketName)))
		Expect(secret.Data).To(HaveKeyWithValue("hostPath", HavePrefix("/")))
	})

	It("is DNS records that resolve, for pods and for the host", func(ctx SpecContext) {
		records := &extensionsv1alpha1.DNSRecordList{}
		Expect(c.List(ctx, records, client.InNamespace(gardenNamespace), client.MatchingLabels{"origin": "gardener-operator"})).To(Succeed())
		Expect(len(records.Items)).To(BeNumerically(">=", 2), "the API server and the ingress domains")

		gateway := &corev1.Service{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: "virtual-garden-istio-ingress", Name: "istio-ingressgateway"}, gateway)).To(Succeed())
		agent := newAgent(ctx)
		service := &corev1.Service{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: coreDNSNamespace, Name: "coredns"}, service)).To(Succeed())
		server := net.JoinHostPort(service.Spec.ClusterIP, "53")
		ask := func(network, name string) ([]string, error) {
			report, err := landscape.Ask(ctx, clientset, agent, "resolve", map[string]string{"network": network, "server": server, "name": name})
			return report.Addresses, err
		}

		for _, record := range records.Items {
			Expect(&record).To(matchers.HaveSucceeded(), record.Name)
			name := strings.Replace(record.Spec.Name, "*", "any", 1)
			Expect(ask("udp", name)).To(ConsistOf(gateway.Spec.ClusterIP), "in-cluster clients get the gateway's Service for %s", name)
			Expect(ask("tcp", name)).To(ConsistOf(record.Spec.Values), "who asks by TCP is outside, with %s", name)
			Expect(matchers.Resolve(ctx, "tcp", hostDNSAddress(ctx), name, dns.TypeA)).To(ConsistOf(record.Spec.Values), "clients from outside get what the record says for %s", name)
		}
	})

	It("answers a client on the host that asks the landscape's name server", func(ctx SpecContext) {
		record := &extensionsv1alpha1.DNSRecord{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: gardenNamespace, Name: strings.ReplaceAll(apiDomain, ".", "-") + "-local"}, record)).To(Succeed())
		for _, network := range []string{"udp", "tcp"} {
			Expect(matchers.Resolve(ctx, network, landscape.HostDNS(), apiDomain, dns.TypeA)).To(ConsistOf(record.Spec.Values), network)
		}
	})

	It("left ManagedResources of ours that are compressed and applied", func(ctx SpecContext) {
		managedResources := &resourcesv1alpha1.ManagedResourceList{}
		Expect(c.List(ctx, managedResources, client.InNamespace(gardenNamespace))).To(Succeed())

		var ours int
		for _, mr := range managedResources.Items {
			if !strings.HasPrefix(mr.Name, "gardener-extension-provider-local-") {
				continue
			}
			ours++
			Expect(mr.Status.Conditions).To(ContainElement(And(HaveField("Type", resourcesv1alpha1.ResourcesApplied), HaveField("Status", gardencorev1beta1.ConditionTrue))), mr.Name)
			for _, ref := range mr.Spec.SecretRefs {
				secret := &corev1.Secret{}
				Expect(c.Get(ctx, client.ObjectKey{Namespace: mr.Namespace, Name: ref.Name}, secret)).To(Succeed())
				Expect(secret.Data).To(And(HaveLen(1), HaveKey("data.yaml.br")), "%s of %s", ref.Name, mr.Name)
				Expect(secret.Immutable).To(HaveValue(BeTrue()))
			}
		}
		Expect(ours).To(BeNumerically(">=", 2), "CoreDNS, and the permissions of the instance there")
	})
})

var _ = Describe("An Extension of class garden", func() {
	It("gets its ManagedResource, compressed", func(ctx SpecContext) {
		extension := &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "garden-local-ext-shoot", Namespace: gardenNamespace}}
		Eventually(get(ctx, extension)).Should(matchers.HaveSucceeded())
		mr := &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Name: "local-ext-shoot", Namespace: gardenNamespace}}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(mr), mr)).To(Succeed())
		Expect(mr.Spec.Class).To(BeNil(), "the virtual garden's gardener-resource-manager applies it")
		secret := &corev1.Secret{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: gardenNamespace, Name: mr.Spec.SecretRefs[0].Name}, secret)).To(Succeed())
		Expect(secret.Data).To(And(HaveLen(1), HaveKey("data.yaml.br")))
	})
})

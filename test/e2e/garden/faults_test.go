// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package garden_test

import (
	"context"
	"fmt"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

var _ = Describe("Bad input", func() {
	It("a bucket name that leaves the root is refused by the API server, one in an entry by us", func(ctx SpecContext) {
		bucket := &extensionsv1alpha1.BackupBucket{
			ObjectMeta: metav1.ObjectMeta{Name: "../../etc"},
			Spec:       bucketSpec(),
		}
		Expect(c.Create(ctx, bucket)).To(MatchError(apierrors.IsInvalid, "is invalid"))

		entry := &extensionsv1alpha1.BackupEntry{
			ObjectMeta: metav1.ObjectMeta{Name: "garden--e2e"},
			Spec: extensionsv1alpha1.BackupEntrySpec{
				DefaultSpec: bucketSpec().DefaultSpec,
				Region:      "local",
				BucketName:  "../../etc",
				SecretRef:   corev1.SecretReference{Name: "garden-backup-local", Namespace: gardenNamespace},
			},
		}
		create(ctx, entry)
		Eventually(get(ctx, entry)).Should(matchers.HaveConfigurationProblem("../../etc"))
	})

	It("a record whose value does not fit its type says so, and is taken once it does", func(ctx SpecContext) {
		record := newRecord("e2e-bad-value", "bad.e2e.local.gardener.cloud", extensionsv1alpha1.DNSRecordTypeAAAA, "192.0.2.1")
		create(ctx, record)
		Eventually(get(ctx, record)).Should(matchers.HaveConfigurationProblem("192.0.2.1"))

		patch := client.MergeFrom(record.DeepCopy())
		record.Spec.Values = []string{"2001:db8::1"}
		metav1.SetMetaDataAnnotation(&record.ObjectMeta, "gardener.cloud/operation", "reconcile")
		Expect(c.Patch(ctx, record, patch)).To(Succeed())
		Eventually(get(ctx, record)).Should(matchers.HaveSucceeded())
		Expect(matchers.Resolve(ctx, "tcp", hostDNSAddress(ctx), record.Spec.Name, dns.TypeAAAA)).To(ConsistOf("2001:db8::1"))
	})

	It("a record outside of the served zones is not passed over in silence", func(ctx SpecContext) {
		record := newRecord("e2e-bad-zone", "api.example.com", extensionsv1alpha1.DNSRecordTypeA, "192.0.2.1")
		create(ctx, record)
		Eventually(get(ctx, record)).Should(matchers.HaveConfigurationProblem("local.gardener.cloud"))
	})
})

var _ = Describe("What happens to objects and pods", Serial, func() {
	// Not those of the Garden, whose etcd writes its backups there.
	It("a bucket is deleted, though not before its entries, and created again", func(ctx SpecContext) {
		again := func() *extensionsv1alpha1.BackupBucket {
			return &extensionsv1alpha1.BackupBucket{ObjectMeta: metav1.ObjectMeta{Name: "e2e-again"}, Spec: bucketSpec()}
		}
		bucket := again()
		create(ctx, bucket)
		Eventually(get(ctx, bucket)).Should(matchers.HaveSucceeded())
		generated := bucket.Status.GeneratedSecretRef
		Expect(generated).NotTo(BeNil())

		// Of another class, as one of this would have its data written into the Secret that the Garden's etcd mounts.
		entry := &extensionsv1alpha1.BackupEntry{
			ObjectMeta: metav1.ObjectMeta{Name: "shoot--e2e--again--1"},
			Spec: extensionsv1alpha1.BackupEntrySpec{
				DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local", Class: new(extensionsv1alpha1.ExtensionClassShoot)},
				Region:      "local",
				BucketName:  bucket.Name,
				SecretRef:   corev1.SecretReference{Name: "garden-backup-local", Namespace: gardenNamespace},
			},
		}
		create(ctx, entry)
		Expect(remove(ctx, bucket.DeepCopy())).To(Succeed())
		Eventually(get(ctx, bucket.DeepCopy())).Should(HaveField("Status.LastError", HaveValue(HaveField("Description", ContainSubstring(entry.Name)))),
			"a bucket does not go before its entries")
		Expect(remove(ctx, entry.DeepCopy())).To(Succeed())
		eventuallyGone(ctx, entry.DeepCopy())
		eventuallyGone(ctx, bucket.DeepCopy())
		eventuallyGone(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: generated.Namespace, Name: generated.Name}})

		bucket = again()
		create(ctx, bucket)
		Eventually(get(ctx, bucket)).Should(matchers.HaveSucceeded())
		Expect(bucket.Status.GeneratedSecretRef).To(Equal(generated))
	})

	It("a generated Secret that is deleted by hand comes back", func(ctx SpecContext) {
		buckets := &extensionsv1alpha1.BackupBucketList{}
		Expect(c.List(ctx, buckets)).To(Succeed())
		Expect(buckets.Items).To(ContainElement(HaveField("Status.GeneratedSecretRef", Not(BeNil()))))
		ref := buckets.Items[0].Status.GeneratedSecretRef
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
		uid := secret.UID

		Expect(c.Delete(ctx, secret)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(c.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
			g.Expect(secret.UID).NotTo(Equal(uid))
			g.Expect(secret.Data).To(HaveKey("hostPath"))
		}).Should(Succeed(), "the bucket exists, so its Secret does")
	})

	It("the pod is killed half-way in many reconciles", func(ctx SpecContext) {
		const many = 200
		records := make([]*extensionsv1alpha1.DNSRecord, many)
		for i := range records {
			records[i] = newRecord(fmt.Sprintf("e2e-kill-%d", i), fmt.Sprintf("kill-%d.e2e.local.gardener.cloud", i), extensionsv1alpha1.DNSRecordTypeA, fmt.Sprintf("192.0.2.%d", i))
			create(ctx, records[i])
			if i == many/2 {
				Expect(c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(instanceNamespace), client.GracePeriodSeconds(0),
					client.MatchingLabels{"app.kubernetes.io/name": "gardener-extension-provider-local"})).To(Succeed())
			}
		}

		server := hostDNSAddress(ctx)
		for i, record := range records {
			Eventually(get(ctx, record)).Should(matchers.HaveSucceeded(), record.Name)
			Expect(matchers.Resolve(ctx, "tcp", server, record.Spec.Name, dns.TypeA)).To(ConsistOf(fmt.Sprintf("192.0.2.%d", i)), "Succeeded means that it resolves")
		}
		for _, record := range records {
			Expect(remove(ctx, record)).To(Succeed())
		}
		for _, record := range records {
			eventuallyGone(ctx, record)
		}
		Eventually(func() ([]string, error) {
			return matchers.Resolve(ctx, "tcp", server, records[many-1].Spec.Name, dns.TypeA)
		}).Should(ConsistOf("NXDOMAIN"), "what is deleted does not resolve any more")
	})

	It("CoreDNS and its configuration are lost and come back from the DNSRecords", func(ctx SpecContext) {
		server := hostDNSAddress(ctx)
		ours := client.MatchingLabels{"local.provider.extensions.gardener.cloud/dns-config": "true"}
		lost := append(uids(ctx, &corev1.PodList{}), uids(ctx, &corev1.ConfigMapList{}, ours)...)
		Expect(len(lost)).To(BeNumerically(">=", 2))
		Expect(c.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(coreDNSNamespace), ours)).To(Succeed())
		Expect(c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(coreDNSNamespace), client.GracePeriodSeconds(0))).To(Succeed())

		Eventually(func(g Gomega) {
			g.Expect(uids(ctx, &corev1.ConfigMapList{}, ours)).To(And(Not(BeEmpty()), Not(ContainElement(BeElementOf(lost)))))
			pods := &corev1.PodList{}
			g.Expect(uids(ctx, pods)).To(And(Not(BeEmpty()), Not(ContainElement(BeElementOf(lost)))))
			g.Expect(pods.Items).To(HaveEach(HaveField("Status.Conditions", ContainElement(And(
				HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))))), "the Service has nobody else")
			for _, network := range []string{"tcp", "udp"} {
				g.Expect(matchers.Resolve(ctx, network, server, apiDomain, dns.TypeA)).To(ConsistOf(MatchRegexp(`^[0-9.]+$`)))
			}
		}).Should(Succeed(), "the DNSRecords are still there")
	})
})

// uids are those of objects in CoreDNS' namespace.
func uids(ctx context.Context, list client.ObjectList, opts ...client.ListOption) []types.UID {
	GinkgoHelper()
	Expect(c.List(ctx, list, append(opts, client.InNamespace(coreDNSNamespace))...)).To(Succeed())
	var out []types.UID
	Expect(meta.EachListItem(list, func(obj runtime.Object) error {
		out = append(out, obj.(client.Object).GetUID())
		return nil
	})).To(Succeed())
	return out
}

func bucketSpec() extensionsv1alpha1.BackupBucketSpec {
	return extensionsv1alpha1.BackupBucketSpec{
		DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local", Class: new(extensionsv1alpha1.ExtensionClassGarden)},
		Region:      "local",
		SecretRef:   corev1.SecretReference{Name: "garden-backup-local", Namespace: gardenNamespace},
	}
}

// create creates an object and ensures that it is gone after the test.
func create(ctx context.Context, obj client.Object) {
	Expect(c.Create(ctx, obj)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(remove(ctx, obj)).To(Succeed())
		eventuallyGone(ctx, obj)
	})
}

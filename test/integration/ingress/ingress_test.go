// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package ingress_test

import (
	"context"
	"fmt"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

const settle = 500 * time.Millisecond

var _ = Describe("Ingresses", Ordered, func() {
	const namespace = "shoot--dev--test"
	first := newIngress(namespace, "first", "a.ingress.local.gardener.cloud", "*.b.local.gardener.cloud")

	BeforeAll(func(ctx SpecContext) {
		Expect(seed.Create(ctx, newNamespace(namespace, asShoot))).To(Succeed())
		Expect(seed.Create(ctx, newGateway(istio))).To(Succeed())
	})

	AfterAll(func(ctx SpecContext) {
		Expect(seed.Delete(ctx, newGateway(istio))).To(Succeed())
		Expect(seed.Delete(ctx, newGateway(nginx))).To(Succeed())
		Expect(seed.DeleteAllOf(ctx, &networkingv1.Ingress{}, client.InNamespace(namespace))).To(Succeed())
	})

	It("wait for an address without asking for it, and say so once", func(ctx SpecContext) {
		short := newIngress(namespace, "short", "short.local.gardener.cloud")
		Expect(seed.Create(ctx, first)).To(Succeed())
		Expect(seed.Create(ctx, short)).To(Succeed())
		told := ConsistOf(ContainSubstring("NoAddress Hosts get no DNSRecords yet"))
		Eventually(eventsOf(ctx, first)).Should(told)
		Eventually(eventsOf(ctx, short)).Should(told)
		requests.Reset()

		wake(ctx, namespace)
		elapse(ctx, settle)
		Expect(requests.List()).To(BeEmpty())
		Expect(eventsOf(ctx, first)()).To(told)

		Expect(seed.Delete(ctx, short)).To(Succeed())
		setAddresses(ctx, istio, "10.0.0.1")
		Eventually(answersOf(ctx, first)).Should(Equal([]string{"*.b.local.gardener.cloud A 10.0.0.1", "a.ingress.local.gardener.cloud A 10.0.0.1"}))
		Expect(answersOf(ctx, short)()).To(BeEmpty(), "an Ingress that went before it could have records")
	})

	It("own their records in a way that lets Gardener serve and delete them", func(ctx SpecContext) {
		records, err := recordsOf(ctx, first)
		Expect(err).NotTo(HaveOccurred())
		Expect(records).To(HaveEach(And(
			HaveField("OwnerReferences", Equal([]metav1.OwnerReference{{
				APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Name: "first", UID: first.UID, Controller: new(true), BlockOwnerDeletion: new(true),
			}})),
			HaveField("Annotations", Equal(map[string]string{"gardener.cloud/operation": "reconcile", "confirmation.gardener.cloud/deletion": "true"})),
			HaveField("Labels", Equal(map[string]string{"local.provider.extensions.gardener.cloud/ingress": "first"})),
			HaveField("Spec.Type", "local"),
			HaveField("Spec.Class", HaveValue(Equal(extensionsv1alpha1.ExtensionClassShoot))),
		)))
	})

	It("move with their gateway, and to a better one", func(ctx SpecContext) {
		setHosts(ctx, first, "a.ingress.local.gardener.cloud")
		Eventually(answersOf(ctx, first)).Should(Equal([]string{"a.ingress.local.gardener.cloud A 10.0.0.1"}))
		setAddresses(ctx, istio, "10.0.0.2", "fd00::2")
		Eventually(answersOf(ctx, first)).Should(Equal([]string{"a.ingress.local.gardener.cloud A 10.0.0.2", "a.ingress.local.gardener.cloud AAAA fd00::2"}))
		Expect(seed.Create(ctx, newGateway(nginx))).To(Succeed())
		setAddresses(ctx, nginx, "10.0.0.3")
		Eventually(answersOf(ctx, first)).Should(Equal([]string{"a.ingress.local.gardener.cloud A 10.0.0.3"}))
	})

	It("have their own address before any gateway's", func(ctx SpecContext) {
		own := newIngress(namespace, "own", "own.local.gardener.cloud")
		Expect(seed.Create(ctx, own)).To(Succeed())
		Eventually(answersOf(ctx, own)).Should(Equal([]string{"own.local.gardener.cloud A 10.0.0.3"}))
		setStatus := func(points ...networkingv1.IngressLoadBalancerIngress) {
			GinkgoHelper()
			own.Status.LoadBalancer.Ingress = points
			Expect(seed.Status().Update(ctx, own)).To(Succeed())
		}
		setStatus(networkingv1.IngressLoadBalancerIngress{IP: "fd00::9"}, networkingv1.IngressLoadBalancerIngress{IP: "10.0.0.9"})
		Eventually(answersOf(ctx, own)).Should(Equal([]string{"own.local.gardener.cloud A 10.0.0.9", "own.local.gardener.cloud AAAA fd00::9"}))
		setStatus(networkingv1.IngressLoadBalancerIngress{Hostname: "lb.local.gardener.cloud"})
		Eventually(answersOf(ctx, own)).Should(Equal([]string{"own.local.gardener.cloud CNAME lb.local.gardener.cloud"}))
		setStatus()
		Eventually(answersOf(ctx, own)).Should(Equal([]string{"own.local.gardener.cloud A 10.0.0.3"}))
	})

	It("share a host, each with a record of its own", func(ctx SpecContext) {
		same := newIngress(namespace, "same", "a.ingress.local.gardener.cloud")
		Expect(seed.Create(ctx, same)).To(Succeed())
		Eventually(answersOf(ctx, same)).Should(Equal([]string{"a.ingress.local.gardener.cloud A 10.0.0.3"}))
		Expect(answersOf(ctx, first)()).To(HaveLen(1))
	})

	It("take the Secret that gardenlet's records name", func(ctx SpecContext) {
		Expect(theRecordOf(ctx, first).Spec.SecretRef.Name).To(Equal("no-credentials"))
		Expect(seed.Create(ctx, newForeign(namespace, "internal"))).To(Succeed())
		Eventually(func() string { return theRecordOf(ctx, first).Spec.SecretRef.Name }).Should(Equal("dnsrecord-internal"))
	})

	It("get back what others delete or change", func(ctx SpecContext) {
		record := theRecordOf(ctx, first)
		Expect(seed.Delete(ctx, record)).To(Succeed())
		Eventually(func() (*extensionsv1alpha1.DNSRecord, error) {
			records, err := recordsOf(ctx, first)
			if err != nil || len(records) == 0 {
				return nil, err
			}
			return &records[0], nil
		}).Should(And(Not(BeNil()), HaveField("UID", Not(Equal(record.UID)))))

		record = theRecordOf(ctx, first)
		change(ctx, record, func(record *extensionsv1alpha1.DNSRecord) {
			record.Spec.Values, record.Annotations, record.Labels = []string{"10.9.9.9"}, nil, nil
		})
		Eventually(func() *extensionsv1alpha1.DNSRecord { return theRecordOf(ctx, first) }).Should(And(
			HaveField("Spec.Values", Equal([]string{"10.0.0.3"})),
			HaveField("Annotations", And(HaveKeyWithValue("gardener.cloud/operation", "reconcile"), HaveKey("confirmation.gardener.cloud/deletion"))),
			HaveField("Labels", HaveLen(1)),
		))
		change(ctx, record, func(record *extensionsv1alpha1.DNSRecord) { record.Spec.Name = "other.local.gardener.cloud" })
		Eventually(answersOf(ctx, first)).Should(Equal([]string{"a.ingress.local.gardener.cloud A 10.0.0.3"}))
		Expect(theRecordOf(ctx, first).UID).NotTo(Equal(record.UID), "the name of a record is immutable")
	})

	It("leave alone a record of others that has the name of theirs", func(ctx SpecContext) {
		record := theRecordOf(ctx, first)
		change(ctx, record, func(record *extensionsv1alpha1.DNSRecord) { record.OwnerReferences = nil })
		Eventually(eventsOf(ctx, first)).Should(ContainElement(And(HavePrefix("NameTaken"), ContainSubstring(record.Name))))
		version := record.ResourceVersion
		setHosts(ctx, first, "a.ingress.local.gardener.cloud", "c.local.gardener.cloud")
		Eventually(answersOf(ctx, first)).Should(Equal([]string{"c.local.gardener.cloud A 10.0.0.3"}))
		Expect(seed.Get(ctx, client.ObjectKeyFromObject(record), record)).To(Succeed())
		Expect(record.ResourceVersion).To(Equal(version))

		Expect(seed.Delete(ctx, record)).To(Succeed())
		Eventually(answersOf(ctx, first)).Should(HaveLen(2))
	})

	It("wait for the garbage collector where an Ingress of the same name has left records", func(ctx SpecContext) {
		left, err := recordsOf(ctx, first)
		Expect(err).NotTo(HaveOccurred())
		Expect(seed.Delete(ctx, first)).To(Succeed())
		first = newIngress(namespace, "first", "a.ingress.local.gardener.cloud", "c.local.gardener.cloud")
		Expect(seed.Create(ctx, first)).To(Succeed())
		elapse(ctx, settle)
		Expect(answersOf(ctx, first)()).To(BeEmpty())
		Expect(eventsOf(ctx, first)()).To(BeEmpty())
		for _, record := range left {
			Expect(seed.Delete(ctx, &record)).To(Succeed())
		}
		Eventually(answersOf(ctx, first)).Should(HaveLen(2))
	})

	It("do not write what a migration is about to take over", func(ctx SpecContext) {
		setHosts(ctx, first, "a.ingress.local.gardener.cloud")
		Eventually(answersOf(ctx, first)).Should(HaveLen(1))
		record := theRecordOf(ctx, first)
		change(ctx, record, func(record *extensionsv1alpha1.DNSRecord) { record.Annotations["gardener.cloud/operation"] = "migrate" })
		version := record.ResourceVersion
		setAddresses(ctx, nginx, "10.0.0.4")
		Eventually(answersOf(ctx, existing(ctx, namespace, "same"))).Should(Equal([]string{"a.ingress.local.gardener.cloud A 10.0.0.4"}))
		elapse(ctx, settle)
		Expect(theRecordOf(ctx, first).ResourceVersion).To(Equal(version))

		change(ctx, record, func(record *extensionsv1alpha1.DNSRecord) { delete(record.Annotations, "gardener.cloud/operation") })
		Eventually(answersOf(ctx, first)).Should(Equal([]string{"a.ingress.local.gardener.cloud A 10.0.0.4"}))
	})

	It("never undo what others write at the same time", func(ctx SpecContext) {
		record := theRecordOf(ctx, first)
		for i := range 30 {
			setAddresses(ctx, nginx, fmt.Sprintf("10.0.1.%d", i))
			change(ctx, record, func(record *extensionsv1alpha1.DNSRecord) {
				record.Finalizers = []string{"test/" + strconv.Itoa(i)}
				record.Annotations["count"] = strconv.Itoa(i)
			})
		}
		Eventually(answersOf(ctx, first)).Should(Equal([]string{"a.ingress.local.gardener.cloud A 10.0.1.29"}))
		record = theRecordOf(ctx, first)
		Expect(record.Finalizers).To(Equal([]string{"test/29"}))
		Expect(record.Annotations).To(HaveKeyWithValue("count", "29"))
		change(ctx, record, func(record *extensionsv1alpha1.DNSRecord) { record.Finalizers = nil })
	})

	It("have records only while their namespace is a shoot's", func(ctx SpecContext) {
		later := newNamespace("later", nil)
		Expect(seed.Create(ctx, later)).To(Succeed())
		ingress := newIngress("later", "it", "later.local.gardener.cloud")
		Expect(seed.Create(ctx, ingress)).To(Succeed())
		elapse(ctx, settle)
		Expect(answersOf(ctx, ingress)()).To(BeEmpty())

		change(ctx, later, func(namespace *corev1.Namespace) { namespace.Labels["gardener.cloud/role"] = "shoot" })
		Eventually(answersOf(ctx, ingress)).Should(HaveLen(1))
		change(ctx, later, func(namespace *corev1.Namespace) { delete(namespace.Labels, "gardener.cloud/role") })
		Eventually(answersOf(ctx, ingress)).Should(BeEmpty())
		change(ctx, later, func(namespace *corev1.Namespace) { namespace.Labels["gardener.cloud/role"] = "shoot" })
		Eventually(answersOf(ctx, ingress)).Should(HaveLen(1))

		Expect(seed.Delete(ctx, later)).To(Succeed())
		setHosts(ctx, ingress, "other.local.gardener.cloud")
		requests.Reset()
		elapse(ctx, settle)
		Expect(requests.List()).To(BeEmpty(), "nothing is made or taken away in a namespace that goes")
	})

	It("get the rest of their records after a restart", func(ctx SpecContext) {
		setHosts(ctx, first, "a.local.gardener.cloud", "b.local.gardener.cloud", "c.local.gardener.cloud", "d.local.gardener.cloud")
		Eventually(answersOf(ctx, first)).Should(HaveLen(4))
		instance.Stop()

		records, err := recordsOf(ctx, first)
		Expect(err).NotTo(HaveOccurred())
		for _, record := range records[:2] {
			Expect(seed.Delete(ctx, &record)).To(Succeed())
		}
		gone := existing(ctx, namespace, "same")
		Expect(seed.Delete(ctx, gone)).To(Succeed())
		requests.Reset()

		instance = run()
		Eventually(answersOf(ctx, first)).Should(HaveLen(4))
		elapse(ctx, settle)
		Expect(requests.Writes()).To(HaveLen(2), "just what was missing")
	})
})

var _ = Describe("Many Ingresses", Ordered, func() {
	const (
		namespace = "shoot--dev--many"
		count     = 200
	)

	complete := func(ctx context.Context) func() (int, error) {
		return func() (int, error) {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(extensionsv1alpha1.SchemeGroupVersion.WithKind("DNSRecordList"))
			err := seed.List(ctx, list, client.InNamespace(namespace))
			return len(list.Items), err
		}
	}

	BeforeAll(func(ctx SpecContext) {
		Expect(seed.Create(ctx, newGateway(nginx))).To(Succeed())
		setAddresses(ctx, nginx, "10.0.0.3")
		Expect(seed.Create(ctx, newNamespace(namespace, asShoot))).To(Succeed())
	})

	AfterAll(func(ctx SpecContext) {
		Expect(seed.Delete(ctx, newGateway(nginx))).To(Succeed())
		Expect(seed.DeleteAllOf(ctx, &networkingv1.Ingress{}, client.InNamespace(namespace))).To(Succeed())
	})

	It("cost one request for each record, and none when nothing has changed", func(ctx SpecContext) {
		for i := range count {
			Expect(seed.Create(ctx, newIngress(namespace, fmt.Sprintf("ingress-%d", i),
				fmt.Sprintf("p-%d.local.gardener.cloud", i), fmt.Sprintf("au-%d.local.gardener.cloud", i)))).To(Succeed())
		}
		Eventually(complete(ctx)).Should(Equal(2 * count))

		By("doing nothing in a restart")
		instance.Stop()
		requests.Reset()
		instance = run()
		Expect(instance.GetCache().WaitForCacheSync(ctx)).To(BeTrue())
		elapse(ctx, 4*settle)
		Expect(requests.Writes()).To(BeEmpty())
		AddReportEntry("requests of a start", requests.List())

		By("doing nothing when all are looked at again")
		requests.Reset()
		wake(ctx, namespace)
		elapse(ctx, 2*settle)
		Expect(requests.List()).To(BeEmpty())
	})

	It("have their records soon after a start", func(ctx SpecContext) {
		instance.Stop()
		Expect(seed.DeleteAllOf(ctx, &extensionsv1alpha1.DNSRecord{}, client.InNamespace(namespace))).To(Succeed())
		requests.Reset()
		start := time.Now()
		instance = run()
		Eventually(complete(ctx)).Should(Equal(2 * count))
		AddReportEntry("time for 200 Ingresses with 2 hosts each", time.Since(start).String())
		Expect(len(requests.Writes())).To(BeNumerically("<=", 2*count+count/20), "hardly anything is made twice")

		By("following their gateway")
		requests.Reset()
		setAddresses(ctx, nginx, "10.0.0.200")
		start = time.Now()
		Eventually(func() (int, error) {
			list := &extensionsv1alpha1.DNSRecordList{}
			err := seed.List(ctx, list, client.InNamespace(namespace))
			moved := 0
			for _, record := range list.Items {
				if record.Spec.Values[0] == "10.0.0.200" {
					moved++
				}
			}
			return moved, err
		}).WithPolling(200 * time.Millisecond).Should(Equal(2 * count))
		AddReportEntry("time for 400 records to follow a gateway", time.Since(start).String())
	})
})

// existing returns the Ingress that there is.
func existing(ctx context.Context, namespace, name string) *networkingv1.Ingress {
	GinkgoHelper()
	ingress := &networkingv1.Ingress{}
	Expect(seed.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, ingress)).To(Succeed())
	return ingress
}

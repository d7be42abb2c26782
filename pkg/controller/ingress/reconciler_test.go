// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener/pkg/api/extensions/validation"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

func TestReconcileMakesRecords(t *testing.T) {
	withStatus := func(ingress *networkingv1.Ingress, points ...networkingv1.IngressLoadBalancerIngress) *networkingv1.Ingress {
		ingress.Status.LoadBalancer.Ingress = points
		return ingress
	}
	for _, test := range []struct {
		name     string
		ingress  *networkingv1.Ingress
		objects  []client.Object
		expected []string
	}{
		{
			"one for each host, by the first gateway", newIngress("p.a.example.org", "au.a.example.org"),
			[]client.Object{newGateway(nginx, "10.0.0.1"), newGateway(istio, "10.0.0.2")},
			[]string{"au.a.example.org A 10.0.0.1", "p.a.example.org A 10.0.0.1"},
		},
		{
			"a wildcard", newIngress("*.a.example.org"), []client.Object{newGateway(nginx, "10.0.0.1")}, []string{"*.a.example.org A 10.0.0.1"},
		},
		{
			"by the next gateway if one has no address", newIngress("a.example.org"),
			[]client.Object{newGateway(nginx), newGateway(istio, "10.0.0.2")}, []string{"a.example.org A 10.0.0.2"},
		},
		{
			"by the next gateway if one does not exist", newIngress("a.example.org"),
			[]client.Object{newGateway(istio, "10.0.0.2")}, []string{"a.example.org A 10.0.0.2"},
		},
		{
			"by the address of the Ingress before any gateway",
			withStatus(newIngress("a.example.org"), networkingv1.IngressLoadBalancerIngress{IP: "10.0.0.9"}),
			[]client.Object{newGateway(nginx, "10.0.0.1")}, []string{"a.example.org A 10.0.0.9"},
		},
		{
			"an alias for a host name",
			withStatus(newIngress("a.example.org"), networkingv1.IngressLoadBalancerIngress{Hostname: "lb.example.org"}),
			nil, []string{"a.example.org CNAME lb.example.org"},
		},
		{
			"both families", newIngress("a.example.org"), []client.Object{newGateway(nginx, "10.0.0.1", "fd00::1")},
			[]string{"a.example.org A 10.0.0.1", "a.example.org AAAA fd00::1"},
		},
		{"none for a rule for any host", newIngress(""), []client.Object{newGateway(nginx, "10.0.0.1")}, nil},
		{"none without rules", newIngress(), []client.Object{newGateway(nginx, "10.0.0.1")}, nil},
		{"one for a host that is given twice", newIngress("a.example.org", "a.example.org"), []client.Object{newGateway(nginx, "10.0.0.1")}, []string{"a.example.org A 10.0.0.1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, append(test.objects, test.ingress)...)
			f.reconcile()
			f.Expect(f.answers()).To(Equal(test.expected))
			f.Expect(f.told()).To(BeEmpty())

			f.written()
			f.reconcile()
			f.Expect(f.written()).To(BeEmpty(), "nothing is written twice")
		})
	}
}

func TestRecordsAreMadeAsGardenerWantsThem(t *testing.T) {
	f := newFixture(t, newIngress("a.example.org"), newGateway(nginx, "10.0.0.1"), newForeign("internal", secret))
	f.reconcile()

	record := f.record()
	f.Expect(validation.ValidateDNSRecord(record)).To(BeEmpty())
	f.Expect(record.OwnerReferences).To(Equal(ownerOf("uid", "it")))
	f.Expect(record.Annotations).To(Equal(map[string]string{"gardener.cloud/operation": "reconcile", "confirmation.gardener.cloud/deletion": "true"}))
	f.Expect(record.Labels).To(Equal(map[string]string{"local.provider.extensions.gardener.cloud/ingress": "it"}))
	f.Expect(record.Spec.Type).To(Equal("local"))
	f.Expect(record.Spec.Class).To(HaveValue(Equal(extensionsv1alpha1.ExtensionClassShoot)))
	f.Expect(record.Spec.TTL).To(BeNil())
	f.Expect(record.Spec.SecretRef.Name).To(Equal(secret))

	before := record.DeepCopy()
	f.moveGateway("10.0.0.2")
	f.reconcile()
	f.Expect(validation.ValidateDNSRecordUpdate(f.record(), before)).To(BeEmpty())
}

func TestManyHosts(t *testing.T) {
	var hosts []string
	for i := range 100 {
		hosts = append(hosts, fmt.Sprintf("host-%d.example.org", i))
	}
	f := newFixture(t, newIngress(hosts...), newGateway(nginx, "10.0.0.1", "fd00::1"))
	f.reconcile()
	f.Expect(f.records()).To(HaveLen(200))
	f.Expect(f.written()).To(HaveLen(200))
	f.reconcile()
	f.Expect(f.written()).To(BeEmpty())
}

func TestRecordsFollow(t *testing.T) {
	f := newFixture(t, newIngress("a.example.org", "b.example.org"), newGateway(nginx, "10.0.0.1"))
	f.reconcile()
	f.written()

	change(f, newIngress(), func(ingress *networkingv1.Ingress) { ingress.Spec = newIngress("b.example.org", "c.example.org").Spec })
	f.reconcile()
	f.Expect(f.answers()).To(Equal([]string{"b.example.org A 10.0.0.1", "c.example.org A 10.0.0.1"}))
	f.Expect(f.written()).To(HaveLen(2), "what stays is not written")

	f.moveGateway("fd00::1", "10.0.0.2")
	f.reconcile()
	f.Expect(f.answers()).To(Equal([]string{"b.example.org A 10.0.0.2", "b.example.org AAAA fd00::1", "c.example.org A 10.0.0.2", "c.example.org AAAA fd00::1"}))

	change(f, newIngress(), func(ingress *networkingv1.Ingress) { ingress.Spec.Rules = nil })
	f.reconcile()
	f.Expect(f.answers()).To(BeEmpty())
}

func TestAnAliasAndAddressesTakeTurns(t *testing.T) {
	f := newFixture(t, newIngress("a.example.org"), newGateway(nginx, "10.0.0.1"))
	f.reconcile()
	address := f.record()
	change(f, address, func(record *extensionsv1alpha1.DNSRecord) { record.Finalizers = []string{"test/hold"} })

	gateway := newGateway(nginx)
	gateway.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.org"}}
	f.Expect(f.seed.Status().Update(t.Context(), gateway)).To(Succeed())
	f.reconcile()
	f.Expect(f.answers()).To(Equal([]string{"a.example.org A 10.0.0.1"}), "an alias is only made once the address is gone")

	change(f, address, func(record *extensionsv1alpha1.DNSRecord) { record.Finalizers = nil })
	f.reconcile()
	f.Expect(f.answers()).To(Equal([]string{"a.example.org CNAME lb.example.org"}))
}

func TestWithoutAnAddressNothingIsMadeAndNothingLost(t *testing.T) {
	f := newFixture(t, newIngress("a.example.org", "b.example.org"))
	f.reconcile()
	f.reconcile()
	f.Expect(f.written()).To(BeEmpty())
	f.Expect(f.told()).To(ConsistOf(And(ContainSubstring("Warning NoAddress"), ContainSubstring("garden/nginx-ingress-controller, istio-ingress/istio-ingressgateway"))),
		"it is told once, not in each reconcile")

	f.Expect(f.seed.Create(t.Context(), newGateway(nginx, "10.0.0.1"))).To(Succeed())
	f.reconcile()
	f.Expect(f.answers()).To(HaveLen(2))
	f.Expect(f.told()).To(BeEmpty())

	f.Expect(f.seed.Delete(t.Context(), newGateway(nginx))).To(Succeed())
	change(f, newIngress(), func(ingress *networkingv1.Ingress) { ingress.Spec = newIngress("b.example.org").Spec })
	f.reconcile()
	f.Expect(f.answers()).To(Equal([]string{"b.example.org A 10.0.0.1"}), "hosts that are gone go all the same")
	f.Expect(f.told()).To(HaveLen(1), "a problem that comes back is told again")

	change(f, newIngress(), func(ingress *networkingv1.Ingress) { ingress.Spec.Rules = nil })
	f.reconcile()
	f.Expect(f.records()).To(BeEmpty())
	f.Expect(f.told()).To(BeEmpty(), "who has no hosts misses no address")
}

func TestNamespaces(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*corev1.Namespace)
		remain int
	}{
		{"of a shoot", func(*corev1.Namespace) {}, 2},
		{"that is no shoot's any more", func(namespace *corev1.Namespace) { namespace.Labels = nil }, 0},
		{"of something else", func(namespace *corev1.Namespace) { namespace.Labels = map[string]string{"gardener.cloud/role": "seed"} }, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, newIngress("a.example.org", "b.example.org"), newGateway(nginx, "10.0.0.1"))
			f.reconcile()
			change(f, newShootNamespace(), test.change)
			f.reconcile()
			f.Expect(f.records()).To(HaveLen(test.remain))
			f.reconcile()
			f.Expect(f.records()).To(HaveLen(test.remain))
		})
	}
}

func TestANamespaceThatTheCacheLeavesOutIsNoShoots(t *testing.T) {
	other := newShootNamespace()
	other.Name = "other"
	f := newFixture(t, newIngress("a.example.org"), newGateway(nginx, "10.0.0.1"), other)
	f.reconcile()
	f.Expect(f.records()).To(BeEmpty())
}

func TestNothingIsDoneForWhatIsBeingDeleted(t *testing.T) {
	now := metav1.Unix(1000, 0)
	for name, object := range map[string]client.Object{
		"an Ingress":  &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "it", UID: "uid", DeletionTimestamp: &now, Finalizers: []string{"test/hold"}}},
		"a Namespace": &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: newShootNamespace().Labels, DeletionTimestamp: &now, Finalizers: []string{"test/hold"}}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{object, newGateway(nginx, "10.0.0.1")}
			if ingress, ok := object.(*networkingv1.Ingress); ok {
				ingress.Spec = newIngress("a.example.org").Spec
			} else {
				objects = append(objects, newIngress("a.example.org"))
			}
			f := newFixture(t, objects...)
			f.reconcile()
			f.Expect(f.written()).To(BeEmpty())
			f.Expect(f.told()).To(BeEmpty())
		})
	}

	f := newFixture(t)
	f.reconcile()
	f.Expect(f.written()).To(BeEmpty(), "there is no such Ingress any more")
}

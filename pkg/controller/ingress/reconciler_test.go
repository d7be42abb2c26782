// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener/pkg/api/extensions/validation"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
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

func TestWhatOthersChangeIsPutRight(t *testing.T) {
	for _, test := range []struct {
		name   string
		mutate func(*extensionsv1alpha1.DNSRecord)
		asks   bool
	}{
		{"values", func(record *extensionsv1alpha1.DNSRecord) { record.Spec.Values = []string{"10.9.9.9"} }, true},
		{"a TTL", func(record *extensionsv1alpha1.DNSRecord) { record.Spec.TTL = new(int64(7)) }, true},
		{"the Secret", func(record *extensionsv1alpha1.DNSRecord) { record.Spec.SecretRef.Name = "other" }, true},
		{"the label", func(record *extensionsv1alpha1.DNSRecord) { record.Labels = nil }, false},
		{"the confirmation", func(record *extensionsv1alpha1.DNSRecord) { record.Annotations = nil }, false},
		{"the owner", func(record *extensionsv1alpha1.DNSRecord) { record.OwnerReferences[0].BlockOwnerDeletion = nil }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, newIngress("a.example.org"), newGateway(nginx, "10.0.0.1"), newForeign("internal", secret))
			f.reconcile()
			record := f.record()
			// As the DNSRecord controller leaves it.
			change(f, record, func(record *extensionsv1alpha1.DNSRecord) { delete(record.Annotations, "gardener.cloud/operation") })
			expected := record.DeepCopy()
			change(f, record, test.mutate)
			f.written()

			f.reconcile()
			got := f.record()
			f.Expect(f.written()).To(HaveLen(1))
			if test.asks {
				f.Expect(got.Annotations).To(HaveKeyWithValue("gardener.cloud/operation", "reconcile"))
				delete(got.Annotations, "gardener.cloud/operation")
			}
			got.ResourceVersion, expected.ResourceVersion = "", ""
			f.Expect(got).To(Equal(expected))
		})
	}
}

func TestWhatOthersAddToARecordStays(t *testing.T) {
	f := newFixture(t, newIngress("a.example.org"), newGateway(nginx, "10.0.0.1"))
	f.reconcile()
	change(f, f.record(), func(record *extensionsv1alpha1.DNSRecord) {
		record.Finalizers = []string{"extensions.gardener.cloud/dnsrecord"}
		record.Labels["other"], record.Annotations["other"] = "label", "annotation"
		record.OwnerReferences = append(record.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "other", UID: "other"})
		record.Spec.Class = nil // which means shoot
	})
	f.written()
	f.reconcile()
	f.Expect(f.written()).To(BeEmpty())
}

func TestARecordThatIsDeletedComesBackOnceItIsGone(t *testing.T) {
	f := newFixture(t, newIngress("a.example.org"), newGateway(nginx, "10.0.0.1"))
	f.reconcile()
	record := f.record()
	change(f, record, func(record *extensionsv1alpha1.DNSRecord) { record.Finalizers = []string{"test/hold"} })
	f.Expect(f.seed.Delete(t.Context(), record)).To(Succeed())
	f.written()
	f.reconcile()
	f.Expect(f.written()).To(BeEmpty(), "what is being deleted is left alone")

	change(f, record, func(record *extensionsv1alpha1.DNSRecord) { record.Finalizers = nil })
	f.reconcile()
	f.Expect(f.record().DeletionTimestamp).To(BeNil())
}

func TestAFieldThatMustNotChangeIsPutRightByANewRecord(t *testing.T) {
	for name, mutate := range map[string]func(*extensionsv1alpha1.DNSRecord){
		"type":        func(record *extensionsv1alpha1.DNSRecord) { record.Spec.Type = "other" },
		"name":        func(record *extensionsv1alpha1.DNSRecord) { record.Spec.Name = "other.example.org" },
		"record type": func(record *extensionsv1alpha1.DNSRecord) { record.Spec.RecordType = "TXT" },
		"class":       func(record *extensionsv1alpha1.DNSRecord) { *record.Spec.Class = extensionsv1alpha1.ExtensionClassSeed },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newIngress("a.example.org"), newGateway(nginx, "10.0.0.1"))
			f.reconcile()
			record := f.record()
			change(f, record, mutate)
			f.written()
			f.reconcile()
			f.reconcile()
			f.Expect(f.written()).To(Equal([]string{"delete " + record.Name, "create " + record.Name}))
			f.Expect(f.answers()).To(Equal([]string{"a.example.org A 10.0.0.1"}))
		})
	}
}

func TestARecordInMigrationIsLeftAlone(t *testing.T) {
	for name, mutate := range map[string]func(*extensionsv1alpha1.DNSRecord){
		"to be migrated": func(record *extensionsv1alpha1.DNSRecord) { record.Annotations["gardener.cloud/operation"] = "migrate" },
		"to be restored": func(record *extensionsv1alpha1.DNSRecord) { record.Annotations["gardener.cloud/operation"] = "restore" },
		"waiting for its": func(record *extensionsv1alpha1.DNSRecord) {
			record.Annotations["gardener.cloud/operation"] = "wait-for-state"
		},
		"migrated": func(record *extensionsv1alpha1.DNSRecord) {
			record.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Migrate", State: "Succeeded"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newIngress("a.example.org"), newGateway(nginx, "10.0.0.1"))
			f.reconcile()
			change(f, f.record(), mutate)
			f.moveGateway("10.0.0.2")
			f.written()
			f.reconcile()
			change(f, newIngress(), func(ingress *networkingv1.Ingress) { ingress.Spec.Rules = nil })
			f.reconcile()
			f.Expect(f.written()).To(BeEmpty())
		})
	}

	f := newFixture(t, newIngress("a.example.org"), newGateway(nginx, "10.0.0.1"))
	f.reconcile()
	change(f, f.record(), func(record *extensionsv1alpha1.DNSRecord) {
		record.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Restore", State: "Succeeded"}
	})
	f.moveGateway("10.0.0.2")
	f.reconcile()
	f.Expect(f.answers()).To(Equal([]string{"a.example.org A 10.0.0.2"}), "once it is restored it is like any other")
}

func TestRecordsOfOthersAreNeverTouched(t *testing.T) {
	for _, test := range []struct {
		name   string
		owners []metav1.OwnerReference
		told   int
	}{
		{"of nobody", nil, 1},
		{"of another Ingress", ownerOf("other", "other"), 1},
		{"of an object of another kind with the same name", []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "it", UID: "other", Controller: new(true)}}, 1},
		{"of an Ingress that had the same name, which the garbage collector is about to delete", ownerOf("before", "it"), 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			taken := newForeign(recordName("it", "a.example.org", "A"), "")
			taken.OwnerReferences = test.owners
			f := newFixture(t, newIngress("a.example.org", "b.example.org"), newGateway(nginx, "10.0.0.1"), taken)
			before := taken.DeepCopy()
			f.Expect(f.seed.Get(t.Context(), client.ObjectKeyFromObject(before), before)).To(Succeed())
			f.reconcile()
			f.reconcile()

			f.Expect(f.answers()).To(ContainElement("b.example.org A 10.0.0.1"))
			after := taken.DeepCopy()
			f.Expect(f.seed.Get(t.Context(), client.ObjectKeyFromObject(after), after)).To(Succeed())
			f.Expect(after).To(Equal(before))
			events := f.told()
			f.Expect(events).To(HaveLen(test.told))
			if test.told > 0 {
				f.Expect(events[0]).To(And(ContainSubstring("Warning NameTaken"), ContainSubstring("Host a.example.org"), ContainSubstring(taken.Name)))
			}
		})
	}
}

func TestAHostThatGardenerRefusesIsToldAndTheOthersAreServed(t *testing.T) {
	f := newFixture(t, newIngress("localhost", "a.example.org", "*.dev"), newGateway(nginx, "10.0.0.1"))
	f.reconcile()
	f.Expect(f.answers()).To(Equal([]string{"a.example.org A 10.0.0.1"}))
	f.Expect(f.told()).To(ConsistOf(
		And(ContainSubstring("Warning InvalidHost"), ContainSubstring("Host localhost gets no A record")),
		And(ContainSubstring("Warning InvalidHost"), ContainSubstring("Host *.dev gets no A record"))))
}

func TestTheSecretIsThatOfGardenletsRecords(t *testing.T) {
	f := newFixture(t, newIngress("a.example.org"), newGateway(nginx, "10.0.0.1"))
	secretName := func() string {
		f.reconcile()
		return f.record().Spec.SecretRef.Name
	}
	f.Expect(secretName()).To(Equal(noSecret))

	unnamed, other := newForeign("a-unnamed", ""), newForeign("a-other", "other")
	other.Spec.Type = "aws-route53"
	ofIngress := newForeign("a-of-ingress", "of-ingress")
	ofIngress.OwnerReferences = ownerOf("other", "other")
	for _, obj := range []client.Object{unnamed, other, ofIngress} {
		f.Expect(f.seed.Create(t.Context(), obj)).To(Succeed())
	}
	change(f, ofIngress, func(record *extensionsv1alpha1.DNSRecord) { record.OwnerReferences = ownerOf("other", "other") })
	f.reconcile()
	f.Expect(f.seed.Delete(t.Context(), ofIngress)).To(Succeed())
	f.Expect(secretName()).To(Equal(noSecret))

	external, internal := newForeign("it-external", "external"), newForeign("it-internal", secret)
	f.Expect(f.seed.Create(t.Context(), internal)).To(Succeed())
	f.Expect(secretName()).To(Equal(secret))
	f.Expect(f.seed.Create(t.Context(), external)).To(Succeed())
	f.Expect(secretName()).To(Equal("external"), "the first by name")

	f.Expect(f.seed.Delete(t.Context(), external)).To(Succeed())
	f.Expect(f.seed.Delete(t.Context(), internal)).To(Succeed())
	f.Expect(secretName()).To(Equal("external"), "what is known is not forgotten at the end of a shoot")
}

func TestDeletionIsConfirmedFirst(t *testing.T) {
	f := newFixture(t, newIngress("a.example.org"), newGateway(nginx, "10.0.0.1"))
	f.reconcile()
	record := f.record()
	change(f, record, func(record *extensionsv1alpha1.DNSRecord) { record.Annotations = nil })
	change(f, newIngress(), func(ingress *networkingv1.Ingress) { ingress.Spec.Rules = nil })
	f.written()
	f.reconcile()
	f.Expect(f.written()).To(Equal([]string{"patch " + record.Name, "delete " + record.Name}))
}

func TestErrorsOfTheAPIServer(t *testing.T) {
	resource := schema.GroupResource{Group: "extensions.gardener.cloud", Resource: "dnsrecords"}
	terminating := apierrors.NewForbidden(resource, "it", errors.New("the namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, test := range []struct {
		name  string
		verb  string
		err   error
		fails bool
	}{
		{"a record that the cache does not know yet", "create", apierrors.NewAlreadyExists(resource, "it"), false},
		{"a namespace that has begun to go", "create", terminating, false},
		{"a record that may not be made", "create", apierrors.NewForbidden(resource, "it", errors.New("no")), true},
		{"a conflict", "patch", apierrors.NewConflict(resource, "it", errors.New("it has changed")), true},
		{"a record to change that is gone", "patch", apierrors.NewNotFound(resource, "it"), false},
		{"a record to delete that is gone", "delete", apierrors.NewNotFound(resource, "it"), false},
		{"a record that may not be deleted", "delete", apierrors.NewForbidden(resource, "it", errors.New("no")), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, newIngress("a.example.org", "b.example.org"), newGateway(nginx, "10.0.0.1"))
			f.reconcile()
			// One is to be created, one changed and one deleted.
			change(f, newIngress(), func(ingress *networkingv1.Ingress) { ingress.Spec = newIngress("b.example.org", "c.example.org").Spec })
			f.moveGateway("10.0.0.2")
			f.written()
			f.writeErr = func(verb string, _ client.Object) error {
				if verb == test.verb {
					return test.err
				}
				return nil
			}

			err := f.tryReconcile()
			f.Expect(err != nil).To(Equal(test.fails), "%v", err)
			f.Expect(f.written()).To(HaveLen(3), "one failure does not hold up the rest")

			f.writeErr = nil
			f.reconcile()
			f.Expect(f.answers()).To(Equal([]string{"b.example.org A 10.0.0.2", "c.example.org A 10.0.0.2"}))
		})
	}
}

func TestARestartHalfWayGoesOnWhereItWas(t *testing.T) {
	f := newFixture(t, newIngress("a.example.org", "b.example.org", "c.example.org"), newGateway(nginx, "10.0.0.1"))
	f.writeErr = func(string, client.Object) error {
		if len(f.writes) > 1 {
			return errors.New("the instance ends")
		}
		return nil
	}
	f.Expect(f.tryReconcile()).NotTo(Succeed())
	f.Expect(f.records()).To(HaveLen(1))

	f.writeErr = nil
	f.written()
	f.under.reporter = &reporter{recorder: f.events}
	f.reconcile()
	f.Expect(f.records()).To(HaveLen(3))
	f.Expect(f.written()).To(HaveLen(2))
}

func TestNothingIsRememberedOfAnIngressThatIsGone(t *testing.T) {
	f := newFixture(t, newIngress("a.example.org"))
	f.reconcile()
	f.Expect(f.under.reporter.told).To(HaveLen(1))
	f.Expect(f.seed.Delete(t.Context(), newIngress())).To(Succeed())
	f.reconcile()
	f.Expect(f.under.reporter.told).To(BeEmpty())
}

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
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

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

func TestRecordsAreMigratedAlongWithThoseOfGardenlet(t *testing.T) {
	for name, test := range map[string]struct {
		mutate   func(*extensionsv1alpha1.DNSRecord)
		migrates bool
	}{
		"that are to be migrated": {func(record *extensionsv1alpha1.DNSRecord) {
			record.Annotations = map[string]string{"gardener.cloud/operation": "migrate"}
		}, true},
		"that are migrated": {func(record *extensionsv1alpha1.DNSRecord) {
			record.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Migrate", State: "Succeeded"}
		}, true},
		"that come back": {func(record *extensionsv1alpha1.DNSRecord) {
			record.Annotations = map[string]string{"gardener.cloud/operation": "restore"}
			record.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Migrate", State: "Succeeded"}
		}, false},
		"of another extension": {func(record *extensionsv1alpha1.DNSRecord) {
			record.Spec.Type = "aws-route53"
			record.Annotations = map[string]string{"gardener.cloud/operation": "migrate"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			internal := newForeign("internal", secret)
			f := newFixture(t, newIngress("a.example.org"), newGateway(nginx, "10.0.0.1"), internal)
			f.reconcile()
			change(f, f.record(), func(record *extensionsv1alpha1.DNSRecord) { delete(record.Annotations, "gardener.cloud/operation") })
			change(f, internal, test.mutate)
			f.written()
			f.reconcile()
			if !test.migrates {
				f.Expect(f.record().Annotations).NotTo(HaveKeyWithValue("gardener.cloud/operation", "migrate"))
				return
			}
			f.Expect(f.written()).To(Equal([]string{"patch " + f.record().Name}))
			f.Expect(f.record().Annotations).To(HaveKeyWithValue("gardener.cloud/operation", "migrate"))

			f.reconcile()
			f.Expect(f.written()).To(BeEmpty(), "once is enough")
			change(f, f.record(), func(record *extensionsv1alpha1.DNSRecord) {
				delete(record.Annotations, "gardener.cloud/operation")
				record.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Migrate", State: "Succeeded"}
			})
			f.moveGateway("10.0.0.2")
			f.reconcile()
			f.Expect(f.written()).To(BeEmpty(), "it has left")
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

	external, ingress, internal := newForeign("it-external", "external"), newForeign("it-ingress", "ingress"), newForeign("it-internal", secret)
	internal.Labels = map[string]string{"role": "internal"}
	f.Expect(f.seed.Create(t.Context(), ingress)).To(Succeed())
	f.Expect(secretName()).To(Equal("ingress"))
	f.Expect(f.seed.Create(t.Context(), external)).To(Succeed())
	f.Expect(secretName()).To(Equal("external"), "the first by name")
	f.Expect(f.seed.Create(t.Context(), internal)).To(Succeed())
	f.Expect(secretName()).To(Equal(secret), "the operator's")

	for _, obj := range []client.Object{external, ingress, internal} {
		f.Expect(f.seed.Delete(t.Context(), obj)).To(Succeed())
		f.Expect(secretName()).To(Equal(secret), "what is known is not forgotten at the end of a shoot")
	}
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
		name           string
		verb           string
		err            error
		fails, retries bool
	}{
		{"a record that the cache does not know yet", "create", apierrors.NewAlreadyExists(resource, "it"), false, false},
		{"a namespace that has begun to go", "create", terminating, false, false},
		{"a record that may not be made", "create", apierrors.NewForbidden(resource, "it", errors.New("no")), true, false},
		{"a conflict", "patch", apierrors.NewConflict(resource, "it", errors.New("it has changed")), false, true},
		{"a record to change that is gone", "patch", apierrors.NewNotFound(resource, "it"), false, false},
		{"a record to delete that is gone", "delete", apierrors.NewNotFound(resource, "it"), false, false},
		{"a record that may not be deleted", "delete", apierrors.NewForbidden(resource, "it", errors.New("no")), true, false},
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

			result, err := f.tryReconcile()
			f.Expect(err != nil).To(Equal(test.fails), "%v", err)
			f.Expect(result.IsZero()).To(Equal(!test.retries))
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
	_, err := f.tryReconcile()
	f.Expect(err).To(HaveOccurred())
	f.Expect(f.records()).To(HaveLen(1))

	f.writeErr = nil
	f.written()
	f.under.told.Clear()
	f.reconcile()
	f.Expect(f.records()).To(HaveLen(3))
	f.Expect(f.written()).To(HaveLen(2))
}

func TestNothingIsRememberedOfAnIngressThatIsGone(t *testing.T) {
	f := newFixture(t, newIngress("a.example.org"))
	f.reconcile()
	isTold := func() bool {
		_, ok := f.under.told.Load(client.ObjectKeyFromObject(newIngress()))
		return ok
	}
	f.Expect(isTold()).To(BeTrue())
	f.Expect(f.seed.Delete(t.Context(), newIngress())).To(Succeed())
	f.reconcile()
	f.Expect(isTold()).To(BeFalse())
}

func TestOnlyConflictsAreNoErrors(t *testing.T) {
	conflict := fmt.Errorf("changing it: %w", apierrors.NewConflict(schema.GroupResource{}, "it", errors.New("it has changed")))
	other := errors.New("no")
	for _, test := range []struct {
		name     string
		err      error
		expected bool
	}{
		{"nothing", nil, false},
		{"another error", other, false},
		{"a conflict", conflict, true},
		{"conflicts", utilerrors.NewAggregate([]error{conflict, utilerrors.NewAggregate([]error{conflict, nil})}), true},
		{"a conflict and another error", utilerrors.NewAggregate([]error{conflict, utilerrors.NewAggregate([]error{other})}), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			NewWithT(t).Expect(isConflict(test.err)).To(Equal(test.expected))
		})
	}
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package class_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

func record(extensionType string, extensionClass *extensionsv1alpha1.ExtensionClass) client.Object {
	return &extensionsv1alpha1.DNSRecord{Spec: extensionsv1alpha1.DNSRecordSpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: extensionType, Class: extensionClass}}}
}

func passes(predicates []predicate.Predicate, obj client.Object) bool {
	for _, p := range predicates {
		if !p.Update(event.UpdateEvent{ObjectOld: obj, ObjectNew: obj}) {
			return false
		}
	}
	return true
}

// filtered are kind and class of what an Observer was told of.
type filtered []string

func (f *filtered) Filtered(kind, class string) { *f = append(*f, kind+" "+class) }

func TestPredicatesTellWhatIsOfAnotherClass(t *testing.T) {
	g := NewWithT(t)
	told := &filtered{}
	set, err := class.New([]extensionsv1alpha1.ExtensionClass{"garden"}, "garden")
	g.Expect(err).NotTo(HaveOccurred())
	only, ok := set.WithObserver(told).Only("garden", "seed")
	g.Expect(ok).To(BeTrue())

	everything := []predicate.Predicate{predicate.NewPredicateFuncs(func(client.Object) bool { return true })}
	predicates := only.Predicates(everything, "local", "other-local")
	g.Expect(passes(predicates, record("local", new(extensionsv1alpha1.ExtensionClass("garden"))))).To(BeTrue())
	g.Expect(passes(predicates, record("other-local", new(extensionsv1alpha1.ExtensionClass("seed"))))).To(BeFalse())
	g.Expect(passes(predicates, record("local", nil))).To(BeFalse(), "no class is class shoot")
	g.Expect(passes(predicates, record("aws", nil))).To(BeFalse(), "of another type, so not counted")
	g.Expect(passes(predicates, &corev1.Secret{})).To(BeFalse())

	g.Expect(*told).To(HaveExactElements("DNSRecord seed", "DNSRecord shoot"))
}

func TestFurtherPredicatesAreAsked(t *testing.T) {
	g := NewWithT(t)
	set, err := class.New([]extensionsv1alpha1.ExtensionClass{"garden"}, "garden")
	g.Expect(err).NotTo(HaveOccurred())
	nothing := []predicate.Predicate{predicate.NewPredicateFuncs(func(client.Object) bool { return false })}
	g.Expect(passes(set.Predicates(nothing, "local"), record("local", new(extensionsv1alpha1.ExtensionClass("garden"))))).To(BeFalse())
	g.Expect(func() { class.Set{}.Predicates(nil, "local") }).To(Panic(), "no classes would be class shoot")
}

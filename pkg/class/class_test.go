// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package class_test

import (
	"testing"

	. "github.com/onsi/gomega"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

const (
	garden = extensionsv1alpha1.ExtensionClassGarden
	seed   = extensionsv1alpha1.ExtensionClassSeed
	shoot  = extensionsv1alpha1.ExtensionClassShoot
)

type classes = []extensionsv1alpha1.ExtensionClass

func TestNewRefusesWhatAnInstanceDoesNotServe(t *testing.T) {
	for name, test := range map[string]struct {
		classes classes
		message string
	}{
		"no class at all":           {nil, "no extension class given: this instance serves garden"},
		"an empty list":             {classes{}, "no extension class given"},
		"a class of the other one":  {classes{garden, shoot}, `extension class "shoot" is not served by this instance: it serves garden`},
		"a class that is no class":  {classes{"gardn"}, `extension class "gardn" is not served`},
		"the empty string as class": {classes{""}, `extension class "" is not served`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := class.New(test.classes, garden)
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
		})
	}
}

func TestNewSortsAndCompacts(t *testing.T) {
	g := NewWithT(t)
	set, err := class.New(classes{shoot, seed, shoot}, seed, shoot)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(set.List()).To(Equal(classes{seed, shoot}))
	g.Expect(set.String()).To(Equal("seed, shoot"))
}

func TestHasCountsAnObjectWithoutClassAsShoot(t *testing.T) {
	g := NewWithT(t)
	set, err := class.New(classes{shoot}, shoot)
	g.Expect(err).NotTo(HaveOccurred())

	record := &extensionsv1alpha1.DNSRecord{}
	g.Expect(set.Has(record)).To(BeTrue())
	record.Spec.Class = new(garden)
	g.Expect(set.Has(record)).To(BeFalse())
}

func TestOnlyTellsWhenNothingIsLeft(t *testing.T) {
	g := NewWithT(t)
	set, err := class.New(classes{seed, shoot}, seed, shoot)
	g.Expect(err).NotTo(HaveOccurred())

	left, any := set.Only(garden, shoot)
	g.Expect(any).To(BeTrue())
	g.Expect(left.List()).To(Equal(classes{shoot}))

	left, any = set.Only(garden)
	g.Expect(any).To(BeFalse())
	g.Expect(func() { left.List() }).To(Panic(), "an empty list would mean class shoot to the extension library")
}

func TestListIsACopy(t *testing.T) {
	g := NewWithT(t)
	set, err := class.New(classes{garden}, garden)
	g.Expect(err).NotTo(HaveOccurred())
	set.List()[0] = shoot
	g.Expect(set.List()).To(Equal(classes{garden}))
}

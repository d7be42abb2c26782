// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	extensionsv1alpha1helper "github.com/gardener/gardener/pkg/api/extensions/v1alpha1/helper"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// Holder is who holds names: the garden, the seed or one shoot. All DNSRecords of a holder may share a name.
type Holder struct {
	Class     extensionsv1alpha1.ExtensionClass
	Namespace string
}

// Holder returns who holds the name of the record.
func (r Record) Holder() Holder {
	return Holder{Class: r.Class, Namespace: r.Owner.Namespace}
}

// Rank orders the classes: whoever has the higher rank has a name, whoever came first.
func (h Holder) Rank() int {
	return max(slices.Index([]extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassShoot, extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassGarden}, h.Class), 0)
}

// String says whose a name is to those who hold others: which shoot it is concerns nobody else.
func (h Holder) String() string {
	return [...]string{"another shoot", "a seed", "the garden"}[h.Rank()]
}

// classOf returns the class on whose behalf a DNSRecord is there. gardenlet makes the one for the Ingress domain of the
// seed without a class, which means that of shoots, but in namespace garden, where nothing of a shoot is.
func classOf(object *extensionsv1alpha1.DNSRecord) extensionsv1alpha1.ExtensionClass {
	class := extensionsv1alpha1helper.GetExtensionClassOrDefault(object.Spec.Class)
	if class == extensionsv1alpha1.ExtensionClassShoot && object.Namespace == v1beta1constants.GardenNamespace {
		return extensionsv1alpha1.ExtensionClassSeed
	}
	return class
}

// Conflict returns the error for a record whose name is another holder's, or another DNSRecord's of the same holder.
func (r Record) Conflict(other Holder, owner types.NamespacedName, reason string) error {
	whose := "a DNSRecord of " + other.String()
	if other == r.Holder() {
		whose = "DNSRecord " + owner.String()
	}
	return ConfigurationProblem(&ConflictError{fmt.Errorf("%s record %s is not served because of %s: %s", r.Type, r.Name, whose, reason)})
}

// WildcardsAbove returns the wildcards that cover a name, other than the name itself, from the top of the tree downwards.
func WildcardsAbove(name string) []string {
	var wildcards []string
	_, parent, ok := strings.Cut(strings.TrimPrefix(name, "*."), ".")
	for ; ok; _, parent, ok = strings.Cut(parent, ".") {
		wildcards = append(wildcards, "*."+parent)
	}
	slices.Reverse(wildcards)
	return wildcards
}

// CheckReserved returns an error if the record is a shoot's and in a domain that shoots may not choose names in. What
// Gardener names itself it may have there: the internal domain, the hosts of Ingresses in the seed, and the shoot's own part
// <shoot>.<project> of a domain. Shoot and project are known by the namespace, shoot--<project>--<shoot>.
func (r Record) CheckReserved(domains []string) error {
	if r.Holder().Rank() > 0 || r.Internal || r.Ingress {
		return nil
	}
	domain, ok := ZoneOf(strings.TrimPrefix(r.Name, "*."), domains)
	if !ok {
		// A wildcard is for names of domains below it as well.
		i := slices.IndexFunc(domains, func(domain string) bool {
			return strings.HasPrefix(r.Name, "*.") && strings.HasSuffix("."+strings.ToLower(strings.TrimSuffix(domain, ".")), r.Name[1:])
		})
		if i < 0 {
			return nil
		}
		domain = domains[i]
	}
	technicalID, _ := strings.CutPrefix(r.Owner.Namespace, v1beta1constants.TechnicalIDPrefix+"-")
	if project, shoot, ok := strings.Cut(technicalID, "--"); ok {
		own := shoot + "." + project + "."
		for _, prefix := range []string{"api.", "*.ingress."} {
			if rest, ok := strings.CutPrefix(r.Name, prefix+own); ok && (rest == domain || strings.HasSuffix(rest, "."+domain)) {
				return nil
			}
		}
	}
	return ConfigurationProblem(fmt.Errorf("spec.name: %s is in the domain %s, which is reserved: choose another domain for the shoot", r.Name, domain))
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

// desired is what all owners want. It knows nothing of clusters or servers.
type desired struct {
	owners map[types.NamespacedName]dns.Record
	// byName are the owners by the name of their record.
	byName map[string]sets.Set[types.NamespacedName]
	// gardenElsewhere means that another instance serves the records of the garden: their names are taken.
	gardenElsewhere bool
}

func newDesired(gardenElsewhere bool) *desired {
	return &desired{
		owners:          map[types.NamespacedName]dns.Record{},
		byName:          map[string]sets.Set[types.NamespacedName]{},
		gardenElsewhere: gardenElsewhere,
	}
}

// set takes a record in place of what its owner had and returns the names that this concerns; none if nothing changed.
func (d *desired) set(record dns.Record) []string {
	if old, ok := d.owners[record.Owner]; ok && reflect.DeepEqual(old, record) {
		return nil
	}
	names := d.remove(record.Owner)
	d.owners[record.Owner] = record
	if d.byName[record.Name] == nil {
		d.byName[record.Name] = sets.New[types.NamespacedName]()
	}
	d.byName[record.Name].Insert(record.Owner)
	return append(names, d.concerned(record.Name)...)
}

// concerned returns a name, and with a wildcard the names that it covers: to whom they go may change with it.
func (d *desired) concerned(name string) []string {
	names := []string{name}
	if parent, ok := strings.CutPrefix(name, "*"); ok {
		for other := range d.byName {
			if other != name && strings.HasSuffix(other, parent) {
				names = append(names, other)
			}
		}
	}
	return names
}

// remove forgets an owner and returns the names that this concerns.
func (d *desired) remove(owner types.NamespacedName) []string {
	record, ok := d.owners[owner]
	if !ok {
		return nil
	}
	delete(d.owners, owner)
	if d.byName[record.Name].Delete(owner); d.byName[record.Name].Len() == 0 {
		delete(d.byName, record.Name)
	}
	return d.concerned(record.Name)
}

// candidates returns the records of a name that no wildcard keeps from it. The first one's holder has the name: the highest
// class, then who came first. above are the first records of the wildcards that cover the name.
func (d *desired) candidates(name string, above []dns.Record) []dns.Record {
	var candidates []dns.Record
	for owner := range d.byName[name] {
		record := d.owners[owner]
		if _, covered := coveredBy(record, above); !covered {
			candidates = append(candidates, record)
		}
	}
	slices.SortFunc(candidates, byPrecedence)
	return candidates
}

// above returns the first records of the wildcards that cover a name, from the top of the tree downwards.
func (d *desired) above(name string) []dns.Record {
	var above []dns.Record
	for _, wildcard := range dns.WildcardsAbove(name) {
		if candidates := d.candidates(wildcard, above); len(candidates) > 0 {
			above = append(above, candidates[0])
		}
	}
	return above
}

// coveredBy returns the wildcard of another holder that keeps a record from its name: one of a higher class, or an older
// one. What is made for an Ingress in the seed is below the wildcard of the seed on purpose.
func coveredBy(record dns.Record, above []dns.Record) (dns.Record, bool) {
	for _, wildcard := range above {
		if !record.Ingress && wildcard.Holder() != record.Holder() && byPrecedence(wildcard, record) < 0 {
			return wildcard, true
		}
	}
	return dns.Record{}, false
}

// effective returns the records that this instance serves under a name, sorted by type.
func (d *desired) effective(name string) []dns.Record {
	records := d.ofHolder(name)
	if d.gardenElsewhere && len(records) > 0 && records[0].Class == extensionsv1alpha1.ExtensionClassGarden {
		return nil
	}
	return records
}

// ofHolder returns the records that are served under a name, wherever that is. They are all of one holder, so that nobody adds
// a type to the name of somebody else. Of each type the newest of its records has it. An alias can't stand beside anything
// else (RFC 1034, section 3.6.2): there the older side stays, so that a newcomer can't take a name that is in use out of
// service.
func (d *desired) ofHolder(name string) []dns.Record {
	byType := map[string]dns.Record{}
	candidates := d.candidates(name, d.above(name))
	for _, record := range candidates {
		if record.Holder() == candidates[0].Holder() {
			byType[record.Type] = record // The newest comes last.
		}
	}
	if alias, ok := byType[dns.TypeCNAME]; ok && len(byType) > 1 {
		delete(byType, dns.TypeCNAME)
		others := slices.Collect(maps.Values(byType))
		if !slices.ContainsFunc(others, func(other dns.Record) bool { return byAge(other, alias) < 0 }) {
			return []dns.Record{alias}
		}
	}
	return slices.SortedFunc(maps.Values(byType), func(a, b dns.Record) int { return cmp.Compare(a.Type, b.Type) })
}

// conflict returns why a record is not served as its owner wants it, or nil. Another owner that wants the same is none, unless
// another instance serves it.
func (d *desired) conflict(record dns.Record) error {
	if wildcard, covered := coveredBy(record, d.above(record.Name)); covered {
		return record.Conflict(wildcard.Holder(), wildcard.Owner, "it is a wildcard that covers the name; choose another domain")
	}
	for _, other := range d.effective(record.Name) {
		if other.Type == record.Type && slices.Equal(other.Values, record.Values) {
			return nil
		}
	}
	served := d.ofHolder(record.Name)
	for _, other := range served {
		switch {
		case other.Holder() != record.Holder():
			return record.Conflict(other.Holder(), other.Owner, "the name is taken; choose another domain")
		case other.Type == record.Type:
			return record.Conflict(other.Holder(), other.Owner, "it is newer and gives the same name other values; delete one of them")
		}
	}
	if len(served) > 0 {
		return record.Conflict(served[0].Holder(), served[0].Owner, "it is older, and an alias (CNAME) can't stand beside another record of its name; delete one of them")
	}
	return nil
}

// byPrecedence orders records by their classes, from the highest downwards, and within a class by age.
func byPrecedence(a, b dns.Record) int {
	return cmp.Or(cmp.Compare(b.Holder().Rank(), a.Holder().Rank()), byAge(a, b))
}

// byAge orders records from the oldest to the newest.
func byAge(a, b dns.Record) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Owner.Namespace, b.Owner.Namespace), cmp.Compare(a.Owner.Name, b.Owner.Name))
}

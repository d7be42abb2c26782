// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

// desired is what all owners want. It knows nothing of clusters or servers.
type desired struct {
	owners map[types.NamespacedName]dns.Record
	// elsewhere are the owners whose records another instance serves: their names are taken.
	elsewhere map[types.NamespacedName]struct{}
	// byName are the owners by the name of their record.
	byName map[string]map[types.NamespacedName]struct{}
}

func newDesired() *desired {
	return &desired{
		owners:    map[types.NamespacedName]dns.Record{},
		elsewhere: map[types.NamespacedName]struct{}{},
		byName:    map[string]map[types.NamespacedName]struct{}{},
	}
}

// set takes a record in place of what its owner had and returns the names that this concerns; none if nothing changed.
func (d *desired) set(record dns.Record) []string {
	old, ok := d.owners[record.Owner]
	if _, elsewhere := d.elsewhere[record.Owner]; ok && !elsewhere && equal(old, record) {
		return nil
	}
	names := d.remove(record.Owner)
	d.owners[record.Owner] = record
	add(d.byName, record.Name, record.Owner)
	for _, name := range d.concerned(record.Name) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// setElsewhere takes over that another instance serves a record, and returns the names that this concerns.
func (d *desired) setElsewhere(record dns.Record) []string {
	if _, ok := d.elsewhere[record.Owner]; ok && equal(d.owners[record.Owner], record) {
		return nil
	}
	names := d.set(record)
	d.elsewhere[record.Owner] = struct{}{}
	return names
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
	delete(d.elsewhere, owner)
	drop(d.byName, record.Name, owner)
	return d.concerned(record.Name)
}

// names returns the names of the records that a function chooses, sorted.
func (d *desired) names(chosen func(dns.Record) bool) []string {
	var names []string
	for _, record := range d.owners {
		if chosen(record) {
			names = append(names, record.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// first returns the record whose holder has a name: the highest class, then who came first. above are the first records of
// the wildcards that cover the name.
func (d *desired) first(name string, above []dns.Record) (dns.Record, bool) {
	var (
		first dns.Record
		found bool
	)
	for owner := range d.byName[name] {
		record := d.owners[owner]
		if _, covered := coveredBy(record, above); !covered && (!found || precedes(record, first)) {
			first, found = record, true
		}
	}
	return first, found
}

// above returns the first records of the wildcards that cover a name, from the top of the tree downwards.
func (d *desired) above(name string) []dns.Record {
	var above []dns.Record
	for _, wildcard := range dns.WildcardsAbove(name) {
		if record, ok := d.first(wildcard, above); ok {
			above = append(above, record)
		}
	}
	return above
}

// coveredBy returns the wildcard of another holder that keeps a record from its name: one of a higher class, or an older
// one. What is made for an Ingress in the seed is below the wildcard of the seed on purpose.
func coveredBy(record dns.Record, above []dns.Record) (dns.Record, bool) {
	if record.Ingress {
		return dns.Record{}, false
	}
	for _, wildcard := range above {
		if wildcard.Holder() != record.Holder() && precedes(wildcard, record) {
			return wildcard, true
		}
	}
	return dns.Record{}, false
}

// effective returns the records that are served under a name, sorted by type. They are all of one holder, so that nobody
// adds a type to the name of somebody else. Of each type the newest of its records has it. An alias can't stand beside
// anything else (RFC 1034, section 3.6.2): there the older side stays, so that a newcomer can't take a name that is in use
// out of service.
func (d *desired) effective(name string) []dns.Record {
	records := d.ofHolder(name)
	if len(records) > 0 {
		if _, ok := d.elsewhere[records[0].Owner]; ok {
			return nil
		}
	}
	return records
}

// ofHolder is effective, wherever the records are served.
func (d *desired) ofHolder(name string) []dns.Record {
	above := d.above(name)
	first, ok := d.first(name, above)
	if !ok {
		return nil
	}
	byType := map[string]dns.Record{}
	for owner := range d.byName[name] {
		record := d.owners[owner]
		if _, covered := coveredBy(record, above); covered || record.Holder() != first.Holder() {
			continue
		}
		if other, ok := byType[record.Type]; !ok || newer(record, other) {
			byType[record.Type] = record
		}
	}

	if alias, ok := byType[dns.TypeCNAME]; ok && len(byType) > 1 {
		delete(byType, dns.TypeCNAME)
		others := slices.Collect(maps.Values(byType))
		if !slices.ContainsFunc(others, func(other dns.Record) bool { return newer(alias, other) }) {
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

// precedes reports whether a goes before b: by its class, then as it is older.
func precedes(a, b dns.Record) bool {
	if a, b := a.Holder().Rank(), b.Holder().Rank(); a != b {
		return a > b
	}
	return newer(b, a)
}

func newer(a, b dns.Record) bool {
	return cmp.Or(compareTime(a.Created, b.Created), cmp.Compare(a.Owner.Namespace, b.Owner.Namespace), cmp.Compare(a.Owner.Name, b.Owner.Name)) > 0
}

func compareTime(a, b time.Time) int { return a.Compare(b) }

func equal(a, b dns.Record) bool {
	return a.Name == b.Name && a.Type == b.Type && a.Class == b.Class && a.TTL == b.TTL && a.Ingress == b.Ingress && a.Created.Equal(b.Created) && slices.Equal(a.Values, b.Values)
}

func add[K, V comparable](index map[K]map[V]struct{}, key K, value V) {
	if index[key] == nil {
		index[key] = map[V]struct{}{}
	}
	index[key][value] = struct{}{}
}

func drop[K, V comparable](index map[K]map[V]struct{}, key K, value V) {
	delete(index[key], value)
	if len(index[key]) == 0 {
		delete(index, key)
	}
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

// desired is what all owners want. It knows nothing of clusters or servers.
type desired struct {
	owners map[types.NamespacedName]dns.Record
	// byName are the owners by the name of their record, byValue by its values, byNamespace by where they are: who has
	// to be looked at again when a name, a gateway's address or the zone of a namespace changes.
	byName      map[string]map[types.NamespacedName]struct{}
	byValue     map[string]map[types.NamespacedName]struct{}
	byNamespace map[string]map[types.NamespacedName]struct{}
}

func newDesired() *desired {
	return &desired{
		owners:      map[types.NamespacedName]dns.Record{},
		byName:      map[string]map[types.NamespacedName]struct{}{},
		byValue:     map[string]map[types.NamespacedName]struct{}{},
		byNamespace: map[string]map[types.NamespacedName]struct{}{},
	}
}

// set takes a record in place of what its owner had and returns the names that this concerns; none if nothing changed.
func (d *desired) set(record dns.Record) []string {
	old, ok := d.owners[record.Owner]
	if ok && equal(old, record) {
		return nil
	}
	names := d.remove(record.Owner)
	d.owners[record.Owner] = record
	add(d.byName, record.Name, record.Owner)
	add(d.byNamespace, record.Owner.Namespace, record.Owner)
	for _, value := range record.Values {
		add(d.byValue, value, record.Owner)
	}
	if !slices.Contains(names, record.Name) {
		names = append(names, record.Name)
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
	drop(d.byName, record.Name, owner)
	drop(d.byNamespace, owner.Namespace, owner)
	for _, value := range record.Values {
		drop(d.byValue, value, owner)
	}
	return []string{record.Name}
}

// names returns all names, sorted.
func (d *desired) names() []string {
	return slices.Sorted(maps.Keys(d.byName))
}

// namesOf returns the names that have one of the values.
func (d *desired) namesOf(values []string) []string {
	names := map[string]struct{}{}
	for _, value := range values {
		for owner := range d.byValue[value] {
			names[d.owners[owner].Name] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// namesIn returns the names of the records of a namespace.
func (d *desired) namesIn(namespace string) []string {
	names := map[string]struct{}{}
	for owner := range d.byNamespace[namespace] {
		names[d.owners[owner].Name] = struct{}{}
	}
	return slices.Sorted(maps.Keys(names))
}

// effective returns the records that are served under a name, sorted by type. Of each type the newest owner has it. An
// alias can't stand beside anything else (RFC 1034, section 3.6.2): there the older side stays, so that a newcomer can't
// take a name that is in use out of service.
func (d *desired) effective(name string) []dns.Record {
	byType := map[string]dns.Record{}
	for owner := range d.byName[name] {
		record := d.owners[owner]
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

// conflict returns why a record is not served as its owner wants it, or nil. Another owner that wants the same is none.
func (d *desired) conflict(record dns.Record) error {
	effective := d.effective(record.Name)
	for _, other := range effective {
		if other.Type != record.Type {
			continue
		}
		if slices.Equal(other.Values, record.Values) {
			return nil
		}
		return &dns.ConflictError{Record: record, Other: other.Owner, Reason: "it is newer and gives the same name other values; delete one of them"}
	}
	if len(effective) > 0 {
		return &dns.ConflictError{Record: record, Other: effective[0].Owner, Reason: "it is older, and an alias (CNAME) can't stand beside another record of its name; delete one of them"}
	}
	return nil
}

func newer(a, b dns.Record) bool {
	return cmp.Or(compareTime(a.Created, b.Created), cmp.Compare(a.Owner.Namespace, b.Owner.Namespace), cmp.Compare(a.Owner.Name, b.Owner.Name)) > 0
}

func compareTime(a, b time.Time) int { return a.Compare(b) }

func equal(a, b dns.Record) bool {
	return a.Name == b.Name && a.Type == b.Type && a.TTL == b.TTL && a.Ingress == b.Ingress && a.Created.Equal(b.Created) && slices.Equal(a.Values, b.Values)
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

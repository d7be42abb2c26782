// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// node is what is known of one name. A node without records is an empty non-terminal: the name exists since there are
// names below it.
type node struct {
	records map[uint16][]dns.RR
	// service is the Service whose addresses clients in the cluster get; empty for the records themselves.
	service string
}

// table is everything that is served at one time. It is never changed once it is made.
type table struct {
	nodes map[string]*node
	// generations are those of the shards by name.
	generations map[string]string
	serial      uint32
	records     int
}

// newTable merges shards. Where two have records of one name and type, or a rewrite of one name, the shard whose name
// comes first has it: one answer must not depend on which was read first, and a mix of two is nobody's wish.
func newTable(shards map[string]*shard, serial uint32) *table {
	size := 0
	for _, s := range shards {
		size += len(s.records)
	}
	t := &table{
		nodes:       make(map[string]*node, size+size/4),
		generations: make(map[string]string, len(shards)),
		serial:      serial,
	}

	type key struct {
		name   string
		rrtype uint16
	}
	owners := make(map[key]string, size)
	for _, name := range slices.SortedFunc(maps.Keys(shards), compareShardNames) {
		s := shards[name]
		if s.generation != "" {
			t.generations[name] = s.generation
		}
		for _, rr := range s.records {
			header := rr.Header()
			k := key{name: header.Name, rrtype: header.Rrtype}
			owner, taken := owners[k]
			if taken && owner != name {
				continue
			}
			owners[k] = name
			t.add(rr)
		}
		for owner, service := range s.rewrites {
			if n := t.node(owner); n.service == "" {
				n.service = service
			}
		}
	}
	return t
}

// compareShardNames orders by name, and numbers at the end by value.
func compareShardNames(a, b string) int {
	return cmp.Or(strings.Compare(strings.TrimRight(a, "0123456789"), strings.TrimRight(b, "0123456789")), cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

func (t *table) add(rr dns.RR) {
	header := rr.Header()
	n := t.node(header.Name)
	if n.records == nil {
		n.records = make(map[uint16][]dns.RR, 1)
	}
	n.records[header.Rrtype] = append(n.records[header.Rrtype], rr)
	t.records++
}

// node returns the node of a name, which then exists, and so do all names above it.
func (t *table) node(name string) *node {
	n, ok := t.nodes[name]
	if ok {
		return n
	}
	n = &node{}
	t.nodes[name] = n
	for parent, ok := parentOf(name); ok; parent, ok = parentOf(parent) {
		if _, exists := t.nodes[parent]; exists {
			break
		}
		t.nodes[parent] = &node{}
	}
	return n
}

// find returns the node that answers for a name in a zone: its own, or else the wildcard below the closest name that
// exists (RFC 4592, section 3.3.1); nil if the name doesn't exist.
func (t *table) find(name, zone string) *node {
	if n, ok := t.nodes[name]; ok {
		return n
	}
	if name == zone {
		return &node{}
	}
	for parent, ok := parentOf(name); ok; parent, ok = parentOf(parent) {
		if _, exists := t.nodes[parent]; exists || parent == zone {
			return t.nodes["*."+parent]
		}
	}
	return nil
}

func parentOf(name string) (string, bool) {
	_, parent, ok := strings.Cut(name, ".")
	return parent, ok && parent != ""
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

func numbered(i int) entry {
	name := fmt.Sprintf("api.shoot-%05d.project.external.local.gardener.cloud", i)
	return render(name, testZone, []dns.Record{record("x", name, "A", gatewayIP)}, testService)
}

func TestShardsStayBelowTheirSizeAndKeepNamesWhereTheyAre(t *testing.T) {
	g := NewWithT(t)
	s := newShards("x-")
	for i := range 2000 {
		g.Expect(s.put(numbered(i))).To(HaveLen(1))
	}
	g.Expect(len(s.all)).To(BeNumerically("~", 10, 3))
	for _, one := range s.all {
		size := 0
		for key, value := range one.data() {
			size += len(key) + len(value)
		}
		g.Expect(size).To(And(BeNumerically("<=", shardSize), BeNumerically("~", one.size, 2048)), "what is counted is what is written")
	}

	g.Expect(s.put(numbered(7))).To(BeEmpty(), "the same again touches nothing")
	in := s.where[numbered(7).name]
	other := numbered(7)
	other.override = ""
	g.Expect(s.put(other)).To(ConsistOf(in), "a change touches the one it is in")
	g.Expect(s.remove(numbered(7).name)).To(ConsistOf(in))
	g.Expect(s.remove(numbered(7).name)).To(BeEmpty())
	g.Expect(s.put(numbered(9999))).To(ConsistOf(in), "room that became free is used again")
}

func TestAnEntryThatOutgrowsItsShardMoves(t *testing.T) {
	g := NewWithT(t)
	s := newShards("x-")
	s.put(numbered(1))
	for i := range 5 {
		grown := numbered(i + 10)
		grown.lines = strings.Repeat("x", 60<<10)
		s.put(grown)
	}
	small := s.where[numbered(1).name]
	grown := numbered(1)
	grown.lines = strings.Repeat("x", maxShardSize+1)
	g.Expect(s.put(grown)).To(And(HaveLen(2), ContainElement(small)))
	g.Expect(s.where[grown.name]).NotTo(Equal(small))
	g.Expect(small.entries).NotTo(HaveKey(grown.name))
}

func TestThereAreNoMoreConfigMapsThanAnInstanceMayWrite(t *testing.T) {
	g := NewWithT(t)
	s := newShards("x-")
	for i := range maxShards + 3 {
		large := numbered(i)
		large.lines = strings.Repeat("x", shardSize)
		s.put(large)
	}
	g.Expect(s.all).To(HaveLen(maxShards))
	g.Expect(s.names()).To(ContainElements("x-0", fmt.Sprintf("x-%d", maxShards-1)))
	for name := range s.all {
		g.Expect(s.may(name)).To(BeTrue(), name)
	}
	for _, name := range []string{"x-", "x-256", "x-1000", "x-01", "x-a", "y-1", "x--1"} {
		g.Expect(s.may(name)).To(BeFalse(), name)
	}
}

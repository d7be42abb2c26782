// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"
)

func TestAddresses(t *testing.T) {
	nobody := func(string) bool { return false }
	t.Run("no address is given out twice, and a full range gives none", func(t *testing.T) {
		g, used := NewWithT(t), sets.New[string]()
		a, ranges := newAddresses(used.Has), prefixes("10.0.0.0/29")
		seen := map[string]bool{}
		for range 5 {
			got := a.next(nil, ranges...)
			g.Expect(got).To(HaveLen(1))
			seen[got[0]] = true
		}
		g.Expect(seen).To(HaveLen(5), "though no cache has them yet")
		g.Expect(seen).NotTo(HaveKey("10.0.0.0"))
		g.Expect(seen).NotTo(HaveKey("10.0.0.1"))
		g.Expect(seen).NotTo(HaveKey("10.0.0.7"))
		for address := range seen {
			used.Insert(address)
		}
		g.Expect(a.next(nil, ranges...)).To(BeEmpty())

		used.Delete("10.0.0.4")
		g.Expect(a.next(nil, ranges...)).To(HaveExactElements("10.0.0.4"))
	})

	t.Run("a holder keeps its own", func(t *testing.T) {
		g, a := NewWithT(t), newAddresses(sets.New("10.0.0.2", "nonsense").Has)
		g.Expect(a.next([]string{"10.0.0.2"}, prefixes("10.0.0.0/24")...)).To(Equal([]string{"10.0.0.2"}))
		g.Expect(a.next([]string{"nonsense"}, prefixes("10.0.0.0/24")...)).To(Equal([]string{"10.0.0.3"}))
	})

	t.Run("each range gives one, of both families", func(t *testing.T) {
		g, a := NewWithT(t), newAddresses(nobody)
		g.Expect(a.next(nil, prefixes("10.0.1.128/25", "2001:db8::/64", "nonsense")...)).To(Equal([]string{"10.0.1.130", "2001:db8::2"}))
	})

	t.Run("a range that has no room for anybody gives none", func(t *testing.T) {
		g, a := NewWithT(t), newAddresses(nobody)
		g.Expect(a.next(nil, prefixes("10.0.0.1/32", "10.0.0.0/31", "255.255.255.255/32", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")...)).To(BeEmpty())
	})

	t.Run("a range with the last address there is begins again after it", func(t *testing.T) {
		g, a := NewWithT(t), newAddresses(nobody)
		seen := sets.New[string]()
		for range 300 {
			seen.Insert(a.next(nil, prefixes("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/120")...)...)
		}
		g.Expect(seen).To(HaveLen(254))
	})
}

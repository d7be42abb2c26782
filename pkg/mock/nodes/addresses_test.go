// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
)

func TestAddresses(t *testing.T) {
	t.Run("no address is given out twice, and a full range gives none", func(t *testing.T) {
		g, a := NewWithT(t), newAddresses()
		ranges := prefixes("10.0.0.0/29")
		seen := map[string]bool{}
		for i := range 5 {
			got := a.get(fmt.Sprint(i), ranges...)
			g.Expect(got).To(HaveLen(1))
			seen[got[0]] = true
		}
		g.Expect(seen).To(HaveLen(5))
		g.Expect(seen).NotTo(HaveKey("10.0.0.0"))
		g.Expect(seen).NotTo(HaveKey("10.0.0.1"))
		g.Expect(seen).NotTo(HaveKey("10.0.0.7"))
		g.Expect(a.get("5", ranges...)).To(BeEmpty())

		a.release("3")
		g.Expect(a.get("5", ranges...)).To(HaveLen(1))
	})

	t.Run("a holder keeps its own", func(t *testing.T) {
		g, a := NewWithT(t), newAddresses()
		a.hold("x", "10.0.0.2", "nonsense")
		a.hold("y", "10.0.0.2")
		g.Expect(a.get("x", prefixes("10.0.0.0/24")...)).To(Equal([]string{"10.0.0.2"}))
		g.Expect(a.get("y", prefixes("10.0.0.0/24")...)).To(Equal([]string{"10.0.0.3"}))
		g.Expect(a.get("y", prefixes("10.0.0.0/24")...)).To(Equal([]string{"10.0.0.3"}))
		a.release("nobody")
	})

	t.Run("each range gives one, of both families", func(t *testing.T) {
		g, a := NewWithT(t), newAddresses()
		g.Expect(a.get("x", prefixes("10.0.1.128/25", "2001:db8::/64", "nonsense")...)).To(Equal([]string{"10.0.1.130", "2001:db8::2"}))
	})

	t.Run("a range that has no room for anybody gives none", func(t *testing.T) {
		g, a := NewWithT(t), newAddresses()
		g.Expect(a.get("x", prefixes("10.0.0.1/32", "10.0.0.0/31")...)).To(BeEmpty())
	})
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
)

func TestPlan(t *testing.T) {
	some := func(hash string, count int, change ...func(*existing)) []existing {
		var out []existing
		for i := range count {
			e := existing{name: fmt.Sprintf("p-z1-%s-%d", hash, i), hash: hash, ready: true}
			for _, c := range change {
				c(&e)
			}
			out = append(out, e)
		}
		return out
	}
	unready := func(e *existing) { e.ready = false }
	going := func(e *existing) { e.going = true }

	for name, test := range map[string]struct {
		want, surge, unavailable int
		nodes                    []existing
		create, remove           []string
	}{
		"all at once where there is none":                      {want: 3, surge: 1, create: []string{"p-z1-new-0", "p-z1-new-1", "p-z1-new-2"}},
		"nothing where all is there":                           {want: 2, surge: 1, nodes: some("new", 2)},
		"those that are missing get the numbers that are free": {want: 3, surge: 1, nodes: some("new", 3)[1:2], create: []string{"p-z1-new-0", "p-z1-new-2"}},
		"a name that is not free yet is not taken":             {want: 1, surge: 1, nodes: some("new", 1, going), create: []string{"p-z1-new-1"}},
		"too many lose those with the highest numbers":         {want: 1, surge: 1, nodes: some("new", 3), remove: []string{"p-z1-new-1", "p-z1-new-2"}},
		"zero removes all":                                     {want: 0, surge: 1, nodes: append(some("new", 1), some("old", 1)...), remove: []string{"p-z1-new-0", "p-z1-old-0"}},
		"a rollout begins with as many as may be more":         {want: 4, surge: 2, nodes: some("old", 4), create: []string{"p-z1-new-0", "p-z1-new-1"}},
		"a rollout begins with as many fewer as there may be":  {want: 4, unavailable: 1, nodes: some("old", 4), remove: []string{"p-z1-old-0"}},
		"a rollout moves even if neither is allowed":           {want: 2, nodes: some("old", 2), create: []string{"p-z1-new-0"}},
		"one that is ready lets an old one go":                 {want: 4, surge: 1, nodes: append(some("old", 4), some("new", 1)...), remove: []string{"p-z1-old-0"}},
		"one that is not ready does not":                       {want: 4, surge: 1, nodes: append(some("old", 4), some("new", 1, unready)...)},
		"old ones that are not ready are missed by nobody":     {want: 2, surge: 1, nodes: some("old", 2, unready), create: []string{"p-z1-new-0"}, remove: []string{"p-z1-old-0", "p-z1-old-1"}},
		"old ones that go make room":                           {want: 2, surge: 1, nodes: append(some("old", 2, going), some("new", 1)...), create: []string{"p-z1-new-1"}},
		"a rollout to fewer":                                   {want: 1, surge: 1, nodes: some("old", 3), remove: []string{"p-z1-old-0", "p-z1-old-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			create, remove := plan(&group{name: "p-z1", hash: "new", want: test.want, surge: test.surge, unavailable: test.unavailable}, test.nodes)
			g.Expect(create).To(Equal(test.create))
			g.Expect(remove).To(Equal(test.remove))
		})
	}
}

// A rollout of any size ends, with no more and no fewer Nodes at any time than are allowed.
func TestPlanEnds(t *testing.T) {
	for want := range 6 {
		for surge := range 3 {
			for unavailable := range 3 {
				g := NewWithT(t)
				gr := &group{name: "p-z1", hash: "new", want: want, surge: surge, unavailable: unavailable}
				nodes := map[string]existing{}
				for i := range want {
					name := fmt.Sprintf("p-z1-old-%d", i)
					nodes[name] = existing{name: name, hash: "old", ready: true}
				}
				steps := 0
				for ; steps < 100; steps++ {
					var list []existing
					for _, node := range nodes {
						list = append(list, node)
					}
					create, remove := plan(gr, list)
					if len(create)+len(remove) == 0 {
						break
					}
					for _, name := range create {
						nodes[name] = existing{name: name, hash: "new", ready: true}
					}
					g.Expect(len(nodes)).To(BeNumerically("<=", want+max(surge, 1)), "want %d surge %d unavailable %d", want, surge, unavailable)
					for _, name := range remove {
						delete(nodes, name)
					}
					g.Expect(len(nodes)).To(BeNumerically(">=", want-unavailable))
				}
				g.Expect(steps).To(BeNumerically("<", 100))
				g.Expect(nodes).To(HaveLen(want))
				for _, node := range nodes {
					g.Expect(node.hash).To(Equal("new"))
				}
			}
		}
	}
}

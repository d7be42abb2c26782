// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// existing is what a plan has to know of a Node that there is.
type existing struct {
	name, hash string
	// ready means that pods may run on it; going that it has been deleted but is still there.
	ready, going bool
}

// number returns the number at the end of the name.
func (e existing) number() int {
	number, err := strconv.Atoi(e.name[strings.LastIndexByte(e.name, '-')+1:])
	if err != nil {
		return 0
	}
	return number
}

// plan says which Nodes of a group are to be created and deleted next. It is asked again whenever one of them has changed,
// and takes steps as machine-controller-manager does for a MachineDeployment: of Nodes with another hash, as many are replaced at a
// time as surge and unavailable allow; where both are zero, one more is.
func plan(g *group, nodes []existing) (create, remove []string) {
	surge := g.surge
	if surge == 0 && g.unavailable == 0 {
		surge = 1
	}

	var (
		current, old []existing
		ready        int
		taken        = map[int]bool{}
	)
	for _, node := range nodes {
		if node.hash == g.hash {
			// The name of one that is going cannot be had yet.
			taken[node.number()] = true
		}
		switch {
		case node.going:
			continue
		case node.hash == g.hash:
			current = append(current, node)
		default:
			old = append(old, node)
		}
		if node.ready {
			ready++
		}
	}

	allowed := max(0, g.want+surge-len(old))
	for number := 0; len(current)+len(create) < min(g.want, allowed); number++ {
		if !taken[number] {
			create = append(create, g.nodeName(number))
		}
	}

	// Too many: those with the highest numbers.
	slices.SortFunc(current, func(a, b existing) int { return cmp.Compare(a.number(), b.number()) })
	for _, node := range current[min(g.want, len(current)):] {
		remove = append(remove, node.name)
		if node.ready {
			ready--
		}
	}

	// Those that are not ready are missed by nobody.
	spare := max(0, ready-max(0, g.want-g.unavailable))
	slices.SortFunc(old, func(a, b existing) int { return cmp.Compare(a.name, b.name) })
	for _, node := range old {
		switch {
		case !node.ready:
		case spare > 0:
			spare--
		default:
			continue
		}
		remove = append(remove, node.name)
	}
	return create, remove
}

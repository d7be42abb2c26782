// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"errors"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Allocate asks for any address of a family.
func (p *Pool) Allocate(owner types.NamespacedName, family corev1.IPFamily) (netip.Addr, error) {
	answer := p.Ask(owner, false, Request{Family: family})[0]
	return answer.Address, answer.err()
}

// Claim asks for a certain address.
func (p *Pool) Claim(owner types.NamespacedName, address netip.Addr) error {
	return p.Ask(owner, false, Request{Family: FamilyOf(address), Address: address})[0].err()
}

// err returns the reason, if there is one, as an error.
func (a Answer) err() error {
	if a.Reason == "" {
		return nil
	}
	return errors.New(a.Reason)
}

// Held returns the addresses of an owner, sorted.
func (p *Pool) Held(owner types.NamespacedName) []netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()

	return slices.Clone(p.held[owner])
}

// Reserved returns the addresses that the Pool does not give out.
func (p *Pool) Reserved() []netip.Addr { return p.reserved.UnsortedList() }

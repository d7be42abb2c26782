// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

const dialTimeout = 10 * time.Second

// guard knows which addresses a kubeconfig may lead to.
type guard struct {
	// allowed are the ranges of servers. Without any, a server may have each address that is not forbidden.
	allowed []netip.Prefix
	// loopback lets servers of tests be on the loopback.
	loopback bool
}

// dialer looks at the address of each connection when its name has been resolved, so that no name can be resolved to another
// address after the check.
func (g guard) dialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		parsed, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return g.check(parsed.Addr())
	}}
}

// check returns a configuration problem if a server must not have an address. The loopback is the instance itself, link-local
// addresses are those of the node's network, with the metadata of data centers, and all others that are forbidden whatever the
// operator allows are no addresses of servers.
func (g guard) check(address netip.Addr) error {
	address = address.WithZone("").Unmap()
	switch {
	case address.IsLoopback() && g.loopback:
		return nil
	case !address.IsGlobalUnicast(), netip.MustParsePrefix("0.0.0.0/8").Contains(address):
		return mistake(fmt.Errorf("the address %s is a loopback, link-local, multicast or unspecified one: use a server with another address", address))
	case len(g.allowed) > 0 && !slices.ContainsFunc(g.allowed, func(p netip.Prefix) bool { return p.Contains(address) }):
		return mistake(fmt.Errorf("the address %s is in none of the ranges that the operator allows: use another server, or have its range added to machines.remote.allowedCIDRs", address))
	}
	return nil
}

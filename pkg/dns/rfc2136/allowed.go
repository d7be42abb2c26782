// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package rfc2136

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// defaultPortNumber is the port that every server may have if none are listed.
const defaultPortNumber = 53

var errNotAllowed = errors.New("is not one that a DNSRecord or its Secret may name: see dns.rfc2136.allowedServers in the configuration of the instance")

func isNotAllowed(err error) bool { return errors.Is(err, errNotAllowed) }

// allowedServer is a range of addresses and a port.
type allowedServer struct {
	addresses netip.Prefix
	port      uint16
}

// dial connects to a server. The address that a connection is really made to is checked, so that a name can't resolve to
// something else in between. The server of the configuration is the operator's own.
func (p *Provider) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := new(net.Dialer)
	if own, err := ParseServer(p.Server); p.Server == "" || err != nil || own != address {
		dialer.ControlContext = func(_ context.Context, _, resolved string, _ syscall.RawConn) error {
			return p.checkAddress(resolved)
		}
	}
	return dialer.DialContext(ctx, network, address)
}

func (p *Provider) checkAddress(resolved string) error {
	to, err := netip.ParseAddrPort(resolved)
	if err != nil {
		return errNotAllowed
	}
	address := to.Addr().Unmap().WithZone("")
	var allowed bool
	if len(p.allowed) > 0 {
		allowed = slices.ContainsFunc(p.allowed, func(a allowedServer) bool { return a.port == to.Port() && a.addresses.Contains(address) })
	} else {
		allowed = to.Port() == defaultPortNumber && !address.IsUnspecified() && !address.IsLoopback() && !address.IsMulticast() && !address.IsLinkLocalUnicast()
	}
	if !allowed {
		return errNotAllowed
	}
	return nil
}

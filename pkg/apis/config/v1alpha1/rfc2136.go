// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

const defaultDNSPort = 53

// ParseAllowedServer returns the addresses and the port of one of RFC2136Configuration.AllowedServers.
func ParseAllowedServer(value string) (netip.Prefix, uint16, error) {
	host, port := value, uint16(defaultDNSPort)
	addresses, err := parseRange(host)
	if err != nil {
		var text string
		if host, text, err = net.SplitHostPort(value); err == nil {
			var number uint64
			if number, err = strconv.ParseUint(text, 10, 16); err == nil {
				port = uint16(number)
				addresses, err = parseRange(host)
			}
		}
	}
	if err != nil || port == 0 {
		return netip.Prefix{}, 0, fmt.Errorf("%q must be an address or a CIDR, with :PORT behind it if that is not %d; an IPv6 one with a port is in brackets", value, defaultDNSPort)
	}
	return addresses, port, nil
}

func parseRange(value string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(value); err == nil && address.Zone() == "" {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	return netip.ParsePrefix(value)
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"go4.org/netipx"
)

const defaultDNSPort = 53

// ParseAllowedServer returns the addresses and the port of one of RFC2136Configuration.AllowedServers.
func ParseAllowedServer(value string) (netip.Prefix, uint16, error) {
	port := uint64(defaultDNSPort)
	addresses, err := parseRange(value)
	if err != nil {
		host, text, splitErr := net.SplitHostPort(value)
		number, numberErr := strconv.ParseUint(text, 10, 16)
		port = number
		addresses, err = parseRange(host)
		err = errors.Join(err, splitErr, numberErr)
	}
	if err != nil || port == 0 {
		return netip.Prefix{}, 0, fmt.Errorf("%q must be an address or a CIDR, with :PORT behind it if that is not %d; an IPv6 one with a port is in brackets", value, defaultDNSPort)
	}
	return addresses, uint16(port), nil // #nosec G115 -- parsed as 16 bits
}

func parseRange(value string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(value); err == nil && address.Zone() == "" {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	return netip.ParsePrefix(value)
}

// ParseAddressRange parses a CIDR, whose first and last addresses count like all others, or FIRST-LAST.
func ParseAddressRange(value string) (netipx.IPRange, error) {
	addresses, err := netipx.ParseIPRange(value)
	if prefix, prefixErr := netip.ParsePrefix(value); prefixErr == nil {
		addresses, err = netipx.RangeOfPrefix(prefix), nil
	}
	// netipx drops zones.
	if err != nil || strings.Contains(value, "%") || addresses.From().Is4In6() || addresses.To().Is4In6() {
		return netipx.IPRange{}, fmt.Errorf("%q is neither a CIDR nor FIRST-LAST, two addresses of one family in this order", value)
	}
	return addresses, nil
}

// ParseCIDRs parses ranges of addresses, and clears the bits of each address that are beyond its prefix.
func ParseCIDRs(cidrs []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, cidr := range cidrs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil || prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("%q is no CIDR", cidr)
		}
		out = append(out, prefix.Masked())
	}
	return out, nil
}

func isPlain(address netip.Addr) bool { return address.Zone() == "" && !address.Is4In6() }

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

// AddressRange is a range of addresses of one family.
//
// +k8s:deepcopy-gen=false
type AddressRange struct {
	// First and Last belong to it.
	First, Last netip.Addr
}

// ParseAddressRange parses a CIDR, whose first and last addresses count like all others, or FIRST-LAST.
func ParseAddressRange(value string) (AddressRange, error) {
	first, last, isRange := strings.Cut(value, "-")
	if !isRange {
		prefix, err := netip.ParsePrefix(value)
		if err != nil || prefix.Addr().Is4In6() {
			return AddressRange{}, fmt.Errorf("%q is neither a CIDR nor FIRST-LAST", value)
		}
		prefix = prefix.Masked()
		return AddressRange{First: prefix.Addr(), Last: lastOf(prefix)}, nil
	}

	var (
		out  AddressRange
		errs [2]error
	)
	out.First, errs[0] = netip.ParseAddr(first)
	out.Last, errs[1] = netip.ParseAddr(last)
	switch {
	case errors.Join(errs[:]...) != nil || !isPlain(out.First) || !isPlain(out.Last):
		return AddressRange{}, fmt.Errorf("%q is neither a CIDR nor FIRST-LAST", value)
	case out.First.Is4() != out.Last.Is4() || out.Last.Less(out.First):
		return AddressRange{}, fmt.Errorf("%q must be of one family, the first address not after the last", value)
	}
	return out, nil
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

// Contains reports whether an address is in the range.
func (r AddressRange) Contains(address netip.Addr) bool {
	return address.Is4() == r.First.Is4() && !address.Less(r.First) && !r.Last.Less(address)
}

// Prefixes returns the prefixes, as few as there can be, that the range consists of.
func (r AddressRange) Prefixes() []netip.Prefix {
	var out []netip.Prefix
	for first := r.First; ; {
		prefix := netip.PrefixFrom(first, first.BitLen())
		for prefix.Bits() > 0 {
			larger, _ := first.Prefix(prefix.Bits() - 1)
			if larger.Addr() != first || r.Last.Less(lastOf(larger)) {
				break
			}
			prefix = larger
		}
		out = append(out, prefix)
		last := lastOf(prefix)
		if !last.Less(r.Last) {
			return out
		}
		first = last.Next()
	}
}

func lastOf(prefix netip.Prefix) netip.Addr {
	raw := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(raw)
	return last
}

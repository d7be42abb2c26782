// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
)

// links is what the plugin sees and changes of the machine's network.
type links interface {
	// addAddress does nothing if the device has the address.
	addAddress(device string, address netip.Prefix) error
	// removeAddress does nothing if the device has no such address.
	removeAddress(device string, address netip.Prefix) error
	// addresses are all of IPv4 that a device has; none if there is no such device.
	addresses(device string) ([]netip.Prefix, error)
	// networks are what the machine has IPv4 routes to, but for a default route and those to the bridge.
	networks(bridge string) ([]netip.Prefix, error)
}

// linux is the machine itself.
type linux struct{}

func (linux) addAddress(device string, address netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	// Left to itself, a bridge has the lowest address of its ports, so another one as they come and go. Pods would go on sending
	// to the one that they know. The plugin for bridges sets it where it makes the gateway.
	if err := netlink.LinkSetHardwareAddr(link, link.Attrs().HardwareAddr); err != nil {
		return err
	}
	err = netlink.AddrAdd(link, addressOf(address))
	if errors.Is(err, syscall.EEXIST) {
		return nil
	}
	return err
}

func (linux) removeAddress(device string, address netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	err = netlink.AddrDel(link, addressOf(address))
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil
	}
	return err
}

func (linux) addresses(device string) ([]netip.Prefix, error) {
	link, err := netlink.LinkByName(device)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	var out []netip.Prefix
	for _, address := range list {
		prefix, err := prefixOf(address.IP, address.Mask)
		if err != nil {
			return nil, err
		}
		out = append(out, prefix)
	}
	return out, nil
}

func (linux) networks(bridge string) ([]netip.Prefix, error) {
	link, err := netlink.LinkByName(bridge)
	if err != nil {
		return nil, err
	}
	// All tables: what is the machine's own is in another than the main one.
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: syscall.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, err
	}
	var out []netip.Prefix
	for _, route := range routes {
		if route.Dst == nil || route.LinkIndex == link.Attrs().Index {
			continue
		}
		prefix, err := prefixOf(route.Dst.IP, route.Dst.Mask)
		if err != nil {
			return nil, err
		}
		if prefix.Bits() > 1 { // A VPN may split the default route in two.
			out = append(out, prefix)
		}
	}
	return out, nil
}

func addressOf(prefix netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}}
}

// prefixOf keeps the address, masked or not.
func prefixOf(ip net.IP, mask net.IPMask) (netip.Prefix, error) {
	address, ok := netip.AddrFromSlice(ip)
	bits, size := mask.Size()
	if address = address.Unmap(); !ok || size != address.BitLen() {
		return netip.Prefix{}, fmt.Errorf("%s with mask %s is no address", ip, mask)
	}
	return netip.PrefixFrom(address, bits), nil
}

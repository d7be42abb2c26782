// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
)

// protocol marks the routes that are this program's; see /etc/iproute2/rt_protos for the numbers that others take.
const protocol netlink.RouteProtocol = 80

// forwarding are the kernel's switches. Without IPv6 it does not have the second one.
var forwarding = []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"}

// linux is the kernel of the node.
type linux struct{}

func (linux) forward() error {
	for _, path := range forwarding {
		content, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || err == nil && strings.TrimSpace(string(content)) == "1" {
			continue
		}
		if err := os.WriteFile(path, []byte("1"), 0o600); err != nil {
			return fmt.Errorf("letting the node forward packets: %w", err)
		}
	}
	return nil
}

func (linux) masquerade(ctx context.Context, pods netip.Prefix) error {
	rule := []string{
		"POSTROUTING", "-s", pods.String(), "!", "-d", pods.String(), "-m", "comment", "--comment", "pods are not known outside of the cluster",
		"-j", "MASQUERADE",
	}
	program := map[bool]string{true: "iptables", false: "ip6tables"}[pods.Addr().Is4()]
	iptables := func(action string) ([]byte, error) {
		// #nosec G204 -- the arguments are a parsed range and constants.
		return exec.CommandContext(ctx, program, append([]string{"-w", "5", "-t", "nat", action}, rule...)...).CombinedOutput()
	}
	if _, err := iptables("-C"); err == nil {
		return nil
	}
	if output, err := iptables("-A"); err != nil {
		return fmt.Errorf("masquerading: %w: %s", err, bytes.TrimSpace(output))
	}
	return nil
}

func (linux) routes() ([]route, error) {
	found, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, err
	}
	var out []route
	for _, r := range found {
		if r.Dst == nil {
			continue
		}
		to, err := netip.ParsePrefix(r.Dst.String())
		if err != nil {
			return nil, err
		}
		via, _ := netip.AddrFromSlice(r.Gw)
		out = append(out, route{to: to, via: via.Unmap()})
	}
	return out, nil
}

func (linux) replace(r route) error { return netlink.RouteReplace(kernelRoute(r)) }

func (linux) remove(r route) error {
	if err := netlink.RouteDel(kernelRoute(r)); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

func kernelRoute(r route) *netlink.Route {
	out := &netlink.Route{
		Dst:      &net.IPNet{IP: r.to.Addr().AsSlice(), Mask: net.CIDRMask(r.to.Bits(), r.to.Addr().BitLen())},
		Protocol: protocol,
	}
	if r.via.IsValid() {
		out.Gw = r.via.AsSlice()
	}
	return out
}

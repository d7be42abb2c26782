// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// runSidecar puts the address of the kube-apiserver on the node. Unless it is told not to be a daemon, it stays.
func runSidecar(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(roleSidecar, flag.ContinueOnError)
	address := flags.String("ip-address", "", "the address")
	daemon := flags.Bool("daemon", true, "whether to stay")
	flags.String("interface", "", "the device, which is not used")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ip, err := netip.ParseAddr(*address)
	if err != nil {
		return fmt.Errorf("reading the address: %w", err)
	}
	if !ip.Is4() {
		return fmt.Errorf("%s is not of IPv4", ip)
	}
	if err := addAddress(ip); err != nil {
		return fmt.Errorf("adding address %s: %w", ip, err)
	}
	slog.Info("The loopback device has the address", "address", ip)
	if *daemon {
		<-ctx.Done()
	}
	return nil
}

// addAddress adds an address of the host to the loopback device; one that is there is fine.
func addAddress(ip netip.Addr) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.AddrReplace(loopback, &netlink.Addr{IPNet: netlink.NewIPNet(ip.AsSlice()), Scope: unix.RT_SCOPE_HOST})
}

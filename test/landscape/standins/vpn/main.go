// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command vpn stands in for what connects a seed and the machines of a shoot, none of which is to be had from the Go module
// proxy: OpenVPN in vpn-seed-server and vpn-shoot (images gardener/vpn-server and vpn-client), Envoy beside vpn-seed-server
// and in apiserver-proxy (image envoyproxy/envoy), and the sidecar of the latter (image gardener/apiserver-proxy). It is called
// as the originals are and knows by that which of them it is; what their Pods mount and set is all that it needs.
//
//   - vpn-client dials the seed through the ingress gateway (HTTP CONNECT) and keeps a connection of mutual TLS open, in which
//     streams are multiplexed. For each stream it dials what is asked for, within the shoot's networks only.
//   - vpn-server takes these connections at port 1194, and opens a stream in the newest of them for what it is asked for on
//     the Pod's loopback device.
//   - envoy beside it ends the mutual TLS of kube-apiserver's HTTP CONNECT at port 9443, and passes it on to there.
//   - envoy in a shoot listens on the kube-apiserver's address within the shoot, and passes connections on through the
//     gateway. The sidecar puts the address on the loopback device rather than on a device of its own.
//
// It routes no packets: no tun device, no address and no route is made, and nothing but TCP that kube-apiserver opens goes
// through. It does not: high availability (IS_HA), the tls-auth key (what it guards is OpenVPN's own protocol), metrics.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/program"
)

// The programs that are stood in for, by the name with which they are called.
const (
	roleServer  = "vpn-server"
	roleClient  = "vpn-client"
	roleEnvoy   = "envoy"
	roleSidecar = "apiserver-proxy"
)

// localAddress is where vpn-server listens for envoy and for its own probes, as both share a network namespace.
const localAddress = "127.0.0.1:1195"

func main() {
	program.Main(func(ctx context.Context) error { return run(ctx, os.Args, os.Getenv) })
}

func run(ctx context.Context, args []string, getenv func(string) string) error {
	role, rest := filepath.Base(args[0]), args[1:]
	if getenv("IS_HA") == "true" {
		return fmt.Errorf("%s: a highly available VPN is not stood in for", role)
	}
	command := ""
	if len(rest) > 0 {
		command = rest[0]
	}
	slog.Info("This is a stand-in of the local landscape", "role", role, "command", command)
	switch {
	case command == "setup" && (role == roleServer || role == roleClient):
		// No routes and no devices, so that there is nothing to set up.
		return nil
	case role == roleServer && (command == "readiness" || command == "liveness"):
		// The server runs in another process of the Pod.
		return program.Ask(ctx, "tcp", localAddress, "/"+command)
	case role == roleServer && command == "":
		return runServer(ctx, getenv)
	case role == roleClient && command == "":
		return runClient(ctx, getenv)
	case role == roleEnvoy:
		return runEnvoy(ctx, rest)
	case role == roleSidecar:
		return runSidecar(ctx, rest)
	}
	return fmt.Errorf("%q is not stood in for", args)
}

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
	return netlink.AddrReplace(loopback, &netlink.Addr{IPNet: netlink.NewIPNet(ip.AsSlice()), Scope: unix.RT_SCOPE_HOST, Flags: unix.IFA_F_NODAD})
}

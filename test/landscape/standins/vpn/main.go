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
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/relay"
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
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args, os.Getenv); err != nil {
		slog.Error("Ending", "error", err)
		os.Exit(1) //nolint:gocritic // Nothing is left to stop.
	}
}

func run(ctx context.Context, args []string, getenv func(string) string) error {
	role, rest := roleOf(args, getenv), args[1:]
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
		return probe(ctx, "http://"+localAddress+"/"+command)
	case role == roleServer && command == "":
		return runServer(ctx)
	case role == roleClient && command == "":
		return runClient(ctx, getenv)
	case role == roleEnvoy:
		return runEnvoy(ctx, rest)
	case role == roleSidecar:
		return runSidecar(ctx, rest)
	}
	return fmt.Errorf("%q is not stood in for", args)
}

// roleOf tells who is stood in for: by the name of the program, or, if it is called by its own, by what is set for it.
func roleOf(args []string, getenv func(string) string) string {
	name := filepath.Base(args[0])
	switch {
	case slices.Contains([]string{roleServer, roleClient, roleEnvoy, roleSidecar}, name):
		return name
	case slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--ip-address=") }):
		return roleSidecar
	case getenv("IS_SHOOT_CLIENT") == "true":
		return roleClient
	case getenv("OPENVPN_STATUS_PATH") != "":
		return roleServer
	}
	return name
}

// probe answers for the server, which runs in another process of the same Pod.
func probe(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, relay.DialTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

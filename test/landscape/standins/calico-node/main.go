// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command calico-node stands in for Calico's images calico/node and calico/cni, whose BIRD and eBPF programs cannot be had
// from the Go module proxy. It is called as the DaemonSet of gardener-extension-networking-calico calls these:
//
//	/opt/cni/bin/install      writes the node's CNI configuration: bridge, host-local with the node's ranges for pods, portmap.
//	/bin/calico-node          keeps routes to the other nodes' ranges by their internal addresses, and masquerades what pods
//	                          send to addresses that are not pods'. It sets the node's condition NetworkUnavailable to False.
//	  -felix-live, -bird-live, -felix-ready, -bird-ready
//	                          are the probes: ready is what has its configuration in place and all of its routes.
//	  -startup                only sets the condition.
//	  -shutdown               does nothing, as the network works without this program.
//
// It needs the CNI plugins bridge, host-local and portmap on the node, /proc/sys, iptables in its image, and nodes that reach
// each other directly. It does not: enforce NetworkPolicies, tunnels (IP-in-IP, VXLAN, WireGuard), BGP, Calico's own
// API (IPPools and so on), metrics.
//
// The ServiceAccount needs to get, list and watch nodes and to patch nodes/status.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/program"
)

const (
	// configurationFolder is where the DaemonSet mounts the node's /etc/cni/net.d, in both containers.
	configurationFolder = "/host/etc/cni/net.d"
	// pluginFolder is where it mounts the node's /opt/cni/bin.
	pluginFolder = "/host/secondary-bin-dir"
	// configurationName is the default of CNI_CONF_NAME.
	configurationName = "10-calico.conflist"
	// healthSocket is in a folder that the DaemonSet mounts for the like.
	healthSocket = "/var/run/calico/stand-in.sock"
)

func main() {
	program.Main(func(ctx context.Context) error { return run(ctx, filepath.Base(os.Args[0]), os.Args[1:]) })
}

func run(ctx context.Context, name string, args []string) error {
	paths, err := probed(args)
	switch {
	case name == "install" && len(args) == 0:
		client, err := newClient()
		if err != nil {
			return err
		}
		return installation{
			client: client, node: os.Getenv("KUBERNETES_NODE_NAME"), folder: configurationFolder, plugins: pluginFolder,
			name: os.Getenv("CNI_CONF_NAME"), mtu: os.Getenv("CNI_MTU"),
		}.run(ctx)
	case len(args) == 0:
		client, err := newClient()
		if err != nil {
			return err
		}
		return newAgent(client, os.Getenv("NODENAME"), []string{os.Getenv("CALICO_IPV4POOL_CIDR"), os.Getenv("CALICO_IPV6POOL_CIDR")}, filepath.Join(configurationFolder, configurationName)).run(ctx, healthSocket)
	case slices.Equal(args, []string{"-startup"}):
		client, err := newClient()
		if err != nil {
			return err
		}
		return setNetworkAvailable(ctx, client, os.Getenv("NODENAME"))
	case slices.Equal(args, []string{"-shutdown"}):
		return nil
	case err != nil:
		return err
	}
	for _, path := range paths {
		if err := program.Ask(ctx, "unix", healthSocket, path); err != nil {
			return err
		}
	}
	return nil
}

// probed maps the arguments of a probe to what is asked for.
func probed(args []string) ([]string, error) {
	var paths []string
	for _, arg := range args {
		switch arg {
		case "-felix-live", "-bird-live":
			paths = append(paths, livePath)
		case "-felix-ready", "-bird-ready":
			paths = append(paths, readyPath)
		default:
			return nil, fmt.Errorf("%q is not stood in for", arg)
		}
	}
	return slices.Compact(paths), nil
}

func newClient() (kubernetes.Interface, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	config.UserAgent = "landscape-calico-node"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}

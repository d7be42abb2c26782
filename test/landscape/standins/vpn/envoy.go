// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/relay"
)

// envoyConfig is what is read of the configuration that Gardener gives to Envoy.
type envoyConfig struct {
	StaticResources struct {
		Listeners []envoyListener `json:"listeners"`
		Clusters  []struct {
			Name           string `json:"name"`
			LoadAssignment struct {
				Endpoints []struct {
					LBEndpoints []struct {
						Endpoint struct {
							Address envoyAddress `json:"address"`
						} `json:"endpoint"`
					} `json:"lb_endpoints"`
				} `json:"endpoints"`
			} `json:"load_assignment"`
		} `json:"clusters"`
	} `json:"static_resources"`
}

type envoyListener struct {
	Name         string       `json:"name"`
	Address      envoyAddress `json:"address"`
	FilterChains []struct {
		TransportSocket struct {
			TypedConfig struct {
				CommonTLSContext struct {
					Certificates []struct {
						Chain envoyFile `json:"certificate_chain"`
						Key   envoyFile `json:"private_key"`
					} `json:"tls_certificates"`
					ValidationContext struct {
						TrustedCA envoyFile `json:"trusted_ca"`
					} `json:"validation_context"`
				} `json:"common_tls_context"`
			} `json:"typed_config"`
		} `json:"transport_socket"`
		Filters []struct {
			TypedConfig struct {
				Cluster string `json:"cluster"`
				Tunnel  *struct {
					Hostname string `json:"hostname"`
					Headers  []struct {
						Header struct {
							Key   string `json:"key"`
							Value string `json:"value"`
						} `json:"header"`
					} `json:"headers_to_add"`
				} `json:"tunneling_config"`
			} `json:"typed_config"`
		} `json:"filters"`
	} `json:"filter_chains"`
}

type envoyAddress struct {
	Socket struct {
		Address string `json:"address"`
		Port    int    `json:"port_value"`
	} `json:"socket_address"`
}

func (a envoyAddress) String() string {
	return net.JoinHostPort(a.Socket.Address, strconv.Itoa(a.Socket.Port))
}

type envoyFile struct {
	Filename string `json:"filename"`
}

// runEnvoy serves all listeners of the configuration that "-c" names.
func runEnvoy(ctx context.Context, args []string) error {
	at := slices.Index(args, "-c") + 1
	if at == 0 || at == len(args) {
		return errors.New("envoy: no configuration is named with -c")
	}
	content, err := os.ReadFile(args[at]) // #nosec G304,G703 -- the Pod's own configuration.
	if err != nil {
		return err
	}
	config := &envoyConfig{}
	if err := yaml.Unmarshal(content, config); err != nil {
		return fmt.Errorf("reading %s: %w", args[at], err)
	}
	dialer := &net.Dialer{Timeout: relay.DialTimeout}
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range config.StaticResources.Listeners {
		handle, err := config.handler(l, dialer.DialContext, localAddress)
		if err != nil {
			return fmt.Errorf("listener %s: %w", l.Name, err)
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.Address.String())
		if err != nil {
			return fmt.Errorf("listener %s: %w", l.Name, err)
		}
		slog.Info("Listening", "listener", l.Name, "address", listener.Addr().String())
		group.Go(func() error { return relay.Serve(ctx, listener, streams, handle) })
	}
	return group.Wait()
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// handler tells what a listener is for: to pass connections on through an HTTP proxy (apiserver-proxy), to let
// kube-apiserver into the VPN (vpn-seed-server, whose address is local), or to tell that all is well.
func (c *envoyConfig) handler(l envoyListener, dial dialFunc, local string) (func(context.Context, net.Conn), error) {
	for _, chain := range l.FilterChains {
		for _, filter := range chain.Filters {
			if tunnel := filter.TypedConfig.Tunnel; tunnel != nil {
				proxy, err := c.endpoint(filter.TypedConfig.Cluster)
				if err != nil {
					return nil, err
				}
				header := http.Header{}
				for _, added := range tunnel.Headers {
					header.Add(added.Header.Key, added.Header.Value)
				}
				return passOn(dial, proxy, tunnel.Hostname, header), nil
			}
		}
		if tlsContext := chain.TransportSocket.TypedConfig.CommonTLSContext; len(tlsContext.Certificates) > 0 {
			pair := tlsContext.Certificates[0]
			own, err := loadFiles(pair.Chain.Filename, pair.Key.Filename, tlsContext.ValidationContext.TrustedCA.Filename)
			if err != nil {
				return nil, err
			}
			return letIn(dial, local, own.server("")), nil
		}
	}
	return serveStatus, nil
}

// endpoint finds the only endpoint of a cluster.
func (c *envoyConfig) endpoint(cluster string) (string, error) {
	for _, candidate := range c.StaticResources.Clusters {
		if endpoints := candidate.LoadAssignment.Endpoints; candidate.Name == cluster && len(endpoints) > 0 && len(endpoints[0].LBEndpoints) > 0 {
			return endpoints[0].LBEndpoints[0].Endpoint.Address.String(), nil
		}
	}
	return "", fmt.Errorf("cluster %q has no endpoint", cluster)
}

// passOn joins each connection to a host behind a proxy.
func passOn(dial dialFunc, proxy, host string, header http.Header) func(context.Context, net.Conn) {
	return func(ctx context.Context, conn net.Conn) {
		upstream, err := dial(ctx, "tcp", proxy)
		if err != nil {
			slog.Info("Not reached", "proxy", proxy, "error", err)
			return
		}
		defer upstream.Close()
		joined, err := relay.Connect(upstream, host, header)
		if err != nil {
			slog.Info("Not reached", "proxy", proxy, "error", err)
			return
		}
		relay.Join(conn, joined)
	}
}

// letIn ends TLS, and leaves it to the server of the VPN to read what comes then.
func letIn(dial dialFunc, local string, config *tls.Config) func(context.Context, net.Conn) {
	return func(ctx context.Context, conn net.Conn) {
		encrypted := tls.Server(conn, config)
		if err := handshake(ctx, encrypted); err != nil {
			// Probes, which only open a connection, end here.
			slog.Debug("Not let in", "from", conn.RemoteAddr().String(), "error", err)
			return
		}
		server, err := dial(ctx, "tcp", local)
		if err != nil {
			slog.Info("Not reached", "error", err)
			return
		}
		relay.Join(encrypted, server)
	}
}

// serveStatus answers probes, and scrapes with no metrics.
func serveStatus(_ context.Context, conn net.Conn) {
	relay.ServeRequest(conn, func(request *http.Request) (net.Conn, int) {
		if request.URL.Path == "/ready" || request.URL.Path == "/metrics" {
			return nil, http.StatusOK
		}
		return nil, http.StatusNotFound
	})
}

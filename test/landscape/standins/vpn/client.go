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
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/relay"
)

const (
	// clientCredentials is where vpn-shoot has its certificate.
	clientCredentials = "/srv/secrets/vpn-client" // #nosec G101 -- a path.
	// A tunnel that can't be made is tried again after a time that doubles from the first to the last, give or take a half.
	firstRetry, lastRetry = 250 * time.Millisecond, 5 * time.Second
)

func runClient(ctx context.Context, getenv func(string) string) error {
	own, err := loadCredentials(clientCredentials)
	if err != nil {
		return err
	}
	c := &client{
		gateway: net.JoinHostPort(getenv("ENDPOINT"), getenv("OPENVPN_PORT")),
		header:  http.Header{getenv("REVERSED_VPN_HEADER_KEY"): {getenv("REVERSED_VPN_HEADER")}},
		tls:     own.client(serverName),
		dial:    (&net.Dialer{Timeout: relay.DialTimeout}).DialContext,
		resolve: net.DefaultResolver.LookupNetIP,
	}
	if c.networks, err = shootNetworks(getenv); err != nil {
		return err
	}
	if len(c.networks) == 0 {
		return errors.New("no networks of the shoot are set")
	}
	slog.Info("Connecting", "gateway", c.gateway, "networks", c.networks)
	c.run(ctx)
	return nil
}

// client is the shoot's side of the VPN.
type client struct {
	// gateway is the ingress gateway of the seed, host:port, and header what has it join us to our vpn-seed-server.
	gateway string
	header  http.Header
	tls     *tls.Config
	// networks are what can be reached through us, and nothing else.
	networks []netip.Prefix
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	resolve  func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// run keeps a tunnel open until ctx ends.
func (c *client) run(ctx context.Context) {
	retry := firstRetry
	for ctx.Err() == nil {
		begin := time.Now()
		err := c.tunnel(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > lastRetry {
			retry = firstRetry
		}
		slog.Info("There is no tunnel", "error", err)
		select {
		case <-time.After(retry/2 + rand.N(retry)): // #nosec G404 -- spreads retries, no secret.
		case <-ctx.Done():
		}
		retry = min(2*retry, lastRetry)
	}
}

// tunnel makes one connection, and serves it until it breaks.
func (c *client) tunnel(ctx context.Context) error {
	conn, err := c.dial(ctx, "tcp", c.gateway)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	conn, err = relay.Connect(conn, serverName+":1194", c.header)
	if err != nil {
		return err
	}
	encrypted := tls.Client(conn, c.tls)
	if err := handshake(ctx, encrypted); err != nil {
		return err
	}
	// The seed's side opens the streams, so that this one is the server.
	session, err := yamux.Server(encrypted, muxConfig())
	if err != nil {
		return err
	}
	slog.Info("Tunnel is there")
	return relay.Serve(ctx, session, streams, c.serveStream)
}

// serveStream joins a stream to what it asks for.
func (c *client) serveStream(ctx context.Context, stream net.Conn) {
	relay.ServeRequest(stream, func(request *http.Request) (net.Conn, int) {
		if request.Method != http.MethodConnect {
			return nil, http.StatusMethodNotAllowed
		}
		address, err := c.allowed(ctx, request.Host)
		if err != nil {
			slog.Info("Refused", "target", request.Host, "error", err)
			return nil, http.StatusForbidden
		}
		target, err := c.dial(ctx, "tcp", address)
		if err != nil {
			slog.Info("Not reached", "target", request.Host, "error", err)
			return nil, http.StatusBadGateway
		}
		return target, http.StatusOK
	})
}

// allowed turns host:port into IP:port, if it is in the shoot's networks.
func (c *client) allowed(ctx context.Context, target string) (string, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, relay.DialTimeout)
	defer cancel()
	addresses, err := c.resolve(ctx, "ip", host)
	if err != nil {
		return "", err
	}
	for _, address := range addresses {
		address = address.Unmap()
		if contain(c.networks, address) {
			return net.JoinHostPort(address.String(), port), nil
		}
	}
	return "", errors.New("not in the shoot's networks")
}

// shootNetworks reads the ranges that are behind the tunnel: lists with commas.
func shootNetworks(getenv func(string) string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, name := range []string{"SHOOT_POD_NETWORKS", "SHOOT_SERVICE_NETWORKS", "SHOOT_NODE_NETWORKS"} {
		for network := range strings.SplitSeq(getenv(name), ",") {
			if network == "" {
				continue
			}
			prefix, err := netip.ParsePrefix(strings.TrimSpace(network))
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", name, err)
			}
			all = append(all, prefix)
		}
	}
	return all, nil
}

func contain(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(network netip.Prefix) bool { return network.Contains(address) })
}

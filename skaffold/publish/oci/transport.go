// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/wait"
)

// plainHTTPName is the one name, with any port, to which Gardener speaks plain HTTP when it pulls charts.
const plainHTTPName = "registry.local.gardener.cloud"

// Local tells whether a registry (host or host:port) is local by its name: a loopback or private address, localhost,
// *.local, or registry.local.gardener.cloud. From those Gardener pulls charts by plain HTTP (go-containerregistry's rule
// and Gardener's pkg/utils/oci).
func Local(host string) bool {
	name := nameOf(host)
	if loopback(host) || name == plainHTTPName || strings.HasSuffix(name, ".local") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.IsPrivate()
}

func loopback(host string) bool {
	name := nameOf(host)
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.IsLoopback()
}

// nameOf returns host without its port.
func nameOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

// plainHTTP tells whether to speak plain HTTP to a registry. A local one is asked by TLS first.
func (c *Client) plainHTTP(ctx context.Context, host string) (bool, error) {
	if c.opts.PlainHTTP {
		return true, nil
	}
	if !Local(host) {
		return false, nil
	}

	var plain bool
	err := c.retry(ctx, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/v2/", nil)
		if err != nil {
			return err
		}
		response, err := c.transport.RoundTrip(request)
		if err == nil {
			return response.Body.Close()
		}
		var noTLS tls.RecordHeaderError
		if errors.As(err, &noTLS) && string(noTLS.RecordHeader[:]) == "HTTP/" {
			plain = true
			return nil
		}
		return err
	})
	return plain, err
}

// retry calls f until it succeeds, fails for a reason that won't pass, or the attempts are used up. It returns the last
// error of f.
func (c *Client) retry(ctx context.Context, f func(context.Context) error) error {
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, c.opts.Backoff, func(ctx context.Context) (bool, error) {
		last = f(ctx)
		if last == nil {
			return true, nil
		}
		if !passing(last) {
			return false, last
		}
		return false, nil
	})
	if last != nil && ctx.Err() == nil {
		return last
	}
	return err
}

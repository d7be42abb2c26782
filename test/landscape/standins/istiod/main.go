// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command istiod stands in for Istio's control plane (image istio-release/pilot), whose module can't be had. The stand-in of the gateway asks
// it for nothing. It is ready, and serves the one metric without which Gardener takes a Seed with Prometheus for unhealthy.
package main

import (
	"context"
	"io"
	"net/http"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/program"
)

func main() {
	program.Main(func(ctx context.Context) error {
		go func() { _ = program.Serve(ctx, "tcp", ":8080", http.HandlerFunc(page)) }() // Without it the Pod is not ready.
		return program.Serve(ctx, "tcp", ":15014", http.HandlerFunc(page))
	})
}

func page(response http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(response, "istio_build{component=\"stand-in\"} 1\n")
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command plutono stands in for Plutono, whose module can't be had. It has no dashboards: its one page says what it is, so that
// the way to it can be tested, through the gateway and with the credentials of a shoot, a seed, or the Garden.
package main

import (
	"context"
	"io"
	"net/http"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/program"
)

func main() {
	program.Main(func(ctx context.Context) error {
		return program.Serve(ctx, "tcp", ":3000", http.HandlerFunc(page))
	})
}

func page(response http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(response, "This is a stand-in of the local landscape for Plutono. It has no dashboards.\n")
}

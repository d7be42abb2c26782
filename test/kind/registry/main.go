// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command registry is the registry of the distribution project, as the image registry:3 has it. Environment variables change its
// configuration.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

// defaults are what that image is configured with.
const defaults = `version: 0.1
storage:
  cache: {blobdescriptor: inmemory}
  filesystem: {rootdirectory: /var/lib/registry}
http: {addr: ":5000"}
`

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := configuration.Parse(strings.NewReader(defaults))
	if err != nil {
		return err
	}
	server, err := registry.NewRegistry(ctx, config)
	if err != nil {
		return err
	}
	return server.ListenAndServe()
}

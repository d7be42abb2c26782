// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command registry is the registry of the distribution project, as the image registry:3 has it. Environment variables change its
// configuration.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

// defaults are what that image is configured with.
const defaults = `version: 0.1
storage:
  cache: {blobdescriptor: inmemory}
  filesystem: {rootdirectory: /var/lib/registry}
http:
  addr: ":5000"
  debug:
    addr: ":5001"
    prometheus: {enabled: true, path: /metrics}
`

func main() {
	// The image has this program and nothing else.
	path := filepath.Join(os.TempDir(), "registry.yaml")
	if err := errors.Join(os.MkdirAll(os.TempDir(), 0o755), os.WriteFile(path, []byte(defaults), 0o600)); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
	registry.RootCmd.SetArgs([]string{"serve", path})
	if registry.RootCmd.Execute() != nil {
		os.Exit(1)
	}
}

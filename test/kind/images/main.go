// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command images makes the images that `make kind-up` needs in the Docker of this machine, without any registry, and prints the
// variables that name them. `make kind-images` runs it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/gardener/gardener-extension-provider-local/test/kind"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to do
	}
}

func run(ctx context.Context) error {
	folder, err := filepath.Abs("bin/kind")
	if err != nil {
		return err
	}
	builder, err := kind.NewBuilder(ctx, ".", &kind.Docker{Folder: folder})
	if err != nil {
		return err
	}
	builder.Report = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "--- "+format+"\n", args...) }
	images, err := builder.Images(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("The images are there. To use them:\n  export KIND_NODE_IMAGE=%s\n  export REGISTRY_IMAGE=%s\n  export CACHE_IMAGE=%s\n  make kind-up\n",
		images.Node, images.Registry, images.Cache)
	return nil
}

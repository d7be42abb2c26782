// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// KindRegistry is the container of the registry, and kindNode that of the first node (skaffold/kind/cluster).
const (
	KindRegistry = "provider-local-registry"
	kindNode     = "gardener-local-control-plane"
)

// Engine runs a command of the container engine that skaffold/kind/cluster chooses, and returns what it prints.
func Engine(args ...string) (string, error) {
	engine := os.Getenv("CONTAINER_ENGINE")
	if engine == "" {
		engine = "docker"
		if _, err := exec.LookPath(engine); err != nil {
			engine = "podman"
		}
	}
	out, err := exec.Command(engine, args...).CombinedOutput() // #nosec G204 -- of the tests.
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", engine, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// OnKindNode lists the paths on the first node that fit patterns.
func OnKindNode(patterns ...string) ([]string, error) {
	out, err := Engine("exec", kindNode, "sh", "-c", `for path in `+strings.Join(patterns, " ")+`; do [ ! -e "$path" ] || echo "$path"; done`)
	return strings.Fields(out), err
}

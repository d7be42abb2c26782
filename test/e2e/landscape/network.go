// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Network has the ranges of a landscape: test/landscape/internal/layout.
type Network struct {
	// Pods, Services and ShootNodes are CIDRs, the last one that of machines of Shoots.
	Pods, Services, ShootNodes string

	start string
	// kind says that the landscape is in a kind cluster.
	kind bool
}

// defaultStart is what the addresses of the default network start with.
const defaultStart = "172.18."

// OnKind reports whether the landscape is in a kind cluster (`make gardener-up`).
func OnKind() bool { return filepath.Base(State()) == ".kind" }

// Target is the kind of landscape as the program takes it, which refuses to guess where there are two.
func Target() string {
	if OnKind() {
		return "kind"
	}
	return "bare"
}

// CurrentNetwork is the network of the landscape that is up.
func CurrentNetwork() Network {
	if OnKind() {
		// skaffold/kind/cluster.yaml
		return Network{Pods: "10.1.0.0/16", Services: "10.2.0.0/16", ShootNodes: "10.250.0.0/16", start: defaultStart, kind: true}
	}
	network, err := readNetwork(State("network"))
	if err != nil {
		// It is asked before there is a suite that could fail.
		panic(err)
	}
	return network
}

// readNetwork reads the file in which `make up` keeps its network. An earlier `make up` made none.
func readNetwork(path string) (Network, error) {
	content, err := os.ReadFile(path) // #nosec G304 -- the landscape's own file.
	if errors.Is(err, os.ErrNotExist) {
		content, err = []byte(defaultStart+"0.0/16"), nil
	}
	if err != nil {
		return Network{}, fmt.Errorf("reading the landscape's network: %w", err)
	}
	start, ok := strings.CutSuffix(strings.TrimSpace(string(content)), "0.0/16")
	if !ok {
		return Network{}, fmt.Errorf("reading the landscape's network from %s: %q does not end with .0.0/16", path, content)
	}
	if start == defaultStart {
		return Network{Pods: "10.244.0.0/16", Services: "10.96.0.0/16", ShootNodes: "10.250.0.0/16", start: start}, nil
	}
	return Network{Pods: start + "64.0/18", Services: start + "32.0/20", ShootNodes: start + "128.0/18", start: start}, nil
}

// Translate returns a text with addresses of the default network, such as 172.18.255.1, with those of this one, and with paths of the
// bare landscape with those of this one. It does so with commands of the documentation and with examples, too.
func (n Network) Translate(text string) string {
	pairs := []string{defaultStart, n.start, "10.250.0.0/16", n.ShootNodes}
	if n.kind {
		pairs = append(pairs, ".landscape/bin", "bin/landscape", ".landscape/", ".kind/")
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Target is where a landscape is; the empty one is whichever there is.
type Target string

const (
	// Bare is the machine itself, as `make up` uses it.
	Bare Target = "bare"
	// Kind is the kind cluster of `make kind-up`.
	Kind Target = "kind"
)

// kindState is the folder of the kind cluster's state, in which skaffold/kind/cluster writes the variant to the file "cluster".
const kindState = ".kind"

// MarshalText is for the default of a flag.
func (t Target) MarshalText() ([]byte, error) { return []byte(t), nil }

// UnmarshalText is for the value of a flag.
func (t *Target) UnmarshalText(text []byte) error {
	if *t = Target(text); *t != "" && *t != Bare && *t != Kind {
		return fmt.Errorf("target %q is neither %s nor %s", text, Bare, Kind)
	}
	return nil
}

// On returns the layout of the landscape that is on the target.
func (l Layout) On(target Target) (Layout, error) {
	variant, err := os.ReadFile(filepath.Join(l.Root, kindState, "cluster"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Layout{}, fmt.Errorf("looking for a kind cluster: %w", err)
	}
	onKind := l
	onKind.Network, onKind.Kind = Network{}, strings.TrimSpace(string(variant))
	_, err = os.Stat(l.State())
	hasBare, hasKind := err == nil, onKind.Kind != ""
	switch {
	case hasBare && hasKind && target == "":
		return Layout{}, errors.New("there are two landscapes, on this machine and in a kind cluster: name one with TARGET=bare or TARGET=kind (--target)")
	case hasBare && target != Kind:
		return l, nil
	case hasKind && target != Bare:
		return onKind, nil
	case target == Kind:
		return Layout{}, errors.New("there is no kind cluster; create one with `make kind-up`")
	}
	return Layout{}, errors.New("there is no landscape; bring one up with `make up`, or in Docker with `make kind-up gardener-up`")
}

// VirtualGarden is the address of the virtual garden's gateway for programs on this machine.
func (l Layout) VirtualGarden() string { return l.address(l.Network.VirtualGardenIP(), "fd00:ff::3") }

// SeedGateway is the address of the seed's gateway for programs on this machine; zones may have others.
func (l Layout) SeedGateway() string { return l.address(l.Network.HostServicesIP(), "fd00:ff::1") }

// HostDNS is the address of the name server for programs on this machine.
func (l Layout) HostDNS() string { return l.address(l.Network.HostDNSIP(), "fd00:ff::53") }

// SecondHostDNS is the name server of the second kind cluster.
const SecondHostDNS = "172.18.255.54"

// RegistryAddress is host:port of the registry to which our images and charts are pushed.
func (l Layout) RegistryAddress() string {
	if l.Kind != "" {
		return fmt.Sprintf("%s:%d", RegistryHost, RegistryPort)
	}
	return l.Network.Registry()
}

// address returns the one that fits the IP family of the cluster: skaffold/kind/cluster-ipv6.yaml has no IPv4.
func (l Layout) address(ipv4, ipv6 string) string {
	if l.Kind == "ipv6" {
		return ipv6
	}
	return ipv4
}

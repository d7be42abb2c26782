// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// config is what is read of a network's configuration: host-local's, and kubeconfig in ipam beside it.
type config struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	// Bridge is the bridge of all pods, to which gateways are added.
	Bridge string `json:"bridge"`
	IPAM   struct {
		// Kubeconfig is the path of that with which Pods and IPPools are read.
		Kubeconfig string `json:"kubeconfig"`
		// DataDir is host-local's folder: it has one file for each reserved address below the network's name.
		DataDir string `json:"dataDir"`
		// Ranges has the pods' range, and nothing else.
		Ranges [][]addressRange `json:"ranges"`
	} `json:"ipam"`

	// pods is that range, and content all of the configuration, as host-local takes it.
	pods    netip.Prefix
	content []byte
}

// addressRange is one of host-local's.
type addressRange struct {
	Subnet   string `json:"subnet"`
	RangeEnd string `json:"rangeEnd,omitempty"`
}

func parse(content []byte) (*config, error) {
	conf := &config{content: content}
	if err := json.Unmarshal(content, conf); err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	switch {
	case conf.Name == "" || conf.Bridge == "":
		return nil, errors.New("reading the configuration: it needs a name and a bridge")
	case conf.IPAM.Kubeconfig == "" || conf.IPAM.DataDir == "":
		return nil, errors.New("reading the configuration: ipam needs a kubeconfig and a dataDir")
	case len(conf.IPAM.Ranges) != 1 || len(conf.IPAM.Ranges[0]) != 1:
		return nil, errors.New("reading the configuration: ipam.ranges needs one range, the pods'")
	}
	pods, err := netip.ParsePrefix(conf.IPAM.Ranges[0][0].Subnet)
	if err != nil || !pods.Addr().Is4() {
		return nil, fmt.Errorf("reading the configuration: %q is no IPv4 range for pods", conf.IPAM.Ranges[0][0].Subnet)
	}
	conf.pods = pods.Masked()
	return conf, nil
}

// withRanges is the configuration with other ranges, of which host-local takes the first that has an address.
func (c *config) withRanges(ranges []addressRange) ([]byte, error) {
	all := map[string]any{}
	if err := json.Unmarshal(c.content, &all); err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	ipam, ok := all["ipam"].(map[string]any)
	if !ok {
		return nil, errors.New("reading the configuration: it has no ipam")
	}
	ipam["ranges"] = [][]addressRange{ranges}
	return json.Marshal(all)
}

// lock keeps other calls out until the returned function is called. A call that dies lets go of it.
func (c *config) lock() (func(), error) {
	if err := os.MkdirAll(c.IPAM.DataDir, 0o755); err != nil { // #nosec G301 -- as host-local does.
		return nil, fmt.Errorf("locking the addresses: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(c.IPAM.DataDir, c.Name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the addresses: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("locking the addresses: %w", err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// reserved are all addresses that host-local has given out.
func (c *config) reserved() ([]netip.Addr, error) {
	entries, err := os.ReadDir(filepath.Join(c.IPAM.DataDir, c.Name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listing the reserved addresses: %w", err)
	}
	var out []netip.Addr
	for _, entry := range entries {
		if address, err := netip.ParseAddr(entry.Name()); err == nil {
			out = append(out, address)
		}
	}
	return out, nil
}

func anyIn(addresses []netip.Addr, prefix netip.Prefix) bool {
	return slices.ContainsFunc(addresses, prefix.Contains)
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// packages maps a file that must be there to the Debian package that has it.
func packages() map[string]string {
	return map[string]string{
		"/usr/bin/containerd":     "containerd",
		"/usr/sbin/runc":          "runc",
		"/usr/lib/cni/bridge":     "containernetworking-plugins",
		"/usr/sbin/iptables-save": "iptables",
		"/usr/sbin/nft":           "nftables",
		"/usr/sbin/conntrack":     "conntrack",
		"/usr/sbin/ipset":         "ipset",
		"/usr/bin/kmod":           "kmod",
		"/usr/sbin/ethtool":       "ethtool",
		"/usr/bin/socat":          "socat",
		"/usr/bin/dig":            "bind9-dnsutils",
		"/usr/bin/mount":          "mount",
		"/usr/bin/ip":             "iproute2",
		"/usr/bin/mmdebstrap":     "mmdebstrap",
	}
}

// Missing returns the Debian packages that have to be installed.
func Missing() []string {
	var missing []string
	for path, name := range packages() {
		// /bin and /usr/bin are one folder on today's machines, but not on all.
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if _, err := os.Stat(strings.TrimPrefix(path, "/usr")); err != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// Install installs the packages that are missing and returns them. Where systemd runs, it may start containerd's service,
// which the landscape neither uses nor minds: it has a containerd of its own.
func Install(ctx context.Context) ([]string, error) {
	missing := Missing()
	if len(missing) == 0 {
		return nil, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, fmt.Errorf("%s missing, and there is no apt-get to install them with", strings.Join(missing, ", "))
	}
	for _, args := range [][]string{
		{"update", "-q"},
		append([]string{"install", "-q", "-y", "--no-install-recommends"}, missing...),
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...) // #nosec G204 -- packages from the table above.
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			return nil, fmt.Errorf("apt-get %s: %w: %s", args[0], err, strings.Join(lines[max(0, len(lines)-5):], "\n"))
		}
	}
	if still := Missing(); len(still) > 0 {
		return nil, errors.New("still missing after installing: " + strings.Join(still, ", "))
	}
	return missing, nil
}

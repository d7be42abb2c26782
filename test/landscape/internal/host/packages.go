// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// lockTimeout is how long apt-get may wait for locks, and lockPause how long it waits between two looks at those that it does not wait for.
const (
	lockTimeout = 5 * time.Minute
	lockPause   = time.Second
)

// requirement is something that has to be on the machine, and the Debian package that brings it.
type requirement struct {
	pkg   string
	found func() bool
}

func requirements() []requirement {
	program := func(name string) func() bool {
		return func() bool { _, err := exec.LookPath(name); return err == nil }
	}
	return []requirement{
		// Docker's own package containerd.io brings both, elsewhere than Debian's.
		{"containerd", program("containerd")},
		{"runc", program("runc")},
		{"containernetworking-plugins", func() bool { return PluginFolder() != "" }},
		{"iptables", program("iptables-save")},
		{"nftables", program("nft")},
		{"conntrack", program("conntrack")},
		{"ipset", program("ipset")},
		{"kmod", program("modprobe")},
		{"ethtool", program("ethtool")},
		{"socat", program("socat")},
		{"bind9-dnsutils", program("dig")},
		{"mount", program("mount")},
		{"iproute2", program("ip")},
		{"mmdebstrap", program("mmdebstrap")},
		// Ubuntu 22.04 has one that is too old to know Debian 12.
		{"debian-archive-keyring", func() bool { return exists("/usr/share/keyrings/debian-archive-bookworm-automatic.gpg") }},
	}
}

// PluginFolder returns the folder in which the machine has the CNI plugins that the landscape uses, "" if there is none.
func PluginFolder() string {
	folders := []string{"/usr/lib/cni", "/usr/libexec/cni", "/opt/cni/bin"}
	i := slices.IndexFunc(folders, func(folder string) bool {
		return !slices.ContainsFunc(Plugins(), func(name string) bool { return !exists(filepath.Join(folder, name)) })
	})
	if i < 0 {
		return ""
	}
	return folders[i]
}

// Plugins are the CNI plugins that the landscape uses.
func Plugins() []string { return []string{"bridge", "host-local", "loopback", "portmap"} }

// Missing returns the Debian packages that have to be installed.
func Missing() []string {
	var missing []string
	for _, r := range requirements() {
		if !r.found() {
			missing = append(missing, r.pkg)
		}
	}
	return missing
}

// aptInstall is the command that installs packages, and never removes one for it.
func aptInstall(packages []string, options ...string) []string {
	return slices.Concat([]string{"apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300"}, options,
		[]string{"install", "--no-remove", "--no-install-recommends"}, packages)
}

// Removed returns why apt-get refuses to install the packages without removing others, "" if it doesn't.
func Removed(ctx context.Context, packages []string) string {
	args := aptInstall(packages, "--simulate")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) // #nosec G204 -- packages from the table above.
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("will be REMOVED")) {
		return ""
	}
	_, after, _ := strings.Cut(string(out), "will be REMOVED:\n")
	names, _, _ := strings.Cut(after, "\nThe following")
	return strings.Join(strings.Fields(names), ", ")
}

// Install installs the packages that are missing and returns them. It removes none, and starts no service that comes with one:
// the landscape has a containerd of its own.
func Install(ctx context.Context) ([]string, error) { return install(ctx, policy) }

func install(ctx context.Context, policy string) (installed []string, err error) {
	missing := Missing()
	if len(missing) == 0 {
		if ownPolicy(policy) {
			// One that was killed has left it.
			return nil, os.Remove(policy)
		}
		return nil, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, fmt.Errorf("%s missing, and there is no apt-get to install them with; install them with the package manager of this system", strings.Join(missing, ", "))
	}
	allow, err := startNoServices(policy)
	if err != nil {
		return nil, err
	}
	defer allow()
	if slices.Contains(missing, "containerd") && exists("/run/systemd/system") {
		// Or it would start with the next boot. apt-get may have installed it, but not all others.
		defer func() {
			if slices.Contains(Missing(), "containerd") {
				return
			}
			err = errors.Join(err, run(context.WithoutCancel(ctx), "systemctl", "disable", "--quiet", "containerd.service"))
		}()
	}
	// A repository of somebody's that can't be read matters only if it has one of the packages.
	outdated := aptGet(ctx, "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", "update")
	if err := aptGet(ctx, aptInstall(missing)...); err != nil {
		return nil, errors.Join(outdated, err)
	}
	if still := Missing(); len(still) > 0 {
		return nil, fmt.Errorf("still missing after installing, or too old here: %s; install those of Debian 12 or later by hand", strings.Join(still, ", "))
	}
	return missing, nil
}

func aptGet(ctx context.Context, args ...string) error {
	var out []byte
	// apt-get waits for dpkg's lock, but not for those of its lists and archives, which a system has that has just booted.
	err := wait.PollUntilContextTimeout(ctx, lockPause, lockTimeout, true, func(context.Context) (_ bool, err error) {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...) // #nosec G204 -- packages from the table above.
		// Ubuntu's needrestart would restart services of others.
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "NEEDRESTART_SUSPEND=1")
		// Interrupted, apt-get finishes the package that it is at.
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
		cmd.WaitDelay = time.Minute
		out, err = cmd.CombinedOutput()
		if err != nil && bytes.Contains(out, []byte("Could not get lock")) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.Join(lines[max(0, len(lines)-5):], "\n"))
	}
	return nil
}

// policy is the file by which Debian decides which services packages may start, and policyMark a line of the landscape's.
const (
	policy     = "/usr/sbin/policy-rc.d"
	policyMark = "# The landscape of provider-local installs packages."
)

// ownPolicy reports whether a policy is the landscape's: one that was killed leaves it.
func ownPolicy(path string) bool {
	content, err := os.ReadFile(path) // #nosec G304 -- the file above.
	return err == nil && bytes.Contains(content, []byte(policyMark))
}

// startNoServices keeps packages from starting their services by a policy until the returned function is called. A policy of others
// stays as it is.
func startNoServices(policy string) (func(), error) {
	file, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755) // #nosec G302 G304 -- a program.
	switch {
	case err == nil:
		_, err = file.WriteString("#!/bin/sh\n" + policyMark + "\nexit 101\n")
		err = errors.Join(err, file.Close())
	case ownPolicy(policy):
		err = nil
	case errors.Is(err, os.ErrExist):
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("keeping services from being started: %w", err)
	}
	return func() { _ = os.Remove(policy) }, nil
}

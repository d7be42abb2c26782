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
	"strconv"
	"strings"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

// Network makes sure that the landscape's interface is there with all its addresses, that the load balancers' addresses
// lead to this machine, and that it forwards between pods. It returns how many addresses it added.
func Network(ctx context.Context, network layout.Network) (int, error) {
	names, err := Links()
	if err != nil {
		return 0, err
	}
	// The landscape's interface is a bridge without ports, as a container network's is: it holds addresses like a dummy device, and every
	// kernel that can run pods has it.
	for _, bridge := range devices() {
		if !slices.Contains(names, bridge) {
			if err := run(ctx, "ip", "link", "add", bridge, "type", "bridge"); err != nil {
				return 0, err
			}
		}
	}
	if err := run(ctx, "ip", "link", "set", layout.Interface, "up"); err != nil {
		return 0, err
	}
	added := 0
	for _, address := range network.Addresses() {
		shown, err := output(ctx, "ip", "-o", "-4", "address", "show", "to", address)
		if err != nil {
			return added, err
		}
		// The device is the second word.
		switch words := strings.Fields(string(shown)); {
		case len(words) > 1 && words[1] == layout.Interface:
			continue
		case len(words) > 1:
			return added, fmt.Errorf("address %s is on %s already, as it is while a kind cluster of Gardener runs; remove that first", address, words[1])
		}
		if err := run(ctx, "ip", "address", "add", address+"/32", "dev", layout.Interface); err != nil {
			return added, err
		}
		added++
	}
	// The whole pool is the machine's own, without an address on the interface for each: kube-proxy redirects what is sent to
	// one of them, but only after the kernel has found a route. What is sent to an address that no Service has is refused at
	// once. The route goes with the interface.
	if err := run(ctx, "ip", "route", "replace", "local", network.LoadBalancerPool(), "dev", layout.Interface); err != nil {
		return added, err
	}
	// Docker gives the range of such a route to no network of its own.
	if err := run(ctx, "ip", "route", "replace", network.NodeCIDR(), "dev", layout.Interface); err != nil {
		return added, err
	}
	return added, prepareKernel(ctx)
}

// Link has layout.Link lead to the state folder. It fails if it leads to that of another clone.
func Link(state string) error { return link(layout.Link, state) }

func link(path, state string) error {
	// The slash tells a link to the landscape's state from any other (strayFiles).
	target := state + "/"
	err := os.Symlink(target, path)
	if present, errRead := os.Readlink(path); errRead == nil && present == target {
		return nil
	} else if errRead == nil {
		clone := filepath.Dir(filepath.Clean(present))
		return fmt.Errorf("%s leads to the landscape of the clone %s: use that one, take it down with make -C %s down, or remove %s if that clone is gone", path, clone, clone, path)
	}
	if err != nil {
		return fmt.Errorf("linking the state folder: %w; remove %s if it is of no use to you", err, path)
	}
	return nil
}

// prepareKernel has the kernel forward between pods and let iptables see that, and makes the pods' cgroup.
func prepareKernel(ctx context.Context) error {
	if err := LoadModules(ctx); err != nil {
		return err
	}
	// Packets that a bridge passes on must meet kube-proxy's rules: the answer of a pod on the same bridge would otherwise come from the
	// pod's address in place of the Service's.
	if err := run(ctx, "ip", "link", "set", layout.PodBridge, "type", "bridge", "nf_call_iptables", "1"); err != nil {
		return err
	}
	for _, parameter := range sysctls() {
		value, err := readSysctl(parameter.name)
		if parameter.setter != "" || value == parameter.value {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading kernel parameter %s: %w", parameter.name, err)
		}
		if parameter.atLeast && larger(value, parameter.value) {
			continue
		}
		if err := writeSysctl(parameter.name, parameter.value); err != nil {
			return err
		}
	}
	if err := makeCgroup(cgroupRoot); err != nil {
		return err
	}
	return OpenFirewall(ctx)
}

// bridgeFilter is a kernel parameter of the module br_netfilter.
const bridgeFilter = "net/bridge/bridge-nf-call-iptables"

// moduleEffects maps the kernel modules that nothing loads by itself to a file that exists once the kernel has what they bring,
// be it built in.
var moduleEffects = map[string]string{
	"br_netfilter": "/proc/sys/" + bridgeFilter,
	"overlay":      "/sys/module/overlay",
}

// LoadModules loads the kernel modules that the landscape needs and the machine has not loaded.
func LoadModules(ctx context.Context) error {
	for module, effect := range moduleEffects {
		if exists(effect) || (module == "overlay" && overlayBuiltIn()) {
			continue
		}
		err := run(ctx, "modprobe", module)
		if err == nil && !exists(effect) {
			err = fmt.Errorf("%s is still missing", effect)
		}
		// From now on, packets on bridges of virtual machines would meet the firewall of this one.
		filters, _ := filepath.Glob(filepath.Join(filepath.Dir(effect), "bridge-nf-call-*"))
		for _, filter := range filters {
			err = errors.Join(err, writeSysctl(strings.TrimPrefix(filter, "/proc/sys/"), "0"))
		}
		if err != nil {
			return fmt.Errorf("loading the kernel module %s: %w; install the kernel's modules, or boot the kernel whose modules are in /lib/modules", module, err)
		}
	}
	return nil
}

// MissingModules returns the modules that the kernel neither has nor can load.
func MissingModules(ctx context.Context) []string {
	var missing []string
	for module, effect := range moduleEffects {
		if exists(effect) || (module == "overlay" && overlayBuiltIn()) {
			continue
		}
		path, err := exec.LookPath("modprobe")
		// Without kmod, which `up` installs, LoadModules finds out.
		if err != nil || exec.CommandContext(ctx, path, "--dry-run", "--quiet", module).Run() == nil { // #nosec G204 -- modprobe.
			continue
		}
		missing = append(missing, module)
	}
	return missing
}

func overlayBuiltIn() bool {
	content, err := os.ReadFile("/proc/filesystems")
	return err == nil && strings.Contains(string(content), "\toverlay\n")
}

// unloadBridgeFilter unloads br_netfilter, which decides for the bridges of others, too, whether iptables sees their packets.
func unloadBridgeFilter(ctx context.Context) error {
	if !exists("/sys/module/br_netfilter") {
		return nil
	}
	if err := run(ctx, "modprobe", "--remove", "br_netfilter"); err != nil {
		return errors.New("br_netfilter stays loaded: " + err.Error())
	}
	return nil
}

func larger(a, b string) bool {
	left, errLeft := strconv.Atoi(a)
	right, errRight := strconv.Atoi(b)
	return errLeft == nil && errRight == nil && left > right
}

func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...) // #nosec G204 -- fixed commands of this package.
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

func run(ctx context.Context, name string, args ...string) error {
	_, err := output(ctx, name, args...)
	return err
}

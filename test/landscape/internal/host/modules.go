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
	"path/filepath"
	"strings"
)

// moduleEffects maps the kernel modules that nothing loads by itself to a file that exists once the kernel has what they bring,
// be it built in.
var moduleEffects = map[string]string{
	"br_netfilter": "/proc/sys/net/bridge/bridge-nf-call-iptables",
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
		// Without kmod, which `up` installs, the list of the kernel's modules has to do.
		if err == nil && exec.CommandContext(ctx, path, "--dry-run", "--quiet", module).Run() == nil { // #nosec G204 -- modprobe.
			continue
		}
		if err != nil && moduleListed(module) {
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

func moduleListed(module string) bool {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return false
	}
	content, err := os.ReadFile(filepath.Join("/lib/modules", strings.TrimSpace(string(release)), "modules.dep")) // #nosec G304 -- the kernel's own list.
	return err == nil && strings.Contains(string(content), "/"+module+".ko")
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

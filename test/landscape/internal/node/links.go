// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/host"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

// links offers programs at their fixed places: kubectl, and in one folder, as containerd knows no more, our CNI plugin and those
// of the machine that go with it.
func links(l layout.Layout) error {
	wanted := map[string]string{
		l.Kubectl():                      l.Binary("kubectl"),
		filepath.Join(l.Plugins(), IPAM): l.Binary("ipam"),
	}
	for _, name := range host.Plugins() {
		wanted[filepath.Join(l.Plugins(), name)] = filepath.Join(host.PluginFolder(), name)
	}
	if err := os.MkdirAll(l.Plugins(), 0o755); err != nil { // #nosec G301 -- holds nothing secret.
		return fmt.Errorf("linking programs: %w", err)
	}
	for path, target := range wanted {
		if present, err := os.Readlink(path); err == nil && present == target {
			continue
		}
		_ = os.Remove(path)
		if err := os.Symlink(target, path); err != nil {
			return fmt.Errorf("linking programs: %w", err)
		}
	}
	return nil
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"fmt"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// InstallSeedCRDs installs CRDs that gardenlet installs in a seed, at any time after the start: all whose file in
// Gardener's example/seed-crds matches the pattern.
func (e *Environment) InstallSeedCRDs(pattern string) error {
	module, err := moduleDir(gardenerModule)
	if err != nil {
		return err
	}
	crds, err := filepath.Glob(filepath.Join(module, "example", "seed-crds", pattern))
	if err != nil {
		return err
	}
	if len(crds) == 0 {
		return fmt.Errorf("no CRD matches %s", pattern)
	}
	_, err = envtest.InstallCRDs(e.Config, envtest.CRDInstallOptions{Paths: crds, ErrorIfPathMissing: true})
	return err
}

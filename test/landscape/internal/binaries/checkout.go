// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/invoker"
)

// Checkout is a clone of an upstream module, whose programs are built there with the clone's own dependencies. The Go build cache
// finds out what an edit changes, for all programs at once.
type Checkout struct {
	// Folder is the root of the clone.
	Folder string
	// BuildFolder is where Go builds it, and ModFile takes the place of the go.mod there; empty for Folder, and for nothing.
	BuildFolder, ModFile string
	// Out is where the programs are put: apart from those of the pinned version, so that switching builds neither again.
	Out     string
	Invoker invoker.Invoker
}

// OpenCheckout checks that folder has a clone of the module.
func OpenCheckout(folder, module string) (string, error) {
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(filepath.Join(absolute, "go.mod")) // #nosec G304 -- the user names it.
	if err == nil && modfile.ModulePath(content) != module {
		err = fmt.Errorf("its go.mod is that of module %q", modfile.ModulePath(content))
	}
	if err != nil {
		return "", fmt.Errorf("%s is no clone of https://%s: %w", folder, module, err)
	}
	return absolute, nil
}

// Build makes sure that the programs are there and up to date, and returns the names of those that it changed. The packages of
// programs are in the clone; their other fields but Name and Versions don't matter.
func (c Checkout) Build(ctx context.Context, programs []Program) ([]string, error) {
	// VERSION has the version of what the clone releases next.
	version, err := os.ReadFile(filepath.Join(c.Folder, "VERSION")) // #nosec G304 -- the user's clone.
	if err != nil {
		return nil, fmt.Errorf("reading the version of %s: %w", c.Folder, err)
	}
	flags := []string{"-s", "-w"}
	var packages []string
	for _, p := range programs {
		packages = append(packages, p.Package)
		for _, variable := range p.Versions {
			if flag := variable + "=" + strings.TrimSpace(string(version)); !slices.Contains(flags, flag) {
				flags = append(flags, "-X", flag)
			}
		}
	}
	made := filepath.Join(c.Out, ".made")
	if err := errors.Join(os.MkdirAll(made, 0o755), c.Invoker.Own(c.Out)); err != nil { // #nosec G301 -- build output.
		return nil, fmt.Errorf("making the folder of the programs: %w", err)
	}
	built := make([]time.Time, len(programs))
	for i, p := range programs {
		if built[i], err = offer(filepath.Join(c.Out, p.Name), filepath.Join(made, filepath.Base(p.Package))); err != nil {
			return nil, fmt.Errorf("building %s in %s: %w", p.Name, c.Folder, err)
		}
	}
	arguments := append([]string{"-modfile=" + c.ModFile, "-ldflags", strings.Join(flags, " "), "-o", made + "/"}, packages...)
	if err := goBuild(ctx, c.Invoker, cmp.Or(c.BuildFolder, c.Folder), Program{}.environment(), arguments...); err != nil {
		return nil, fmt.Errorf("building %s in %s: %w", strings.Join(packages, " "), c.Folder, err)
	}
	var changed []string
	for i, p := range programs {
		fresh, err := replace(filepath.Join(made, filepath.Base(p.Package)), filepath.Join(c.Out, p.Name), built[i])
		if err != nil {
			return changed, fmt.Errorf("building %s in %s: %w", p.Name, c.Folder, err)
		}
		if fresh {
			changed = append(changed, p.Name)
		}
	}
	return changed, c.Invoker.Own(c.Out)
}

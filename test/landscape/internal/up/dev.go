// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/binaries"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/node"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

// settled is how long no file may be written until an edit counts as complete: an editor, or git, writes several.
const settled = 300 * time.Millisecond

// roundsKept is after how many edits images of former ones are dropped.
const roundsKept = 16

// Dev deploys each edit of the sources that Up deployed, with the same Skaffold files, until ctx ends. An edit that doesn't build is
// reported, and the next one is waited for.
func (l Landscape) Dev(ctx context.Context) error {
	if l.Layout.Kind == "" && os.Geteuid() != 0 {
		return errors.New("the landscape needs root: run sudo make dev")
	}
	if !exists(l.deployedFile(runtimeCluster)) {
		return errors.New("there is nothing deployed yet; run make up first")
	}
	folders := []string{l.Layout.Root}
	var err error
	if l.Gardener, err = l.lastGardener(); err != nil {
		return err
	}
	if l.Gardener != "" {
		folders = append(folders, l.Gardener)
	}
	edits, err := watchSources(ctx, folders)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(l.Out, "watching %s; end it with ctrl-C\n", strings.Join(folders, " and "))
	// The first round is for what was built and not deployed since, and for edits of what is built.
	for edit, rounds := []string(nil), 1; ; rounds++ {
		err := l.round(ctx, edit)
		if err == nil {
			edit = nil
		}
		if l.Layout.Kind == "" && rounds%roundsKept == 0 {
			err = errors.Join(err, l.dropImages(context.WithoutCancel(ctx)))
		}
		if err != nil && ctx.Err() == nil {
			_, _ = fmt.Fprintf(l.Out, "error: %v\n", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case more := <-edits:
			edit = append(edit, more...)
		}
	}
}

// dropImages has the registry start anew, at which it drops the images of former edits.
func (l Landscape) dropImages(ctx context.Context) error {
	unlock, err := l.lockApart()
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := l.stop(node.Registry)(ctx, nil); err != nil {
		return err
	}
	_, err = l.start(ctx, node.Registry)
	return err
}

// round builds, deploys and waits for one edit.
func (l Landscape) round(ctx context.Context, edit []string) error {
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	gardener, err := l.lastGardener()
	if err != nil {
		return err
	}
	if gardener != l.Gardener {
		return fmt.Errorf("make up has deployed another Gardener (%s) meanwhile: end this with ctrl-C, and run make dev again", cmp.Or(gardener, "the pinned release"))
	}
	var change change
	again := "edit the files again"
	steps := []step.Step{
		{Name: "build", Title: "what changed is built and pushed", Remedy: "mend what is named above", Execute: func(ctx context.Context, progress step.Progress) (string, error) {
			built, err := l.buildAll(ctx, progress)
			if err != nil {
				return "", err
			}
			deployed, err := l.deployed()
			if err != nil {
				return "", err
			}
			change = changeOf(l.relative(edit), deployed, built)
			return change.String(), nil
		}},
		{Name: "deploy", Title: "Skaffold deployed it", Remedy: again, Execute: func(ctx context.Context, progress step.Progress) (string, error) {
			return l.deployChange(ctx, progress, change)
		}},
		{Name: "serve", Title: "it serves", Remedy: again, Execute: l.serve},
	}
	runner := step.Runner{Out: l.Out, Now: l.Now}
	return errors.Join(runner.Run(ctx, steps), l.handOver())
}

// buildAll builds and pushes what changed since the last time, and returns what is to be deployed.
func (l Landscape) buildAll(ctx context.Context, progress step.Progress) (map[string]string, error) {
	if _, err := l.buildCheckout(ctx, progress); err != nil {
		return nil, err
	}
	table, err := images.Load(l.Layout.Optional())
	if err != nil {
		return nil, err
	}
	if _, err := l.pushCheckout(ctx, table, progress); err != nil {
		return nil, err
	}
	if _, err := l.build(ctx, progress); err != nil {
		return nil, err
	}
	return l.toDeploy()
}

// toDeploy returns the references of all that Skaffold has built, and the images of deployers from a checkout, by their names.
func (l Landscape) toDeploy() (map[string]string, error) {
	all, err := l.builds()
	if err != nil {
		return nil, err
	}
	for deployer := range deployers {
		values, err := os.ReadFile(l.imageValues(deployer))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		all[deployer] = string(bytes.TrimSpace(values))
	}
	return all, nil
}

// relative returns the paths as they are below the repository or the checkout.
func (l Landscape) relative(paths []string) []string {
	var all []string
	for _, path := range paths {
		for _, root := range []string{l.Layout.Root, l.Gardener} {
			if below, found := strings.CutPrefix(path, root+"/"); found && root != "" {
				all = append(all, filepath.ToSlash(below))
			}
		}
	}
	return all
}

// change is what an edit has Skaffold deploy.
type change struct {
	// names are what was built.
	names []string
	// module is the module of skaffold.yaml that is deployed along with those it requires; empty for none.
	module string
	// gardenlet reports whether the module of that name in skaffold-virtual-garden.yaml is.
	gardenlet bool
}

// String says what was built.
func (c change) String() string {
	if len(c.names) == 0 {
		return "nothing new"
	}
	return strings.Join(c.names, ", ")
}

// changeOf compares what is deployed with what was built. The edit names files that Skaffold deploys as they are.
func changeOf(edit []string, deployed, built map[string]string) change {
	c := change{}
	isBelow := func(folders ...string) bool {
		return slices.ContainsFunc(edit, func(path string) bool {
			return slices.ContainsFunc(folders, func(folder string) bool { return strings.HasPrefix(path, folder) })
		})
	}
	var operator, extension bool
	for _, name := range slices.Sorted(maps.Keys(built)) {
		if built[name] == deployed[name] {
			continue
		}
		c.names = append(c.names, name)
		switch name {
		case "gardener-operator":
			operator = true
		case "gardenlet":
			c.gardenlet = true
		default:
			extension = true
		}
	}
	// Each module requires the one below.
	switch {
	case isBelow("skaffold/garden/", "skaffold/networking-calico/") || slices.Contains(c.names, "charts/networking-calico"):
		c.module = "garden"
	case extension || isBelow("skaffold/extension/"):
		c.module = "extension"
	case operator || isBelow("skaffold/operator/", "charts/gardener/operator/"):
		c.module = "operator"
	}
	c.gardenlet = c.gardenlet || isBelow("skaffold/gardenlet/", "charts/gardener/gardenlet/", "example/5", "example/60-")
	return c
}

// deployChange deploys the modules of a change.
func (l Landscape) deployChange(ctx context.Context, progress step.Progress, c change) (string, error) {
	var modules []string
	if c.module != "" {
		if _, err := l.skaffold(ctx, progress, runtimeCluster, "skaffold", "deploy", "--module", c.module, "--build-artifacts", l.artifacts()); err != nil {
			return "", err
		}
		modules = append(modules, c.module)
	}
	if c.gardenlet && l.came("gardenlet") {
		if _, err := l.deployGardenlet(ctx, progress); err != nil {
			return "", err
		}
		modules = append(modules, "gardenlet")
	}
	return strings.Join(append(modules, "done"), ", "), nil
}

// serve waits until both instances of the extension, and what is built from a checkout, run as they were built last.
func (l Landscape) serve(ctx context.Context, progress step.Progress) (string, error) {
	parts := [][3]string{{"garden", gardenInstance, "gardener-operator"}, {"seed", seedInstance, "gardenlet"}}
	if !l.came("seed") {
		parts = parts[:1]
	}
	var all []milestone
	for _, part := range parts {
		reference, errInstance := l.artifact(part[1])
		built, errCheckout := l.runsCheckout(part[2])
		if err := errors.Join(errInstance, errCheckout); err != nil {
			return "", err
		}
		all = append(append(all, milestone{title: "the instance of the " + part[0], kind: deployments, reached: runs(reference)}), built...)
	}
	return l.wait(ctx, progress, all)
}

// came reports whether an `up` has finished the step.
func (l Landscape) came(step string) bool {
	file, err := readTimes(l.Layout.Milestones())
	_, came := file.Steps[step]
	return err == nil && came
}

// watchSources sends the paths of files below the folders that were written, once that has settled.
func watchSources(ctx context.Context, folders []string) (<-chan []string, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching the sources: %w", err)
	}
	add := func(folder string) error {
		return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !entry.IsDir() {
				return err
			}
			isTests := entry.Name() == "test" && slices.Contains(folders, filepath.Dir(path))
			if path != folder && !binaries.IsSource(entry.Name(), true) || isTests {
				return filepath.SkipDir
			}
			return watcher.Add(path)
		})
	}
	for _, folder := range folders {
		if err := add(folder); err != nil {
			return nil, errors.Join(fmt.Errorf("watching %s (sysctl fs.inotify.max_user_watches may have to be higher): %w", folder, err), watcher.Close())
		}
	}
	edits := make(chan []string)
	go func() {
		defer func() { _ = watcher.Close() }()
		written := map[string]bool{}
		var quiet <-chan time.Time
		// Nothing is sent before something was written and has settled, and while nobody takes it, more may come.
		var send chan<- []string
		for {
			select {
			case <-ctx.Done():
				return
			case event := <-watcher.Events:
				info, err := os.Stat(event.Name)
				isFolder := err == nil && info.IsDir()
				if !binaries.IsSource(filepath.Base(event.Name), isFolder) || event.Op == fsnotify.Chmod {
					continue
				}
				if isFolder {
					_ = add(event.Name)
				}
				written[event.Name], send, quiet = true, nil, time.After(settled)
			case <-watcher.Errors:
				// There were more than the kernel keeps; what they changed is found out by building.
				send, quiet = nil, time.After(settled)
			case <-quiet:
				send = edits
			case send <- slices.Sorted(maps.Keys(written)):
				written, send = map[string]bool{}, nil
			}
		}
	}()
	return edits, nil
}

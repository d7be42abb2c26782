// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/host"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/node"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

// Down takes everything down, removes the state folder and fails if the machine isn't as it was before.
func (l Landscape) Down(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("taking the landscape down needs root: run it with sudo")
	}
	if _, err := os.Stat(l.Layout.State()); errors.Is(err, os.ErrNotExist) {
		_, _ = fmt.Fprintln(l.Out, "there is no landscape")
		return nil
	}
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	cleaner, err := l.cleaner()
	if err != nil {
		return err
	}
	return step.Runner{Out: l.Out, Now: l.Now}.Run(ctx, l.downSteps(cleaner, 0))
}

// cleaner knows the machine as it was before, unless the landscape has not changed it yet.
func (l Landscape) cleaner() (host.Cleaner, error) {
	cleaner := host.Cleaner{State: l.Layout.State()}
	before, err := host.Load(l.snapshotPath())
	if errors.Is(err, os.ErrNotExist) {
		return cleaner, nil
	}
	cleaner.Before = &before
	return cleaner, err
}

// downSteps are those of Down. Up to mounts they are those of Stop, too, so that no remedy may say to take the landscape down.
func (l Landscape) downSteps(cleaner host.Cleaner, grace time.Duration) []step.Step {
	const again = "read the cause above"
	plain := func(does func(context.Context) error) func(context.Context, step.Progress) (string, error) {
		return func(ctx context.Context, _ step.Progress) (string, error) { return "done", does(ctx) }
	}
	// What the landscape has in common with one in another clone is left alone if this one did not make it.
	ours := func(does func(context.Context) error) func(context.Context, step.Progress) (string, error) {
		return func(ctx context.Context, progress step.Progress) (string, error) {
			if changed, err := cleaner.Changed(); err != nil || !changed {
				return "nothing was changed", err
			}
			return plain(does)(ctx, progress)
		}
	}
	return []step.Step{
		// First whoever would start containers anew or write rules again.
		{Name: "node", Title: "kubelet and controllers stopped", Remedy: again, Execute: l.stop(
			node.StatusController, node.Kubelet, node.Proxy, node.Scheduler, node.ControllerManager)},
		{Name: "containers", Title: "containers ended", Remedy: again, Execute: ours(func(ctx context.Context) error {
			return cleaner.EndContainers(ctx, grace)
		})},
		// kube-apiserver before etcd: without etcd it takes a minute to stop.
		{Name: "processes", Title: "all processes stopped", Remedy: again, Execute: l.stop(
			node.Containerd, node.DNS, node.APIServer, node.Etcd, node.Registry)},
		{Name: "strays", Title: "shims killed", Remedy: again, Execute: plain(cleaner.KillStrays)},
		{Name: "mounts", Title: "everything unmounted", Remedy: again, Execute: plain(cleaner.Unmount)},
		{Name: "rules", Title: "firewall rules removed", Remedy: again, Execute: ours(cleaner.RemoveRules)},
		{Name: "devices", Title: "network devices removed", Remedy: again, Execute: ours(cleaner.RemoveDevices)},
		{Name: "cgroups", Title: "cgroups removed", Remedy: again, Execute: ours(cleaner.RemoveCgroups)},
		{Name: "kernel", Title: "kernel parameters restored", Remedy: again, Execute: plain(cleaner.RestoreKernel)},
		{Name: "folders", Title: "folders outside of the clone removed", Remedy: again, Execute: plain(cleaner.RemoveFolders)},
		{Name: "verify", Title: "the machine is as it was", Remedy: again, Execute: func(ctx context.Context, progress step.Progress) (string, error) {
			return l.verify(ctx, cleaner, progress)
		}},
		{Name: "state", Title: "state folder removed", Remedy: again, Execute: plain(func(context.Context) error {
			return errors.Join(l.forgetGiven(), os.RemoveAll(l.Layout.State()))
		})},
	}
}

// stop stops the processes one after the other.
func (l Landscape) stop(names ...string) func(context.Context, step.Progress) (string, error) {
	return func(ctx context.Context, _ step.Progress) (string, error) {
		for _, name := range names {
			if err := l.Processes().Stop(ctx, name, 20*time.Second); err != nil {
				return "", err
			}
		}
		return strings.Join(names, ", "), nil
	}
}

// verify compares the machine with how it was before the landscape. What others changed since is shown, and is theirs.
// Without a snapshot of this boot nothing outside of the clone was changed.
func (l Landscape) verify(ctx context.Context, cleaner host.Cleaner, progress step.Progress) (string, error) {
	if changed, err := cleaner.Changed(); err != nil || !changed {
		return "nothing was changed", err
	}
	after, err := host.Take(ctx, l.Layout.State())
	if err != nil {
		return "", err
	}
	var left []string
	others := 0
	for _, difference := range host.Compare(*cleaner.Before, after, l.Layout.State()) {
		if difference.Ours {
			left = append(left, difference.Text)
			continue
		}
		others++
		progress("changed by others since, and left alone: %s", difference.Text)
	}
	if len(left) > 0 {
		return "", fmt.Errorf("left behind: %s", strings.Join(left, "; "))
	}
	return fmt.Sprintf("nothing left, %d changes by others", others), nil
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/process"
)

// Cleaner removes what a landscape leaves outside of its own folders. It acts on things that bear the landscape's own names, and,
// where others choose the names (the chains of Kubernetes, kernel parameters), on those that Before lacks.
type Cleaner struct {
	// State is the landscape's state folder.
	State string
	// Before is the machine as it was before the landscape; nil if `up` did not get as far as changing it.
	Before *Snapshot
}

// Changed reports whether the landscape has changed the machine since it was booted. If not, things of its names are those of a
// landscape in another clone.
func (c Cleaner) Changed() (bool, error) {
	boot, err := process.BootID()
	return c.Before != nil && (c.Before.Boot == "" || c.Before.Boot == boot), err
}

// EndContainers asks every process in the landscape's cgroup to end, and kills those that are left after the grace.
func (c Cleaner) EndContainers(ctx context.Context, grace time.Duration) error {
	roots, err := ownCgroups()
	if err != nil {
		return err
	}
	if grace > 0 {
		for _, pid := range pidsBelow(roots, 1) {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
		_ = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, grace, true, func(context.Context) (bool, error) { return len(pidsBelow(roots, 1)) == 0, nil })
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := killAll(ctx, 30*time.Second, func() ([]int, error) { thaw(roots); return pidsBelow(roots, 1), nil }); err != nil {
		return fmt.Errorf("killing the containers: %w", err)
	}
	return nil
}

// KillStrays kills processes of this landscape that nobody keeps books about: containerd's shims, and children of an `up`
// that was killed before it could write their records.
func (c Cleaner) KillStrays(ctx context.Context) error {
	err := killAll(ctx, 20*time.Second, func() ([]int, error) {
		found, err := landscapeProcesses(c.State)
		return slices.Collect(maps.Keys(found)), err
	})
	if err != nil {
		return fmt.Errorf("killing left-over processes: %w", err)
	}
	return nil
}

// killAll kills the processes that find returns until there are none.
func killAll(ctx context.Context, timeout time.Duration, find func() ([]int, error)) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, func(context.Context) (bool, error) {
		pids, err := find()
		if err != nil {
			return false, err
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return false, err
			}
		}
		return len(pids) == 0, nil
	})
}

// detach is MNT_DETACH, which other systems don't have; `make gardener-up` is for these, too.
const detach = 2

// Unmount unmounts everything below the state folder, the deepest first.
func (c Cleaner) Unmount(context.Context) error {
	points, err := mounts()
	if err != nil {
		return fmt.Errorf("unmounting: %w", err)
	}
	slices.Sort(points)
	slices.Reverse(points)
	for _, point := range points {
		// The kernel writes blanks in octal; nothing the landscape mounts has any, but the clone's path may.
		point = strings.ReplaceAll(point, "\\040", " ")
		if !strings.HasPrefix(point, c.State+"/") {
			continue
		}
		if err := syscall.Unmount(point, detach); err != nil && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("unmounting %s: %w", point, err)
		}
	}
	return nil
}

// RemoveDevices removes the landscape's network devices; veth pairs went with their pods.
func (c Cleaner) RemoveDevices(ctx context.Context) error {
	present, err := Links()
	if err != nil {
		return err
	}
	for _, device := range devices() {
		if !slices.Contains(present, device) {
			continue
		}
		ports, err := globNames("/sys/class/net/" + device + "/brif/*")
		if err != nil {
			return err
		}
		// The kernel takes the ports of a bridge away when the network namespaces of the pods end, but in its own time: with
		// many pods that is seconds later. So one may be gone by the time it is asked for.
		for _, port := range ports {
			_ = run(ctx, "ip", "link", "delete", port)
		}
		if err := run(ctx, "ip", "link", "delete", device); err != nil {
			return err
		}
	}
	return nil
}

// RemoveRules removes the landscape's own rules, and the chains of kubelet, kube-proxy and the CNI plugins with the rules that
// lead into them.
func (c Cleaner) RemoveRules(ctx context.Context) error {
	if err := CloseFirewall(ctx); err != nil || c.Before == nil {
		return err
	}
	// The landscape's own kubelet and kube-proxy have ended by now.
	another := len(OtherKubernetes(nil)) > 0
	for _, family := range []string{"iptables", "ip6tables"} {
		saved, err := save(ctx, family)
		if err != nil {
			return err
		}
		ours := func(table, chain string) bool {
			return !another && kubernetesChain(string(saved), chain) && !slices.Contains(c.Before.Rules, family+" "+table+" :"+chain+" -")
		}
		if err := feed(ctx, removal(string(saved), ours), family+"-restore", "--noflush", "--wait"); err != nil {
			return err
		}
	}
	ruleset, err := listRuleset(ctx)
	if err != nil {
		return err
	}
	return feed(ctx, nftEmpty(ruleset, c.Before.Tables), "nft", "--file", "-")
}

// kubernetesChain reports whether a chain is one of kubelet or kube-proxy, or one that the CNI plugin portmap made for the
// landscape: podman may use the same plugin, and shares with it the chains from which those for each container are reached.
func kubernetesChain(saved, chain string) bool {
	const own = `name: \"` + layout.CNINetwork + `\"`
	switch {
	case strings.HasPrefix(chain, "KUBE-"):
		return true
	case strings.HasPrefix(chain, "CNI-HOSTPORT-"):
		for line := range strings.Lines(saved) {
			if strings.HasPrefix(line, "-A CNI-") && strings.Contains(line, "name: ") && !strings.Contains(line, own) {
				return false
			}
		}
		return true
	case strings.HasPrefix(chain, "CNI-"):
		for line := range strings.Lines(saved) {
			if strings.Contains(line, own) && slices.Contains(strings.Fields(line), chain) {
				return true
			}
		}
	}
	return false
}

// removal turns the output of iptables-save into a script for iptables-restore --noflush that removes the chains that are ours,
// and the rules that lead into them.
func removal(saved string, isOurs func(table, chain string) bool) string {
	var script strings.Builder
	var chains, jumps []string
	table := ""
	ours := func(chain string) bool { return isOurs(table, chain) }
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table, chains, jumps = line[1:], nil, nil
		case strings.HasPrefix(line, ":"):
			if chain, _, _ := strings.Cut(line[1:], " "); ours(chain) {
				chains = append(chains, chain)
			}
		case strings.HasPrefix(line, "-A "):
			fields := strings.Fields(line)
			jump := slices.Index(fields, "-j")
			if jump > 0 && jump+1 < len(fields) && ours(fields[jump+1]) && !ours(fields[1]) {
				jumps = append(jumps, "-D"+line[2:])
			}
		case line == "COMMIT" && len(chains)+len(jumps) > 0:
			script.WriteString("*" + table + "\n")
			for _, jump := range jumps {
				script.WriteString(jump + "\n")
			}
			// First empty all of them, as they lead into each other.
			for _, chain := range chains {
				script.WriteString("-F " + chain + "\n")
			}
			for _, chain := range chains {
				script.WriteString("-X " + chain + "\n")
			}
			script.WriteString("COMMIT\n")
		}
	}
	return script.String()
}

// RemoveCgroups removes the landscape's cgroups, and takes back the controllers that it needed.
func (c Cleaner) RemoveCgroups(context.Context) error {
	roots, err := ownCgroups()
	errs := []error{err}
	for _, root := range roots {
		// A cgroup's files go with it, so that it is removed like an empty folder, and it may go by itself.
		errs = append(errs, removeTree(root, syscall.ENOENT, syscall.ENODEV))
	}
	own, err := cgroupsNamed(cgroupRoot, programs)
	errs = append(errs, err)
	for _, root := range own {
		// Processes that are about to end may be in it.
		errs = append(errs, removeTree(root, syscall.ENOENT, syscall.EBUSY))
	}
	if c.Before != nil && c.Before.Controllers != nil {
		for _, controller := range controllers(cgroupRoot) {
			if !slices.Contains(c.Before.Controllers, controller) {
				// Somebody else may use it by now, and keeps it then.
				_ = os.WriteFile(filepath.Join(cgroupRoot, "cgroup.subtree_control"), []byte("-"+controller), 0)
			}
		}
	}
	return errors.Join(errs...)
}

// RemoveFolders removes what containerd, kubelet and the CNI plugins wrote outside of the state folder, and the folders that
// they made for it. Somebody else may have started to use these folders meanwhile: only what is known to be the landscape's
// is removed, and only folders that are empty then.
func (c Cleaner) RemoveFolders(context.Context) error {
	var errs []error
	for pattern, ours := range c.strayFiles() {
		paths, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, path := range paths {
			if ours(path) {
				errs = append(errs, os.Remove(path))
			}
		}
	}
	if c.Before == nil {
		return errors.Join(errs...)
	}
	for _, folder := range existing(folders()) {
		if !slices.Contains(c.Before.Folders, folder) {
			// One with files in it stays as a whole, as somebody else uses it, and so does a mounted one: "ip netns" mounts /run/netns
			// onto itself.
			if onlyFolders(folder) {
				errs = append(errs, removeTree(folder, syscall.ENOTEMPTY, syscall.EBUSY))
			}
		}
	}
	return errors.Join(errs...)
}

// onlyFolders reports whether there is nothing but folders in a tree.
func onlyFolders(root string) bool {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			err = fmt.Errorf("%s is no folder", path)
		}
		return err
	}) == nil
}

// strayFiles maps patterns to what tells the landscape's files among those that match.
func (c Cleaner) strayFiles() map[string]func(path string) bool {
	linksToState := func(path string) bool {
		target, err := os.Readlink(path)
		return err == nil && strings.HasPrefix(target, c.State+"/")
	}
	namesState := func(path string) bool {
		content, err := os.ReadFile(path) // #nosec G304 -- below one of the folders of this package.
		return err == nil && bytes.Contains(content, []byte(c.State+"/"))
	}
	return map[string]func(string) bool{
		layout.Link:           linksToState,
		policy:                ownPolicy,
		"/run/containerd/s/*": deadSocket,
		"/var/lib/kubelet/device-plugins/kubelet.sock": deadSocket,
		"/var/log/containers/*":                        linksToState,
		"/var/lib/cni/results/*":                       namesState,
	}
}

// deadSocket reports whether nobody listens on a socket any more.
func deadSocket(path string) bool {
	connection, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = connection.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// RestoreKernel sets kernel parameters back to what they were, unless somebody else has set them since or needs them now.
func (c Cleaner) RestoreKernel(ctx context.Context) error {
	boot, err := process.BootID()
	if err != nil || c.Before == nil || c.Before.Boot != boot {
		return err
	}
	now, err := Take(ctx, c.State)
	if err != nil {
		return err
	}
	needed := forwarders(*c.Before, now)
	var errs []error
	for _, parameter := range sysctls() {
		old, known := c.Before.Sysctls[parameter.name]
		switch {
		case !known || now.Sysctls[parameter.name] != parameter.value || old == parameter.value || parameter.forwarding && needed:
		case isKinds(parameter.name, c.State):
			// From now on it is for skaffold/kind/cluster to restore it.
			errs = append(errs, layout.WriteFile(kindState(c.State, "inotify"), []byte(old+"\n"), 0o644))
		default:
			errs = append(errs, writeSysctl(parameter.name, old))
		}
	}
	errs = append(errs, restoreImplied(c.Before.Sysctls, now.Sysctls))
	// A privileged container shares the machine's cgroup namespace, and its mount takes these options away from all.
	if !slices.Equal(c.Before.CgroupOptions, now.CgroupOptions) && len(c.Before.CgroupOptions) > 0 {
		errs = append(errs, run(ctx, "mount", "-o", "remount,"+strings.Join(c.Before.CgroupOptions, ","), cgroupRoot))
	}
	if _, loaded := c.Before.Sysctls[bridgeFilter]; !loaded && !needed {
		errs = append(errs, unloadBridgeFilter(ctx))
	}
	return errors.Join(errs...)
}

// restoreImplied restores what the kernel has changed along with forwarding. before is the state before the landscape, and now
// that before forwarding was restored: what others have set meanwhile stays.
func restoreImplied(before, now map[string]string) error {
	var errs []error
	for name, withForwarding := range implied() {
		want := now[name]
		if want == withForwarding && !isForwarding(name) {
			// Empty for a device that has come since: what the kernel has set is right for it.
			want = before[name]
		}
		if value, err := readSysctl(name); err == nil && want != "" && value != want {
			errs = append(errs, writeSysctl(name, want))
		}
	}
	return errors.Join(errs...)
}

// isForwarding reports whether forwarding is on for the family of a parameter.
func isForwarding(name string) bool {
	family, _, _ := strings.Cut(strings.TrimPrefix(name, "net/"), "/")
	value, err := readSysctl("net/" + family + "/conf/all/forwarding")
	return err == nil && value == "1"
}

// landscapeProcesses finds processes by what they run: a program of the landscape's that was given the state folder.
func landscapeProcesses(state string) (map[int]string, error) {
	programs := []string{
		"containerd-shim-runc-v2", "containerd", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler",
		"kubelet", "kube-proxy", "coredns", "landscape",
	}
	processes, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	found := map[int]string{}
	for _, p := range processes {
		args, err := p.CmdLine()
		if err != nil || len(args) == 0 || p.PID == os.Getpid() || !slices.Contains(programs, filepath.Base(args[0])) {
			continue
		}
		if process.NamesFolder(args[1:], state) {
			found[p.PID] = filepath.Base(args[0])
		}
	}
	return found, nil
}

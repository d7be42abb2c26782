// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
)

// Cgroup is the cgroup below which kubelet makes those of the landscape's pods. It has a name of its own, so that another
// kubelet's pods can never be taken for the landscape's. programs is the cgroup that EnterCgroup makes.
const Cgroup, programs = "provider-local", "provider-local-programs"

const cgroupRoot = "/sys/fs/cgroup"

// hierarchies returns the roots of the cgroup hierarchies: one for cgroup v2, one per controller for v1.
func hierarchies(root string) (paths []string, unified bool, err error) {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}, true, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, false, fmt.Errorf("listing the cgroup hierarchies: %w", err)
	}
	for _, entry := range entries {
		// "cpu" may be a link to "cpu,cpuacct".
		if path := filepath.Join(root, entry.Name()); entry.IsDir() && exists(filepath.Join(path, "cgroup.procs")) {
			paths = append(paths, path)
		}
	}
	return paths, false, nil
}

// makeCgroup makes the landscape's cgroup in every hierarchy, with all controllers that the machine has.
func makeCgroup(root string) error {
	paths, unified, err := hierarchies(root)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if unified {
			controllers, err := os.ReadFile(filepath.Join(path, "cgroup.controllers")) // #nosec G304 -- a kernel file.
			if err != nil {
				return fmt.Errorf("reading the cgroup controllers: %w", err)
			}
			for controller := range strings.FieldsSeq(string(controllers)) {
				if err := os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte("+"+controller), 0); err != nil {
					return fmt.Errorf("enabling the cgroup controller %s: %w", controller, err)
				}
			}
		}
		// Together, the programs get ten times as much as all pods: nice counts among themselves only. There is one of the two files,
		// in one hierarchy, or none.
		_ = os.WriteFile(filepath.Join(path, programs, "cpu.weight"), []byte("1000"), 0o600)
		_ = os.WriteFile(filepath.Join(path, programs, "cpu.shares"), []byte("10240"), 0o600)
		own := filepath.Join(path, Cgroup)
		if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, os.ErrExist) { // #nosec G301 -- as all cgroups have.
			return fmt.Errorf("making cgroup %s: %w", own, err)
		}
		// A new cpuset of v1 has neither CPUs nor memory, and takes no process before it does.
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			if value, err := os.ReadFile(filepath.Join(path, name)); err == nil && !unified { // #nosec G304 -- a kernel file.
				if err := os.WriteFile(filepath.Join(own, name), value, 0); err != nil {
					return fmt.Errorf("making cgroup %s: %w", own, err)
				}
			}
		}
	}
	return nil
}

// CgroupOccupied reports whether processes are in what a container of cgroup v2 has as the root: the kernel lets only the machine's own root
// have processes and hand controllers down.
func CgroupOccupied() bool { return cgroupOccupied(cgroupRoot) }

func cgroupOccupied(root string) bool {
	processes, err := os.ReadFile(filepath.Join(root, "cgroup.procs")) // #nosec G304 -- a kernel file.
	return err == nil && len(processes) > 0 && exists(filepath.Join(root, "cgroup.type"))
}

// controllers returns the controllers that the children of the root have in cgroup v2; nil for v1.
func controllers(root string) []string {
	content, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control")) // #nosec G304 -- a kernel file.
	if err != nil {
		return nil
	}
	return strings.Fields(string(content))
}

// cgroupOptions returns the options of the file system mounted at the root, other than ro and rw: those that systemd asks for.
func cgroupOptions(mountInfo string) []string {
	var options []string
	for line := range strings.Lines(mountInfo) {
		// The fields of proc_pid_mountinfo(5): six, any number of optional ones up to a dash, and three.
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if dash < 6 || len(fields) < dash+4 || fields[4] != cgroupRoot || fields[dash+1] != "cgroup2" {
			continue
		}
		options = slices.DeleteFunc(strings.Split(fields[dash+3], ","), func(option string) bool { return option == "rw" || option == "ro" })
	}
	return options
}

// EnterCgroup moves this process to the cgroup of the landscape's programs, which those that it starts inherit: with that of a desktop's
// terminal, systemd would end them all at the logout. It returns the folders of the cgroups that count the landscape's CPU time: that of
// pods, and this one. back moves the process to its former cgroup; RemoveCgroups removes the cgroup.
func EnterCgroup() (pods, own string, back func() error, err error) {
	self, err := procfs.Self()
	if err != nil {
		return "", "", nil, fmt.Errorf("finding the own cgroup: %w", err)
	}
	cgroups, err := self.Cgroups()
	if err != nil {
		return "", "", nil, fmt.Errorf("finding the own cgroup: %w", err)
	}
	return enterCgroup(cgroupRoot, cgroups)
}

func enterCgroup(root string, cgroups []procfs.Cgroup) (pods, own string, back func() error, err error) {
	_, unified, err := hierarchies(root)
	if err != nil {
		return "", "", nil, err
	}
	counts := func(c procfs.Cgroup) bool { return len(c.Controllers) == 0 }
	if !unified {
		root = filepath.Join(root, "cpuacct")
		counts = func(c procfs.Cgroup) bool { return slices.Contains(c.Controllers, "cpuacct") }
	}
	former := root
	// In a container, the path may be one of the machine.
	if i := slices.IndexFunc(cgroups, counts); i >= 0 && exists(filepath.Join(root, cgroups[i].Path)) {
		former = filepath.Join(root, cgroups[i].Path)
	}
	enter := func(folder string) error {
		if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte("0"), 0o600); err != nil {
			return fmt.Errorf("moving this process to cgroup %s: %w", folder, err)
		}
		return nil
	}
	own = filepath.Join(root, programs)
	if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, os.ErrExist) { // #nosec G301 -- as all cgroups have.
		return "", "", nil, fmt.Errorf("making cgroup %s: %w", own, err)
	}
	if err = enter(own); err != nil {
		err = errors.Join(err, os.Remove(own))
	}
	return filepath.Join(root, Cgroup), own, func() error { return enter(former) }, err
}

// OccupiedCgroups returns the cgroups with the name of the landscape's in which there are processes, be it those of a container.
func OccupiedCgroups() ([]string, error) {
	own, err := ownCgroups()
	return slices.DeleteFunc(own, func(root string) bool { return len(pidsBelow([]string{root}, 0)) == 0 }), err
}

// ownCgroups returns the landscape's cgroups that exist, one per hierarchy.
func ownCgroups() ([]string, error) { return cgroupsNamed(cgroupRoot, Cgroup) }

func cgroupsNamed(root, name string) ([]string, error) {
	paths, _, err := hierarchies(root)
	if err != nil {
		return nil, err
	}
	for i := range paths {
		paths[i] = filepath.Join(paths[i], name)
	}
	return existing(paths), nil
}

// pidsBelow returns the processes in the cgroups and all those below, from least on: 0 is one in another PID namespace, as of a container,
// and would be this one's process group for a signal.
func pidsBelow(roots []string, least int) []int {
	var pids []int
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() != "cgroup.procs" {
				return nil
			}
			content, err := os.ReadFile(path) // #nosec G304 -- a kernel file.
			if err != nil {
				return nil
			}
			for field := range strings.FieldsSeq(string(content)) {
				if pid, err := strconv.Atoi(field); err == nil && pid >= least {
					pids = append(pids, pid)
				}
			}
			return nil
		})
	}
	return pids
}

// thaw lets what is frozen in the cgroups of v1 and all those below run, as no signal ends it before: a runc that is killed while it sets
// a cgroup's devices leaves that frozen. In v2, SIGKILL ends what is frozen, too.
func thaw(roots []string) {
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Name() == "freezer.state" {
				_ = os.WriteFile(path, []byte("THAWED"), 0)
			}
			return nil
		})
	}
}

// removeTree removes a tree of empty folders, the deepest first. It is fine if one can't be removed for one of the reasons.
func removeTree(root string, reasons ...syscall.Errno) error {
	var all []string
	var errs []error
	note := func(path string, err error) {
		if err != nil && !slices.ContainsFunc(reasons, func(reason syscall.Errno) bool { return errors.Is(err, reason) }) {
			errs = append(errs, fmt.Errorf("removing %s: %w", path, err))
		}
	}
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if note(path, err); err == nil && entry.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	for _, path := range slices.Backward(all) {
		note(path, syscall.Rmdir(path))
	}
	return errors.Join(errs...)
}

// existing keeps the paths that are there.
func existing(paths []string) []string {
	return slices.DeleteFunc(paths, func(path string) bool { return !exists(path) })
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

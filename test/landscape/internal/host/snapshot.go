// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package host is about the machine outside of the landscape's own folders: what `up` has to change there, and that
// `down` puts everything back. It takes a snapshot of what a landscape could leave behind before anything is changed, and
// compares at the end.
package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Snapshot is the part of the machine's state that a landscape touches. All lists are sorted.
type Snapshot struct {
	Links      []string          `json:"links"`
	Routes     []string          `json:"routes"`
	Namespaces []string          `json:"networkNamespaces"`
	Mounts     []string          `json:"mounts"`
	Rules      []string          `json:"iptables"`
	Cgroups    []string          `json:"cgroups"`
	Folders    []string          `json:"folders"`
	Processes  []string          `json:"processes"`
	Sysctls    map[string]string `json:"sysctls"`
}

// sysctls are the kernel parameters that kubelet, kube-proxy or the CNI plugins set.
func sysctls() []string {
	return []string{
		"net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet",
		"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables", "net/ipv6/conf/all/forwarding",
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/netfilter/nf_conntrack_max",
	}
}

// folders are those which containerd, kubelet or the CNI plugins make outside of the places they are told.
func folders() []string {
	return []string{
		"/run/containerd", "/opt/containerd", "/opt/cni", "/etc/cni", "/var/lib/cni", "/run/netns", "/var/lib/kubelet",
		"/var/log/containers", "/var/log/pods", "/var/lib/containerd", "/usr/libexec/kubernetes", "/run/runc",
	}
}

// Take takes a snapshot. state is the landscape's state folder: processes that have it in their command line are the
// landscape's.
func Take(ctx context.Context, state string) (Snapshot, error) {
	var s Snapshot
	var errs []error
	collect := func(into *[]string, list func(context.Context) ([]string, error)) {
		found, err := list(ctx)
		slices.Sort(found)
		*into = slices.Compact(found)
		errs = append(errs, err)
	}
	collect(&s.Links, links)
	collect(&s.Routes, routes)
	collect(&s.Namespaces, func(context.Context) ([]string, error) { return globNames("/run/netns/*") })
	collect(&s.Mounts, func(context.Context) ([]string, error) { return mounts() })
	collect(&s.Rules, rules)
	collect(&s.Cgroups, func(context.Context) ([]string, error) { return cgroups() })
	collect(&s.Folders, func(context.Context) ([]string, error) { return existing(folders()), nil })
	collect(&s.Processes, func(context.Context) ([]string, error) { return processes(state) })
	s.Sysctls = map[string]string{}
	for _, name := range sysctls() {
		if value, err := readSysctl(name); err == nil {
			s.Sysctls[name] = value
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Snapshot{}, fmt.Errorf("looking at the machine's state: %w", err)
	}
	return s, nil
}

// Compare lists what is in after and was not in before, and kernel parameters that differ: a landscape's left-overs.
func Compare(before, after Snapshot) []string {
	var left []string
	added := func(kind string, before, after []string) {
		for _, item := range after {
			if !slices.Contains(before, item) {
				left = append(left, kind+" "+item)
			}
		}
	}
	added("network device", before.Links, after.Links)
	// A snapshot of an earlier version has none at all, as there is no machine without any.
	if before.Routes != nil {
		added("route", before.Routes, after.Routes)
	}
	added("network namespace", before.Namespaces, after.Namespaces)
	added("mount", before.Mounts, after.Mounts)
	added("iptables rule", before.Rules, after.Rules)
	added("cgroup", before.Cgroups, after.Cgroups)
	added("folder", before.Folders, after.Folders)
	added("process", before.Processes, after.Processes)
	for _, name := range sysctls() {
		old, known := before.Sysctls[name]
		if now, exists := after.Sysctls[name]; known && exists && now != old {
			left = append(left, fmt.Sprintf("kernel parameter %s is %s and was %s", name, now, old))
		}
	}
	return left
}

// Load reads a snapshot from a file; the error is os.ErrNotExist if there is none.
func Load(path string) (Snapshot, error) {
	var s Snapshot
	content, err := os.ReadFile(path) // #nosec G304 -- the landscape's own file.
	if err != nil {
		return s, fmt.Errorf("reading the snapshot of the machine: %w", err)
	}
	if err := json.Unmarshal(content, &s); err != nil {
		return s, fmt.Errorf("reading the snapshot of the machine: %w", err)
	}
	return s, nil
}

// Save writes the snapshot to a file.
func (s Snapshot) Save(path string) error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the snapshot of the machine: %w", err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("writing the snapshot of the machine: %w", err)
	}
	return nil
}

// routes lists those of IPv4, in all tables. A landscape makes none of IPv6, of which routers on the network announce new ones
// at any time.
func routes(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ip", "-4", "-o", "route", "show", "table", "all").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the machine's routes: %w", err)
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return all, nil
}

func links(context.Context) ([]string, error) { return globNames("/sys/class/net/*") }

func mounts() ([]string, error) {
	content, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			points = append(points, fields[1])
		}
	}
	return points, nil
}

// rules lists chains and rules of all tables; counters and the built-in chains' policies are left out.
func rules(ctx context.Context) ([]string, error) {
	var all []string
	for _, family := range []string{"iptables", "ip6tables"} {
		saved, err := save(ctx, family)
		if err != nil {
			return nil, err
		}
		table := ""
		scanner := bufio.NewScanner(bytes.NewReader(saved))
		for scanner.Scan() {
			line := scanner.Text()
			switch {
			case strings.HasPrefix(line, "*"):
				table = line[1:]
			case strings.HasPrefix(line, ":") && strings.Contains(line, " - "), strings.HasPrefix(line, "-A"):
				chain, _, _ := strings.Cut(line, " [")
				all = append(all, family+" "+table+" "+chain)
			}
		}
		if err := scanner.Err(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// save is empty where the machine has no iptables (yet).
func save(ctx context.Context, family string) ([]byte, error) {
	path, err := exec.LookPath(family + "-save")
	if err != nil {
		return nil, nil
	}
	out, err := exec.CommandContext(ctx, path).Output() // #nosec G204 -- one of two names.
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

// cgroups lists those that kubelet and containerd make.
func cgroups() ([]string, error) {
	var all []string
	for _, pattern := range []string{"/sys/fs/cgroup/kubepods", "/sys/fs/cgroup/*/kubepods", "/sys/fs/cgroup/k8s.io", "/sys/fs/cgroup/*/k8s.io"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func existing(paths []string) []string {
	var found []string
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			found = append(found, path)
		}
	}
	return found
}

// processes lists those whose command line names the state folder, except for this one and its ancestors' shells: only the
// program names that a landscape consists of count.
func processes(state string) ([]string, error) {
	pids, err := landscapeProcesses(state)
	if err != nil {
		return nil, err
	}
	var all []string
	for pid, command := range pids {
		all = append(all, fmt.Sprintf("%d %s", pid, command))
	}
	return all, nil
}

func globNames(pattern string) ([]string, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	for i := range paths {
		paths[i] = filepath.Base(paths[i])
	}
	return paths, nil
}

func readSysctl(name string) (string, error) {
	content, err := os.ReadFile(filepath.Join("/proc/sys", name)) // #nosec G304 -- from the list above.
	return strings.TrimSpace(string(content)), err
}

func writeSysctl(name, value string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644); err != nil { // #nosec G306 -- kernel files.
		return fmt.Errorf("setting kernel parameter %s to %s: %w", name, value, err)
	}
	return nil
}

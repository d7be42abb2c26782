// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package host is about the machine outside of the landscape's own folders: what `up` has to change there, and that
// `down` puts everything back. It takes a snapshot of what a landscape could leave behind before anything is changed, and
// compares at the end.
package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/process"
)

// Snapshot is the part of the machine's state that a landscape may touch. All lists are sorted.
type Snapshot struct {
	// Boot is the machine's boot id: what is not on disk is gone after the next boot.
	Boot  string   `json:"boot"`
	Links []string `json:"links"`
	// Bridges are bridges and tunnels.
	Bridges    []string `json:"bridges"`
	Routes     []string `json:"routes"`
	Namespaces []string `json:"networkNamespaces"`
	Mounts     []string `json:"mounts"`
	Rules      []string `json:"iptables"`
	// Tables are those of nftables, as "family name", and chains at hooks, as "family table name".
	Tables    []string `json:"nftables"`
	Cgroups   []string `json:"cgroups"`
	Folders   []string `json:"folders"`
	Processes []string `json:"processes"`
	// Kubernetes are the processes of another Kubernetes.
	Kubernetes []string `json:"-"`
	// Controllers are those which cgroup v2 hands down from its root.
	Controllers []string `json:"cgroupControllers"`
	// CgroupOptions are those with which cgroup v2 is mounted.
	CgroupOptions []string          `json:"cgroupOptions"`
	Sysctls       map[string]string `json:"sysctls"`
}

// sysctl is a kernel parameter that the landscape, or a program in it, sets.
type sysctl struct {
	name string
	// value is what it is set to.
	value string
	// atLeast says that the machine's own value stays if it is larger.
	atLeast bool
	// forwarding says that whoever connects containers or virtual machines wants it as well.
	forwarding bool
	// setter is who sets it: "" for the landscape itself.
	setter string
}

func sysctls() []sysctl {
	return []sysctl{
		{name: "net/ipv4/ip_forward", value: "1", forwarding: true},
		// A machine of a shoot has a systemd, a kubelet and a containerd, all of them root's.
		{name: inotifyInstances, value: "8192", atLeast: true},
		{name: "fs/inotify/max_user_watches", value: "524288", atLeast: true},
		{name: bridgeFilter, value: "1", forwarding: true, setter: "former versions of this program"},
		{name: "net/ipv6/conf/all/forwarding", value: "1", forwarding: true, setter: "the CNI plugin bridge"},
		{name: "net/ipv4/conf/all/route_localnet", value: "1", setter: "the CNI plugin portmap"},
		{name: "vm/overcommit_memory", value: "1", setter: "kubelet"},
		{name: "vm/panic_on_oom", value: "0", setter: "kubelet"},
		{name: "kernel/panic", value: "10", setter: "kubelet"},
		{name: "kernel/panic_on_oops", value: "1", setter: "kubelet"},
		{name: "kernel/keys/root_maxkeys", value: "1000000", setter: "kubelet"},
		{name: "kernel/keys/root_maxbytes", value: "25000000", setter: "kubelet"},
	}
}

// implied returns the parameters that the kernel sets itself when forwarding is switched on or off, and their values with
// forwarding on: it overwrites what others have set for single devices.
func implied() map[string]string {
	values := map[string]string{"net/ipv4/conf/all/accept_redirects": "0"}
	for _, pattern := range []string{"net/ipv4/conf/*/forwarding", "net/ipv6/conf/*/forwarding"} {
		paths, _ := filepath.Glob(filepath.Join("/proc/sys", pattern))
		for _, path := range paths {
			if name := strings.TrimPrefix(path, "/proc/sys/"); !strings.Contains(name, "/conf/all/") {
				values[name] = "1"
			}
		}
	}
	return values
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
	var errs []error
	sorted := func(found []string, err error) []string {
		errs = append(errs, err)
		slices.Sort(found)
		return slices.Compact(found)
	}
	boot, err := process.BootID()
	errs = append(errs, err)
	own, errOwn := landscapeProcesses(state)
	var started []string
	for pid, command := range own {
		started = append(started, fmt.Sprintf("%d %s", pid, command))
	}
	s := Snapshot{
		Boot: boot, Links: sorted(Links()), Bridges: sorted(connecting("/sys/class/net")), Routes: sorted(Routes(ctx)), Namespaces: sorted(globNames("/run/netns/*")),
		Mounts: sorted(mounts()), Rules: sorted(rules(ctx)), Tables: sorted(tables(ctx)), Cgroups: sorted(ownCgroups()),
		Folders: sorted(existing(folders()), nil), Processes: sorted(started, errOwn), Kubernetes: OtherKubernetes(slices.Collect(maps.Keys(own))),
	}
	s.Controllers = controllers(cgroupRoot)
	if mountInfo, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		s.CgroupOptions = cgroupOptions(string(mountInfo))
	}
	s.Sysctls = map[string]string{}
	names := slices.Collect(maps.Keys(implied()))
	for _, parameter := range sysctls() {
		names = append(names, parameter.name)
	}
	for _, name := range names {
		if value, err := readSysctl(name); err == nil {
			s.Sysctls[name] = value
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Snapshot{}, fmt.Errorf("looking at the machine's state: %w", err)
	}
	return s, nil
}

// Difference is something that is on the machine now and was not before, or the other way round.
type Difference struct {
	Text string
	// Ours says that the landscape made it: others change the machine, too, while a landscape is up.
	Ours bool
}

// Compare lists the differences between two snapshots. state is the landscape's state folder.
func Compare(before, after Snapshot, state string) []Difference {
	var found []Difference
	compare := func(kind string, before, after []string, ours func(item string) bool) {
		for _, item := range after {
			if !slices.Contains(before, item) {
				found = append(found, Difference{Text: kind + " " + item, Ours: ours(item)})
			}
		}
		for _, item := range before {
			if !slices.Contains(after, item) {
				found = append(found, Difference{Text: kind + " " + item + " is gone"})
			}
		}
	}
	always := func(string) bool { return true }
	never := func(string) bool { return false }
	compare("network device", before.Links, after.Links, func(item string) bool { return slices.Contains(devices(), item) })
	compare("route", before.Routes, after.Routes, ThroughOwnDevice)
	compare("network namespace", before.Namespaces, after.Namespaces, never)
	compare("mount", before.Mounts, after.Mounts, func(item string) bool { return strings.HasPrefix(item, state+"/") })
	compare("iptables rule", before.Rules, after.Rules, func(item string) bool { return ownRule(item, len(after.Kubernetes) > 0) })
	compare("nftables table or chain", before.Tables, after.Tables, never)
	compare("cgroup", before.Cgroups, after.Cgroups, always)
	// What is left in them has an owner by now: the landscape's own files and empty folders are removed.
	compare("folder", before.Folders, after.Folders, never)
	compare("process", before.Processes, after.Processes, always)
	compare("option of cgroup v2", before.CgroupOptions, after.CgroupOptions, never)
	for _, parameter := range sysctls() {
		old, known := before.Sysctls[parameter.name]
		if now, exists := after.Sysctls[parameter.name]; known && exists && now != old {
			ours := now == parameter.value && (!parameter.forwarding || !forwarders(before, after)) && !isKinds(parameter.name, state)
			found = append(found, Difference{Text: fmt.Sprintf("kernel parameter %s is %s and was %s", parameter.name, now, old), Ours: ours})
		}
	}
	return found
}

// forwarders reports whether somebody else has connected containers, virtual machines or networks by a bridge or a tunnel since, and so
// may need the kernel to forward packets.
func forwarders(before, after Snapshot) bool {
	return slices.ContainsFunc(after.Bridges, func(name string) bool {
		return !slices.Contains(before.Bridges, name) && !slices.Contains(devices(), name)
	})
}

// inotifyInstances is the limit that skaffold/kind/cluster raises as well.
const inotifyInstances = "fs/inotify/max_user_instances"

// kindState returns the path of a file in the state folder of the kind cluster of the same clone.
func kindState(state, name string) string { return filepath.Join(filepath.Dir(state), ".kind", name) }

// isKinds reports whether the machines of the kind cluster of the same clone need a kernel parameter.
func isKinds(name, state string) bool {
	_, err := os.Stat(kindState(state, "cluster"))
	return err == nil && name == inotifyInstances
}

// devices are the landscape's network devices.
func devices() []string { return []string{layout.PodBridge, layout.Interface} }

// ThroughOwnDevice reports whether a route leads through one of the landscape's devices.
func ThroughOwnDevice(route string) bool {
	return slices.ContainsFunc(devices(), func(device string) bool { return strings.Contains(route+" ", " dev "+device+" ") })
}

// ownRule reports whether a line of rules belongs to a chain of the landscape or leads there. Those of Kubernetes may be another's.
func ownRule(rule string, another bool) bool {
	return slices.ContainsFunc(strings.Fields(rule), func(word string) bool {
		word = strings.TrimPrefix(word, ":")
		return (strings.HasPrefix(word, "KUBE-") && !another) || word == Chain || word == layout.PodBridge
	})
}

// Load reads a snapshot from a file; the error is os.ErrNotExist if there is none.
func Load(path string) (s Snapshot, err error) {
	err = layout.ReadJSON(path, &s)
	return s, err
}

// Save writes the snapshot to a file.
func (s Snapshot) Save(path string) error { return layout.WriteJSON(path, s, 0o600) }

// Routes lists those of IPv4, in all tables. A landscape makes none of IPv6, of which routers on the network announce new ones
// at any time.
func Routes(ctx context.Context) ([]string, error) {
	out, err := output(ctx, "ip", "-4", "-o", "route", "show", "table", "all")
	var all []string
	for line := range strings.Lines(string(out)) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return all, err
}

// Links lists the network devices.
func Links() ([]string, error) { return globNames("/sys/class/net/*") }

// connecting lists the network devices in a folder, as /sys/class/net, by which networks are connected: bridges and tunnels.
func connecting(folder string) ([]string, error) {
	links, err := globNames(filepath.Join(folder, "*"))
	return slices.DeleteFunc(links, func(link string) bool {
		uevent, _ := os.ReadFile(filepath.Join(folder, link, "uevent")) // #nosec G304 -- of the kernel.
		_, notTunnel := os.Stat(filepath.Join(folder, link, "tun_flags"))
		return notTunnel != nil && !bridgeOrWireGuard.Match(uevent)
	}), err
}

// bridgeOrWireGuard matches what the kernel says of such devices.
var bridgeOrWireGuard = regexp.MustCompile(`(?m)^DEVTYPE=(bridge|wireguard)$`)

func tables(ctx context.Context) ([]string, error) {
	ruleset, err := listRuleset(ctx)
	return ruleset.chainNames(), err
}

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
		for line := range strings.Lines(string(saved)) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case strings.HasPrefix(line, "*"):
				table = line[1:]
			case strings.HasPrefix(line, ":") && strings.Contains(line, " - "), strings.HasPrefix(line, "-A"):
				chain, _, _ := strings.Cut(line, " [")
				all = append(all, family+" "+table+" "+chain)
			}
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
	return output(ctx, path)
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

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package preflight looks whether a machine can take a landscape, before anything is changed on it. It finds everything at once,
// and says for each finding what to do.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
	"k8s.io/utils/ptr"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/host"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/invoker"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/process"
)

// Needs are what a landscape asks of the machine.
type Needs struct {
	// Go is whether anything has to be built.
	Go bool
	// Memory is in bytes.
	Memory uint64
	// Disks are folders and the free space that their file systems have to have.
	Disks []Disk
	// Sockets are those on which the landscape's processes are going to listen.
	Sockets []process.Socket
	// Network is where its addresses are from.
	Network layout.Network
}

// Disk is the space for something in a folder.
type Disk struct {
	Folder, Purpose string
	// Need and Free are in bytes. FileSystem identifies the file system, so that needs of one add up.
	Need, Free uint64
	FileSystem uint64
	// Overlay says that the folder is on an overlay file system, as it is in a container.
	Overlay bool
}

// Machine is what matters about a machine.
type Machine struct {
	Root bool
	// Capabilities are the effective ones of this process, as a bit mask.
	Capabilities uint64
	// CgroupOccupied is whether no cgroup with controllers can be made.
	CgroupOccupied bool
	// Distribution is PRETTY_NAME of /etc/os-release.
	Distribution string
	Architecture string
	// Go is the output of "go version"; GoError is why there is none.
	Go, GoError string
	// Memory and Available are in bytes.
	Memory, Available uint64
	Disks             []Disk
	// MissingModules are kernel modules that can't be loaded, MissingPackages Debian packages that have to be installed, and
	// RemovedPackages those that would have to go for them.
	MissingModules  []string
	MissingPackages []string
	RemovedPackages string
	HasApt          bool
	// Routes are lines of "ip route show table all", without those of the landscape.
	Routes []string
	// Listeners are the sockets in use.
	Listeners []process.Listener
	// OtherLandscape is the folder of another clone whose landscape is up.
	OtherLandscape string
	// Kubernetes are other processes of a Kubernetes on this machine, and Chains the iptables chains of one.
	Kubernetes []string
	Chains     []string
	// Devices are network devices that bear the landscape's names but are not the landscape's, and Cgroups such cgroups with processes.
	Devices, Cgroups []string
}

// Check is one thing that was looked at.
type Check struct {
	Name string
	// Found says how it is.
	Found string
	// Remedies say what to change, each beside its problem; none if all is well.
	Problems []Problem
}

// Problem is why the landscape can't come up, and what to do.
type Problem struct{ Cause, Remedy string }

func ok(name, found string) Check { return Check{Name: name, Found: found} }

func bad(name, found, cause, remedy string) Check {
	return Check{Name: name, Found: found, Problems: []Problem{{cause, remedy}}}
}

// Judge compares a machine with the needs.
func Judge(m Machine, n Needs) []Check {
	if m.OtherLandscape != "" {
		// It has all that this one would need.
		return []Check{root(m), bad("landscape", "another one", "the landscape of the clone "+m.OtherLandscape+" is up on this machine",
			"use that one, or take it down: make -C "+m.OtherLandscape+" down")}
	}
	return []Check{
		root(m), container(m), distribution(m), architecture(m), goVersion(m, n), memory(m, n), disk(m), modules(m), packages(m),
		kubernetes(m), ports(m, n), routes(m, n),
	}
}

// Problems are those of all checks.
func Problems(checks []Check) []Problem {
	var all []Problem
	for _, check := range checks {
		all = append(all, check.Problems...)
	}
	return all
}

func root(m Machine) Check {
	if m.Root {
		return ok("root", "yes")
	}
	return bad("root", "no", "the landscape needs root for network devices, containers and iptables rules", "sudo make up")
}

const (
	capNetAdmin = 1 << 12
	capSysAdmin = 1 << 21
)

func container(m Machine) Check {
	const name = "privileges"
	if m.Root && m.Capabilities&capNetAdmin == 0 || m.Root && m.Capabilities&capSysAdmin == 0 {
		return bad(name, "restricted", "this root may not make network devices or mount file systems, as in an unprivileged container",
			"run it on the machine itself, in a virtual machine, or in a container with --privileged")
	}
	// The first is that of what runs.
	if len(m.Disks) > 0 && m.Disks[0].Overlay {
		return bad(name, "overlay", m.Disks[0].Folder+" is on an overlay file system, as in a container, on which no other container can be put",
			"put the clone on a volume of the container")
	}
	if m.CgroupOccupied {
		return bad(name, "private cgroups", "this container has cgroups of its own, with processes in their root, so that none of those below has controllers",
			"start the container with --cgroupns=host as well")
	}
	return ok(name, "not restricted")
}

func distribution(m Machine) Check {
	const name = "distribution"
	if len(m.MissingPackages) > 0 && !m.HasApt {
		return bad(name, m.Distribution, fmt.Sprintf("%s has no apt-get, and these are missing: %s", m.Distribution, strings.Join(m.MissingPackages, ", ")),
			"install them with the system's own package manager, or use Debian 12 or later, or Ubuntu 24.04 or later")
	}
	return ok(name, m.Distribution)
}

func architecture(m Machine) Check {
	if slices.Contains([]string{"amd64", "arm64"}, m.Architecture) {
		return ok("architecture", m.Architecture)
	}
	return bad("architecture", m.Architecture, "Gardener has no images for "+m.Architecture, "use a machine with amd64 or arm64")
}

var goRelease = regexp.MustCompile(`go1\.(\d+)`)

func goVersion(m Machine, n Needs) Check {
	const name, remedy = "go", "install Go 1.21 or newer from https://go.dev/dl into /usr/local/go; it fetches the version that go.mod asks for by itself"
	if !n.Go {
		return ok(name, "not needed")
	}
	if m.Go == "" {
		return bad(name, "missing", "there is no Go: "+m.GoError, remedy)
	}
	match := goRelease.FindStringSubmatch(m.Go)
	if match == nil {
		return ok(name, m.Go)
	}
	if minor, err := strconv.Atoi(match[1]); err == nil && minor < 21 {
		return bad(name, m.Go, match[0]+" can't read go.mod", remedy)
	}
	return ok(name, m.Go)
}

// gigabytes rounds down: what is too little must not look like enough.
func gigabytes(bytes uint64) string { return fmt.Sprintf("%d.%d GB", bytes/1e9, bytes%1e9/1e8) }

func memory(m Machine, n Needs) Check {
	const name = "memory"
	found := fmt.Sprintf("%s, %s of it available", gigabytes(m.Memory), gigabytes(m.Available))
	switch {
	case m.Memory < n.Memory:
		return bad(name, found, fmt.Sprintf("the machine has %s of memory, and this needs %s", gigabytes(m.Memory), gigabytes(n.Memory)),
			"use a larger machine, or stop at an earlier step, for example with UNTIL=dns or UNTIL=garden")
	case m.Available < n.Memory/4*3:
		return bad(name, found, fmt.Sprintf("%s of memory is available, and this needs %s", gigabytes(m.Available), gigabytes(n.Memory)),
			"stop other programs, or stop at an earlier step, for example with UNTIL=dns or UNTIL=garden")
	}
	return ok(name, found)
}

func disk(m Machine) Check {
	check := ok("disk", "")
	needs, purposes := map[uint64]uint64{}, map[uint64][]string{}
	for _, d := range m.Disks {
		needs[d.FileSystem] += d.Need
		purposes[d.FileSystem] = append(purposes[d.FileSystem], fmt.Sprintf("%s for %s", gigabytes(d.Need), d.Purpose))
	}
	seen := map[uint64]bool{}
	for _, d := range m.Disks {
		if seen[d.FileSystem] {
			continue
		}
		seen[d.FileSystem] = true
		check.Found += fmt.Sprintf("%s free in %s; ", gigabytes(d.Free), d.Folder)
		if d.Free < needs[d.FileSystem] {
			check.Problems = append(check.Problems, Problem{
				fmt.Sprintf("%s has %s free, and this needs %s (%s)", d.Folder, gigabytes(d.Free), gigabytes(needs[d.FileSystem]), strings.Join(purposes[d.FileSystem], ", ")),
				"make room there, or clone the repository to a larger disk (GOCACHE, GOMODCACHE and TMPDIR move the rest)",
			})
		}
	}
	check.Found = strings.TrimSuffix(check.Found, "; ")
	return check
}

func modules(m Machine) Check {
	if len(m.MissingModules) == 0 {
		return ok("kernel", "has the modules")
	}
	missing := strings.Join(m.MissingModules, ", ")
	return bad("kernel", "lacks "+missing, "this kernel has no module "+missing,
		"install the kernel's modules (on Ubuntu linux-modules-extra-$(uname -r)), or reboot if the kernel was upgraded since the last boot")
}

func packages(m Machine) Check {
	const name = "packages"
	switch {
	case m.RemovedPackages != "":
		return bad(name, "conflict", fmt.Sprintf("installing %s would remove %s", strings.Join(m.MissingPackages, ", "), m.RemovedPackages),
			"install what is missing by hand, in a version that does not conflict")
	case len(m.MissingPackages) > 0:
		return ok(name, "to be installed: "+strings.Join(m.MissingPackages, ", "))
	}
	return ok(name, "all there")
}

func kubernetes(m Machine) Check {
	const name = "kubernetes"
	switch {
	case len(m.Kubernetes) > 0:
		return bad(name, "another one runs", "another Kubernetes runs on this machine: "+strings.Join(m.Kubernetes, ", "),
			"stop it (for example: systemctl stop k3s, or kubeadm reset), or use another machine; a kind cluster does not matter")
	case len(m.Chains) > 0:
		return bad(name, "rules of another one", fmt.Sprintf("iptables has chains of another Kubernetes: %s", strings.Join(m.Chains[:min(3, len(m.Chains))], ", ")),
			"remove them the way that Kubernetes says (k3s-killall.sh, kube-proxy --cleanup), or reboot")
	case len(m.Devices) > 0:
		return bad(name, "devices", fmt.Sprintf("there is a network device %s, which is not this landscape's", strings.Join(m.Devices, ", ")),
			"run make down in the clone that made it, or remove it with: ip link delete "+m.Devices[0])
	case len(m.Cgroups) > 0:
		return bad(name, "cgroups", fmt.Sprintf("there is a cgroup %s, which is not this landscape's: each of the two would kill the other's pods", m.Cgroups[0]),
			"run make down in the clone or container that made it")
	}
	return ok(name, "no other")
}

func ports(m Machine, n Needs) Check {
	check := ok("ports", "free")
	for _, socket := range n.Sockets {
		for _, listener := range m.Listeners {
			// BIND listens on addresses that the machine gets later, too, unless it is only for the machine itself.
			later := listener.Network == socket.Network && listener.Address.Port() == 53 && socket.Address.Port() == 53 &&
				!listener.Address.Addr().IsLoopback() && strings.HasPrefix(listener.Owner(), "named ")
			if later || socket.Collides(listener.Socket) {
				check.Found = "taken"
				check.Problems = append(check.Problems, Problem{
					fmt.Sprintf("%s listens on %s, which the landscape needs as %s", listener.Owner(), listener, socket),
					"stop it for as long as the landscape is up",
				})
				break
			}
		}
	}
	return check
}

func routes(m Machine, n Needs) Check {
	check := ok("network", n.Network.String()+" is free")
	for _, r := range n.Network.Ranges() {
		for _, route := range m.Routes {
			if destination, ok := destination(route); ok && destination.Overlaps(r.Prefix) {
				check.Problems = append(check.Problems, Problem{fmt.Sprintf("the route %q overlaps %s, the range of the landscape's %s", route, r.Prefix, r.Name), ""})
				break
			}
		}
	}
	if len(check.Problems) == 0 {
		return check
	}
	check.Found = n.Network.String() + " is taken"
	remedy := "remove the network that the route belongs to (for example: docker network ls)"
	proposals := layout.Candidates()
	if i := slices.IndexFunc(proposals, func(proposal layout.Network) bool {
		return !slices.ContainsFunc(m.Routes, func(route string) bool {
			destination, ok := destination(route)
			return ok && destination.Overlaps(proposal.Prefix())
		})
	}); i >= 0 {
		remedy = fmt.Sprintf("use another network: make up NETWORK=%s", proposals[i])
	}
	for i := range check.Problems {
		check.Problems[i].Remedy = remedy
	}
	return check
}

// destination returns where a route leads, unless it leads everywhere: a VPN may split the default route in two.
func destination(route string) (netip.Prefix, bool) {
	for _, field := range strings.Fields(route) {
		if prefix, err := netip.ParsePrefix(field); err == nil {
			return prefix, prefix.Bits() > 1
		}
		if address, err := netip.ParseAddr(field); err == nil {
			return netip.PrefixFrom(address, address.BitLen()), true
		}
		// The first word may be the type of the route.
		if !slices.Contains([]string{"local", "broadcast", "unicast", "unreachable", "blackhole", "prohibit", "throw", "multicast", "anycast"}, field) {
			return netip.Prefix{}, false
		}
	}
	return netip.Prefix{}, false
}

// overlayMagic is the type of an overlay file system (linux/magic.h).
const overlayMagic = 0x794c7630

// Read looks at the machine and changes nothing. own are the landscape's running processes; up says that devices and chains are
// the landscape's.
func Read(ctx context.Context, needs Needs, own []int, up bool) (Machine, error) {
	m := Machine{Root: os.Geteuid() == 0, Architecture: runtime.GOARCH, CgroupOccupied: host.CgroupOccupied()}
	_, err := exec.LookPath("apt-get")
	m.HasApt = err == nil
	errs := []error{m.readRelease(), m.readCapabilities(), m.readMemory(), m.readDisks(needs.Disks)}
	m.Listeners, err = process.Listeners()
	errs = append(errs, err)
	m.readGo(ctx)
	m.MissingModules = host.MissingModules(ctx)
	m.MissingPackages = host.Missing()
	if m.HasApt && len(m.MissingPackages) > 0 {
		m.RemovedPackages = host.Removed(ctx, m.MissingPackages)
	}
	m.OtherLandscape = host.OtherLandscape(own)
	m.Kubernetes = host.OtherKubernetes(own)
	m.Routes, err = host.Routes(ctx)
	// Without the program there is nothing that routes were made with.
	if !errors.Is(err, exec.ErrNotFound) {
		errs = append(errs, err)
	}
	m.Routes = slices.DeleteFunc(m.Routes, host.ThroughOwnDevice)
	if !up && m.Root {
		m.Chains, err = host.KubernetesChains(ctx)
		errs = append(errs, err)
		m.Devices, err = host.OwnLinks()
		errs = append(errs, err)
		m.Cgroups, err = host.OccupiedCgroups()
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return Machine{}, fmt.Errorf("looking at the machine: %w", err)
	}
	return m, nil
}

func (m *Machine) readRelease() error {
	content, err := os.ReadFile("/etc/os-release")
	if errors.Is(err, os.ErrNotExist) {
		m.Distribution = "a system without /etc/os-release"
		return nil
	}
	values := map[string]string{}
	for line := range strings.Lines(string(content)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = strings.Trim(value, `"'`)
	}
	m.Distribution = values["PRETTY_NAME"]
	return err
}

func (m *Machine) readCapabilities() error {
	self, err := procfs.Self()
	if err != nil {
		return err
	}
	status, err := self.NewStatus()
	m.Capabilities = status.CapEff
	return err
}

func (m *Machine) readGo(ctx context.Context) {
	user, err := invoker.Current()
	if err != nil {
		m.GoError = err.Error()
		return
	}
	// Outside of the clone: a version that is too old refuses to say so beside a go.mod.
	cmd := exec.CommandContext(ctx, "go", "version")
	cmd.Dir = "/"
	out, err := user.Run(cmd).CombinedOutput()
	if err != nil {
		m.GoError = strings.TrimSpace(err.Error() + " " + string(out))
		return
	}
	m.Go = strings.TrimSpace(string(out))
}

func (m *Machine) readMemory() error {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return err
	}
	info, err := fs.Meminfo()
	m.Memory, m.Available = ptr.Deref(info.MemTotalBytes, 0), ptr.Deref(info.MemAvailableBytes, 0)
	return err
}

func (m *Machine) readDisks(disks []Disk) error {
	for _, disk := range disks {
		// The folder itself may have yet to be made.
		folder := disk.Folder
		for {
			if _, err := os.Stat(folder); err == nil || folder == "/" {
				break
			}
			folder = filepath.Dir(folder)
		}
		var space syscall.Statfs_t
		if err := syscall.Statfs(folder, &space); err != nil {
			return fmt.Errorf("looking at the disk of %s: %w", folder, err)
		}
		var file syscall.Stat_t
		if err := syscall.Stat(folder, &file); err != nil {
			return fmt.Errorf("looking at the disk of %s: %w", folder, err)
		}
		disk.Free, disk.FileSystem, disk.Overlay = space.Bavail*uint64(space.Bsize), uint64(file.Dev), space.Type == overlayMagic //nolint:unconvert // #nosec G115 -- sizes; a device has 32 bits on macOS.
		m.Disks = append(m.Disks, disk)
	}
	return nil
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/process"
)

func socket(network, address string) process.Socket {
	return process.Socket{Network: network, Address: netip.MustParseAddrPort(address)}
}

func goodMachine() Machine {
	return Machine{
		Root: true, Capabilities: ^uint64(0), Distribution: "Debian GNU/Linux 12 (bookworm)", Architecture: "amd64", Go: "go version go1.26.5 linux/amd64",
		Memory: 16e9, Available: 12e9, HasApt: true,
		Disks:  []Disk{{Folder: "/clone", Need: 5e9, Free: 90e9, FileSystem: 1}, {Folder: "/tmp", Need: 1e9, Free: 90e9, FileSystem: 1}},
		Routes: []string{"default via 192.0.2.1 dev eth0", "192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.7", "local 127.0.0.0/8 dev lo", "0.0.0.0/1 via 10.9.0.1 dev tun0", "128.0.0.0/1 via 10.9.0.1 dev tun0"},
	}
}

func TestNothingToBuildNeedsNoGo(t *testing.T) {
	machine := goodMachine()
	machine.Go, machine.GoError = "", "not found"
	NewWithT(t).Expect(Problems(Judge(machine, Needs{}))).To(BeEmpty())
	NewWithT(t).Expect(Problems(Judge(machine, Needs{Go: true}))).To(HaveLen(1))
}

func TestBINDTakesAddressesThatComeLater(t *testing.T) {
	g := NewWithT(t)
	sleep, err := os.ReadFile("/bin/sleep")
	g.Expect(err).NotTo(HaveOccurred())
	named := filepath.Join(t.TempDir(), "named")
	g.Expect(os.WriteFile(named, sleep, 0o700)).To(Succeed())
	server := exec.CommandContext(t.Context(), named, "60")
	g.Expect(server.Start()).To(Succeed())
	t.Cleanup(func() { _, _ = server.Process.Kill(), server.Wait() })

	needs := Needs{Sockets: []process.Socket{socket("udp", "172.18.255.53:53")}}
	for address, refused := range map[string]bool{"192.0.2.1:53": true, "127.0.0.1:53": false, "192.0.2.1:953": false} {
		machine := goodMachine()
		machine.Listeners = []process.Listener{
			{Socket: socket("tcp", address), PIDs: []int{server.Process.Pid}},
			{Socket: socket("udp", address), PIDs: []int{server.Process.Pid}}, {Socket: socket("udp", address), PIDs: []int{server.Process.Pid}},
		}
		// The kernel has the name of the program once it runs.
		g.Eventually(machine.Listeners[0].Owner).Should(HavePrefix("named "))
		problems := Problems(Judge(machine, needs))
		if !refused {
			g.Expect(problems).To(BeEmpty(), address)
			continue
		}
		g.Expect(problems).To(ConsistOf(HaveField("Cause", ContainSubstring("named (PID "))), address)
	}
}

func TestJudge(t *testing.T) {
	needs := Needs{Go: true, Memory: 7e9, Sockets: []process.Socket{socket("tcp", "127.0.0.1:5001"), socket("udp", "172.18.255.53:53")}}
	for _, test := range []struct {
		name           string
		change         func(*Machine)
		causes, remedy []string
	}{
		{name: "has nothing against a stock Debian", change: func(*Machine) {}},
		{name: "asks for root", change: func(m *Machine) { m.Root = false }, causes: []string{"needs root"}, remedy: []string{"sudo make up"}},
		{name: "knows a container without privileges", change: func(m *Machine) { m.Capabilities = 0xa80425fb }, causes: []string{"unprivileged container"}, remedy: []string{"virtual machine"}},
		{name: "knows a container with privileges", change: func(m *Machine) { m.Disks[0].Overlay = true }, causes: []string{"/clone is on an overlay"}, remedy: []string{"volume"}},
		{name: "takes a container with a volume for what runs", change: func(m *Machine) { m.Disks[1].Overlay = true }},
		{name: "knows a container with cgroups of its own", change: func(m *Machine) { m.CgroupOccupied = true }, causes: []string{"processes in their root"}, remedy: []string{"--cgroupns=host"}},
		{name: "says what is missing where there is no apt-get", change: func(m *Machine) {
			m.HasApt, m.MissingPackages, m.Distribution = false, []string{"runc"}, "Fedora Linux 42"
		}, causes: []string{"Fedora Linux 42 has no apt-get, and these are missing: runc"}, remedy: []string{"package manager"}},
		{name: "takes any system that has the programs", change: func(m *Machine) { m.HasApt = false }},
		{name: "refuses other architectures", change: func(m *Machine) { m.Architecture = "riscv64" }, causes: []string{"riscv64"}, remedy: []string{"amd64"}},
		{name: "refuses the Go of Debian 12", change: func(m *Machine) { m.Go = "go version go1.19.8 linux/amd64" }, causes: []string{"go1.19 can't read go.mod"}, remedy: []string{"Go 1.21 or newer"}},
		{name: "refuses to do without Go", change: func(m *Machine) { m.Go, m.GoError = "", "not found" }, causes: []string{"there is no Go: not found"}, remedy: []string{"/usr/local/go"}},
		{name: "refuses a small machine", change: func(m *Machine) { m.Memory = 4e9 }, causes: []string{"has 4.0 GB of memory, and this needs 7.0 GB"}, remedy: []string{"UNTIL=dns"}},
		{name: "refuses a full machine", change: func(m *Machine) { m.Available = 1e9 }, causes: []string{"1.0 GB of memory is available"}, remedy: []string{"stop other programs"}},
		{name: "adds up what one file system has to hold", change: func(m *Machine) { m.Disks[0].Free, m.Disks[1].Free = 5.5e9, 5.5e9 }, causes: []string{"/clone has 5.5 GB free, and this needs 6.0 GB"}, remedy: []string{"make room"}},
		{name: "does not round up what is free", change: func(m *Machine) { m.Disks[0].Free, m.Disks[1].Free = 5.96e9, 5.96e9 }, causes: []string{"/clone has 5.9 GB free, and this needs 6.0 GB"}, remedy: []string{"make room"}},
		{name: "takes small file systems for small things", change: func(m *Machine) { m.Disks[1].Free, m.Disks[1].FileSystem = 2e9, 2 }},
		{name: "refuses a kernel without modules", change: func(m *Machine) { m.MissingModules = []string{"br_netfilter"} }, causes: []string{"no module br_netfilter"}, remedy: []string{"reboot if the kernel was upgraded"}},
		{name: "never has packages removed", change: func(m *Machine) { m.MissingPackages, m.RemovedPackages = []string{"runc"}, "docker-ce" }, causes: []string{"installing runc would remove docker-ce"}, remedy: []string{"by hand"}},
		{name: "installs what is missing", change: func(m *Machine) { m.MissingPackages = []string{"runc"} }},
		{name: "refuses to be a second Kubernetes", change: func(m *Machine) { m.Kubernetes, m.Chains = []string{"k3s-server (PID 7)"}, []string{"KUBE-SERVICES"} }, causes: []string{"k3s-server (PID 7)"}, remedy: []string{"systemctl stop k3s"}},
		{name: "refuses rules that another Kubernetes left", change: func(m *Machine) { m.Chains = []string{"KUBE-SERVICES"} }, causes: []string{"KUBE-SERVICES"}, remedy: []string{"kube-proxy --cleanup"}},
		{name: "names the clone whose landscape is up, and nothing that comes of it", change: func(m *Machine) { m.OtherLandscape, m.Kubernetes = "/root/provider-local", []string{"kubelet (PID 7)"} }, causes: []string{"/root/provider-local"}, remedy: []string{"make -C /root/provider-local down"}},
		{name: "refuses the cgroup of a container's landscape", change: func(m *Machine) { m.Cgroups = []string{"/sys/fs/cgroup/provider-local"} }, causes: []string{"each of the two would kill the other's pods"}, remedy: []string{"container that made it"}},
		{name: "refuses devices of another clone", change: func(m *Machine) { m.Devices = []string{"pl0"} }, causes: []string{"pl0"}, remedy: []string{"make down"}},
		{
			name: "names who has a port", change: func(m *Machine) {
				m.Listeners = []process.Listener{{Socket: socket("tcp", "[::]:5001"), PIDs: []int{os.Getpid()}}, {Socket: socket("udp", "0.0.0.0:53")}, {Socket: socket("tcp", "0.0.0.0:53")}, {Socket: socket("tcp", "127.0.0.2:5001")}}
			},
			causes: []string{"preflight.test (PID ", "a process of another user or container listens on udp 0.0.0.0:53"}, remedy: []string{"stop it", "stop it"},
		},
		{
			name: "proposes a range beside Docker's",
			change: func(m *Machine) {
				m.Routes = append(m.Routes, "172.18.0.0/16 dev br-1 proto kernel", "172.19.0.0/16 dev br-2 proto kernel")
			},
			causes: []string{`the route "172.18.0.0/16 dev br-1 proto kernel" overlaps 172.18.0.0/24, the range of the landscape's nodes`, "172.18.255.0/24"}, remedy: []string{"make up NETWORK=172.20.0.0/16", "NETWORK"},
		},
		{
			name: "sees the whole range, larger and smaller routes alike",
			change: func(m *Machine) {
				m.Routes = append(m.Routes, "10.0.0.0/8 via 10.9.0.1 dev tun0", "local 172.18.0.4 dev dummy0 table local", "unreachable 172.18.7.0/24")
			},
			causes: []string{"local 172.18.0.4", "10.0.0.0/8", "Services", "machines of Shoots"}, remedy: []string{"NETWORK=172.19.0.0/16", "NETWORK", "NETWORK", "NETWORK"},
		},
		{
			name: "says everything at once", change: func(m *Machine) { m.Memory, m.Architecture = 1e9, "386" },
			causes: []string{"386", "1.0 GB"}, remedy: []string{"amd64", "larger machine"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			m := goodMachine()
			test.change(&m)
			problems := Problems(Judge(m, needs))
			g.Expect(problems).To(HaveLen(len(test.causes)))
			for i, problem := range problems {
				g.Expect(problem.Cause).To(ContainSubstring(test.causes[i]))
				g.Expect(problem.Remedy).To(ContainSubstring(test.remedy[i]))
			}
		})
	}
}

func TestReadKnowsThisMachine(t *testing.T) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	here := process.Socket{Network: "tcp", Address: netip.MustParseAddrPort(listener.Addr().String())}
	needs := Needs{Disks: []Disk{{Folder: t.TempDir() + "/not/yet/there", Need: 1}}}

	m, err := Read(t.Context(), needs, nil, true)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.Memory).To(BeNumerically(">", uint64(100e6)))
	g.Expect(m.Available).To(And(BeNumerically(">", uint64(0)), BeNumerically("<=", m.Memory)))
	g.Expect(m.Go).To(ContainSubstring("go version"))
	g.Expect(m.Disks).To(HaveLen(1))
	g.Expect(m.Disks[0].Free).NotTo(BeZero())
	g.Expect(m.Listeners).To(ContainElement(HaveField("Socket", here)))
}

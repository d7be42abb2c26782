// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/usage"
)

// kernel is a fake of the proc file system and of two cgroups.
type kernel struct{ proc, pods, node string }

func newKernel(t *testing.T) kernel {
	t.Helper()
	root := t.TempDir()
	k := kernel{filepath.Join(root, "proc"), filepath.Join(root, "local"), filepath.Join(root, "local-measured")}
	for _, folder := range []string{k.proc, k.node} {
		NewWithT(t).Expect(os.Mkdir(folder, 0o700)).To(Succeed())
	}
	return k
}

// counts has the machine and both cgroups at these user ticks, and as many system ticks.
func (k kernel) counts(t *testing.T, machine, pods, node int) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(os.MkdirAll(k.pods, 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(k.proc, "stat"), fmt.Appendf(nil, "cpu  %d 0 %d 7 7 0 0 0 0 0\n", machine, machine), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(k.pods, "cpuacct.stat"), fmt.Appendf(nil, "user %d\nsystem %d\n", pods, pods), 0o600)).To(Succeed())
	stat := fmt.Appendf(nil, "usage_usec 1\nuser_usec %d\nsystem_usec %d\n", node*10_000, node*10_000)
	g.Expect(os.WriteFile(filepath.Join(k.node, "cpu.stat"), stat, 0o600)).To(Succeed())
}

func TestARecorderMissesNothingAndCountsNothingTwice(t *testing.T) {
	g := NewWithT(t)
	k := newKernel(t)
	const pod, node = "0::/local/kubepods/pod" + uid + "/0123", "5:cpu,cpuacct:/local-measured"
	landscape := proc{pid: 1, command: "landscape", args: []string{"bin/landscape", "times"}, cgroup: node, ticks: 900}
	write(t, k.proc, landscape, proc{pid: 2, command: "vi", cgroup: "0::/", ticks: 100})
	k.counts(t, 10_000, 0, 0)
	g.Expect(os.RemoveAll(k.pods)).To(Succeed())
	r, err := usage.NewRecorder(k.proc, k.pods, k.node)
	g.Expect(err).NotTo(HaveOccurred())

	landscape.ticks = 1000
	write(t, k.proc, landscape,
		proc{pid: 2, command: "vi", cgroup: "0::/", ticks: 200},
		proc{pid: 3, command: "gardener-extens", args: []string{"/gardener-extension-provider-local", "--config=x"}, cgroup: pod, ticks: 200, system: 100},
		proc{pid: 4, command: "runc:[2:INIT]", cgroup: node, ticks: 10},
		proc{pid: 5, command: "containerd-shim", args: []string{"/bin/containerd-shim-runc-v2", "-id"}, cgroup: node, children: 50},
	)
	k.counts(t, 11_000, 250, 300)
	first, err := r.Look()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(first).To(Equal(usage.Reading{
		Programs: map[string]usage.Program{
			"landscape times, node":             {CPU: usage.CPU{User: 1}, Processes: 1},
			"gardener-extension-provider-local": {CPU: usage.CPU{User: 2, System: 1}, Processes: 1},
			"runc:[2:INIT], node":               {CPU: usage.CPU{User: 0.1}, Processes: 1},
			"containerd-shim-runc-v2, node":     {Processes: 1, Children: 0.5},
			usage.EndedInPods:                   {CPU: usage.CPU{User: 0.5, System: 1.5}},
			usage.EndedOnNode:                   {CPU: usage.CPU{User: 1.9, System: 3}},
		},
		Total: usage.CPU{User: 5.5, System: 5.5}, Machine: usage.CPU{User: 10, System: 10},
	}))

	// A process becomes the first of a container, another has the PID of one that ended.
	write(t, k.proc,
		proc{pid: 3, command: "etcd-wrapper", args: []string{"/etcd-wrapper", "start-etcd"}, cgroup: pod, ticks: 30, start: 9},
		proc{pid: 4, command: "sleep", args: []string{"sleep", "1"}, cgroup: pod, ticks: 30},
	)
	g.Expect(os.RemoveAll(filepath.Join(k.proc, "5"))).To(Succeed())
	k.counts(t, 11_000, 350, 300)
	second, err := r.Look()
	g.Expect(err).NotTo(HaveOccurred())
	since := second.Sub(first)
	for name, p := range since.Programs {
		if p == (usage.Program{}) {
			delete(since.Programs, name)
		}
	}
	g.Expect(since.Programs).To(HaveLen(3))
	g.Expect(since.Programs["etcd-wrapper start-etcd"]).To(Equal(usage.Program{CPU: usage.CPU{User: 0.3}, Processes: 1}))
	g.Expect(since.Programs["sleep"].User).To(BeNumerically("~", 0.2), "what it took before was another program's")
	g.Expect(since.Programs[usage.EndedInPods].User).To(BeNumerically("~", 0.5))
	g.Expect(since.Total).To(Equal(usage.CPU{User: 1, System: 1}))
	g.Expect(since.Machine).To(Equal(usage.CPU{}))
}

func TestARecorderSaysWhatItCannotRead(t *testing.T) {
	k := newKernel(t)
	k.counts(t, 1, 1, 1)
	NewWithT(t).Expect(os.WriteFile(filepath.Join(k.node, "cpu.stat"), []byte("user_usec\n"), 0o600)).To(Succeed())
	_, err := usage.NewRecorder(k.proc, k.pods, k.node)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring(k.node)))
	_, err = usage.NewRecorder(filepath.Join(k.proc, "none"), k.pods, k.node)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("none")))
}

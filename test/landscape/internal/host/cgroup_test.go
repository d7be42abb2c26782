// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/procfs"
)

func TestOnlyTheMachinesOwnRootCgroupMayHaveProcesses(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string
		want  bool
	}{
		{name: "the machine's own", files: map[string]string{"cgroup.procs": "1\n"}},
		{name: "that of a container", files: map[string]string{"cgroup.procs": "1\n", "cgroup.type": "domain\n"}, want: true},
		{name: "that of a container with systemd", files: map[string]string{"cgroup.procs": "", "cgroup.type": "domain\n"}},
		{name: "none in v1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			root := t.TempDir()
			for name, content := range test.files {
				g.Expect(os.WriteFile(filepath.Join(root, name), []byte(content), 0o600)).To(Succeed())
			}
			g.Expect(cgroupOccupied(root)).To(Equal(test.want))
		})
	}
}

func TestTheCgroupIsMadeInEveryHierarchy(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string
		want  map[string]string
	}{
		{
			name:  "with all controllers for cgroup v2",
			files: map[string]string{"cgroup.controllers": "cpu memory\n", "cgroup.subtree_control": "", "provider-local-programs/cgroup.procs": ""},
			want:  map[string]string{"cgroup.subtree_control": "+memory", "provider-local-programs/cpu.weight": "1000"},
		},
		{
			name: "with the CPUs of the root for v1",
			files: map[string]string{
				"cpuset/cgroup.procs": "", "cpuset/cpuset.cpus": "0-1\n", "cpuset/cpuset.mems": "0\n", "memory/cgroup.procs": "", "other/file": "",
			},
			want: map[string]string{"cpuset/provider-local/cpuset.cpus": "0-1\n", "cpuset/provider-local/cpuset.mems": "0\n"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			root := t.TempDir()
			for name, content := range test.files {
				g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700)).To(Succeed())
				g.Expect(os.WriteFile(filepath.Join(root, name), []byte(content), 0o600)).To(Succeed())
			}
			_, unified := test.files["cgroup.controllers"]
			if !unified {
				// The kernel makes these files with the cgroup.
				g.Expect(os.MkdirAll(filepath.Join(root, "cpuset", Cgroup), 0o700)).To(Succeed())
				for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
					g.Expect(os.WriteFile(filepath.Join(root, "cpuset", Cgroup, name), nil, 0o600)).To(Succeed())
				}
			}
			for range 2 {
				g.Expect(makeCgroup(root)).To(Succeed())
			}
			for name, content := range test.want {
				g.Expect(os.ReadFile(filepath.Join(root, name))).To(BeEquivalentTo(content), name)
			}
			own, err := cgroupsNamed(root, Cgroup)
			g.Expect(err).NotTo(HaveOccurred())
			if unified {
				g.Expect(own).To(ConsistOf(filepath.Join(root, Cgroup)))
			} else {
				g.Expect(own).To(ConsistOf(filepath.Join(root, "cpuset", Cgroup), filepath.Join(root, "memory", Cgroup)))
			}
		})
	}
}

func TestCgroupOptions(t *testing.T) {
	for _, test := range []struct {
		name, mountInfo string
		want            []string
	}{
		{
			name:      "finds what systemd asked for",
			mountInfo: "24 1 0:22 / /proc rw - proc proc rw\n29 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n",
			want:      []string{"nsdelegate", "memory_recursiveprot"},
		},
		{
			name: "passes over a mount with blanks in its options, as of WSL2",
			mountInfo: "30 1 0:30 / /Docker/host rw,noatime - 9p C:\\134Program\\040Files rw,aname=drvfs;path=C:\\Program Files\\Docker;symlinkroot=/mnt/\n" +
				"29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
			want: []string{"nsdelegate"},
		},
		{name: "finds none without", mountInfo: "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"},
		{name: "leaves v1 alone", mountInfo: "29 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			if test.want == nil {
				g.Expect(cgroupOptions(test.mountInfo)).To(BeEmpty())
				return
			}
			g.Expect(cgroupOptions(test.mountInfo)).To(Equal(test.want))
		})
	}
}

func TestEnterCgroupMovesThisProcessThereAndBack(t *testing.T) {
	for _, test := range []struct {
		name, file, hierarchy string
		cgroups               []procfs.Cgroup
		former                string
	}{
		{"from its cgroup v2", "cgroup.controllers", ".", []procfs.Cgroup{{Path: "/user"}}, "user"},
		{"from its cgroup v1", "cpuacct/cgroup.procs", "cpuacct", []procfs.Cgroup{{Controllers: []string{"memory"}, Path: "/other"}, {Controllers: []string{"cpu", "cpuacct"}, Path: "/user"}}, "user"},
		{"from a container's root", "cgroup.controllers", ".", []procfs.Cgroup{{Path: "/docker/0123"}}, "."},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			root := t.TempDir()
			hierarchy := filepath.Join(root, test.hierarchy)
			g.Expect(os.MkdirAll(filepath.Join(hierarchy, "user"), 0o700)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(root, test.file), nil, 0o600)).To(Succeed())
			pods, own, back, err := enterCgroup(root, test.cgroups)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pods).To(Equal(filepath.Join(hierarchy, "provider-local")))
			g.Expect(own).To(Equal(filepath.Join(hierarchy, "provider-local-programs")))
			g.Expect(os.ReadFile(filepath.Join(own, "cgroup.procs"))).To(BeEquivalentTo("0"))
			g.Expect(back()).To(Succeed())
			g.Expect(os.ReadFile(filepath.Join(hierarchy, test.former, "cgroup.procs"))).To(BeEquivalentTo("0"))
		})
	}
}

func TestProcessesOfContainersInACgroupHaveNoPID(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte("0\n17\n"), 0o600)).To(Succeed())
	g.Expect(pidsBelow([]string{root}, 1)).To(Equal([]int{17}), "a signal to 0 would reach this process")
	g.Expect(pidsBelow([]string{root}, 0)).To(Equal([]int{0, 17}))
}

func TestWhatIsFrozenIsThawed(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	below := filepath.Join(root, "kubepods", "pod")
	g.Expect(os.MkdirAll(below, 0o700)).To(Succeed())
	for _, folder := range []string{root, below} {
		g.Expect(os.WriteFile(filepath.Join(folder, "freezer.state"), []byte("FROZEN"), 0o600)).To(Succeed())
	}
	thaw([]string{root, filepath.Join(root, "gone")})
	for _, folder := range []string{root, below} {
		g.Expect(os.ReadFile(filepath.Join(folder, "freezer.state"))).To(HavePrefix("THAWED"))
	}
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/usage"
)

const uid = "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"

// proc is a process to be found below a folder that looks like /proc.
type proc struct {
	pid          int
	command      string
	args         []string
	cgroup       string
	pss          int // KiB; 0: the kernel doesn't tell
	rssPages     int
	ticks, start int
	system       int // ticks, as children
	children     int
}

func write(t *testing.T, root string, processes ...proc) {
	t.Helper()
	g := NewWithT(t)
	for _, p := range processes {
		dir := filepath.Join(root, strconv.Itoa(p.pid))
		g.Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
		// The fields after the state, of which utime, stime, cutime, starttime and rss are the 11th, 12th, 13th, 19th and 21st.
		fields := strings.Fields(strings.Repeat("0 ", 49))
		fields[10], fields[18], fields[20] = strconv.Itoa(p.ticks), strconv.Itoa(p.start), strconv.Itoa(p.rssPages)
		fields[11], fields[12] = strconv.Itoa(p.system), strconv.Itoa(p.children)
		files := map[string]string{
			"stat":    fmt.Sprintf("%d (%s) S %s\n", p.pid, p.command, strings.Join(fields, " ")),
			"cmdline": strings.Join(p.args, "\x00") + "\x00",
			"cgroup":  p.cgroup + "\n",
		}
		if p.pss > 0 {
			files["smaps_rollup"] = fmt.Sprintf("55d0-7ffc ---p 00000000 00:00 0    [rollup]\nRss: 99999 kB\nPss: %d kB\n", p.pss)
		}
		for name, content := range files {
			g.Expect(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600)).To(Succeed())
		}
	}
}

func TestReadFindsProcessesOfPodsAndOfTheLandscape(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	const outside = "0::/user.slice"
	write(t, root,
		proc{pid: 10, command: "etcd", args: []string{"bin/etcd", "--data-dir=/clone/.landscape/etcd"}, cgroup: outside, pss: 100, ticks: 50},
		proc{pid: 11, command: "somebody's", args: []string{"vi", "/clone/README.md"}, cgroup: outside, pss: 100},
		proc{pid: 12, command: "other", args: []string{"x", "/clone/.landscape-of-old/x"}, cgroup: outside, pss: 100},
		proc{pid: 13, command: "k3s", cgroup: "4:memory:/kubepods/burstable/pod" + uid + "/0123", pss: 100},
		proc{pid: 20, command: "gardenlet", cgroup: "4:memory:/provider-local/kubepods/burstable/pod" + uid + "/0123", pss: 30},
		proc{pid: 21, command: "nested (pod)", cgroup: "4:memory:/provider-local/kubepods/pod" + uid + "/0123/kubepods/podffffffff-0a1b-0a1b-0a1b-0a1b2c3d4e5f/1", pss: 5},
		proc{pid: 22, command: "systemd", cgroup: "0::/provider-local/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-0123.scope", rssPages: 2},
	)
	found, err := usage.Read(root, "/clone/.landscape")
	g.Expect(err).NotTo(HaveOccurred())
	got := map[int]string{}
	for _, p := range found {
		got[p.PID] = fmt.Sprintf("%s %q %d %s", p.Command, p.Pod, p.Memory/1024, p.CPU)
	}
	page := os.Getpagesize() / 1024
	g.Expect(got).To(Equal(map[int]string{
		10: `etcd "" 100 500ms`,
		20: `gardenlet "` + uid + `" 30 0s`,
		21: `nested (pod) "` + uid + `" 5 0s`,
		22: fmt.Sprintf(`systemd %q %d 0s`, uid, 2*page),
	}))
	g.Expect(usage.Memory(found)).To(BeEquivalentTo((135 + 2*page) * 1024))
}

func TestReadSaysWhatItCannotRead(t *testing.T) {
	_, err := usage.Read(filepath.Join(t.TempDir(), "none"), "/clone/.landscape")
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("none")))
}

func TestGroups(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	pod := "4:memory:/provider-local/kubepods/pod" + uid + "/0123"
	read := func(processes ...proc) []usage.Process {
		write(t, root, processes...)
		found, err := usage.Read(root, "/clone/.landscape")
		g.Expect(err).NotTo(HaveOccurred())
		return found
	}
	before := read(
		proc{pid: 1, command: "a", cgroup: pod, pss: 1, ticks: 1000, start: 7},
		proc{pid: 2, command: "b", cgroup: pod, pss: 1, ticks: 1000, start: 7},
		proc{pid: 3, command: "gone", cgroup: pod, pss: 1, ticks: 1000, start: 7},
	)
	g.Expect(os.RemoveAll(filepath.Join(root, "3"))).To(Succeed())
	after := read(
		proc{pid: 1, command: "a", cgroup: pod, pss: 4, ticks: 1100, start: 7},
		proc{pid: 2, command: "b", cgroup: pod, pss: 2, ticks: 50, start: 9}, // another one with that PID
		proc{pid: 4, command: "b", cgroup: pod, pss: 3, ticks: 50, start: 9},
	)
	groups := usage.Groups(before, after, 2*time.Second, func(p usage.Process) string { return p.Command })
	g.Expect(groups).To(Equal([]usage.Group{
		{Name: "b", Memory: 5 * 1024, Cores: 0.5},
		{Name: "a", Memory: 4 * 1024, Cores: 0.5},
	}))
}

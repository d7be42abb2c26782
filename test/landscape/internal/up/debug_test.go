// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestInstanceProcess(t *testing.T) {
	g := NewWithT(t)
	source, built := t.TempDir(), t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(source, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600)).To(Succeed())
	for name, flags := range map[string]string{"debug": "", "usual": "-s -w"} {
		// #nosec G204 -- Go.
		out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags", flags, "-o", filepath.Join(built, name), filepath.Join(source, "main.go")).CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
	}
	type process struct {
		arguments, exe string
		started        int
	}
	const config = " --config=/etc/provider-local/config.yaml"
	for _, test := range []struct {
		name      string
		processes []process
		want      int
	}{
		{name: "the instance, not its sidecars and others", want: 2, processes: []process{
			{arguments: "/gardenlet-extension machine-controller", exe: "debug", started: 9}, {arguments: "/gardenlet-extension" + config, exe: "debug", started: 5},
			{arguments: "/operator-extension" + config, exe: "debug", started: 9}, {arguments: "sh", exe: "debug", started: 9},
		}},
		{name: "the youngest", want: 2, processes: []process{
			{arguments: "/gardenlet-extension" + config, exe: "debug", started: 5}, {arguments: "/gardenlet-extension" + config, exe: "debug", started: 7},
			{arguments: "/gardenlet-extension" + config, exe: "debug", started: 6},
		}},
		{name: "none without symbols", processes: []process{{arguments: "/gardenlet-extension" + config, exe: "usual", started: 5}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			proc := t.TempDir()
			for i, p := range test.processes {
				folder := filepath.Join(proc, strconv.Itoa(i+1))
				g.Expect(os.Mkdir(folder, 0o700)).To(Succeed())
				g.Expect(os.WriteFile(filepath.Join(folder, "cmdline"), []byte(strings.ReplaceAll(p.arguments, " ", "\x00")+"\x00"), 0o600)).To(Succeed())
				stat := fmt.Sprintf("%d (x) S%s %d%s\n", i+1, strings.Repeat(" 0", 18), p.started, strings.Repeat(" 0", 30))
				g.Expect(os.WriteFile(filepath.Join(folder, "stat"), []byte(stat), 0o600)).To(Succeed())
				g.Expect(os.Symlink(filepath.Join(built, p.exe), filepath.Join(folder, "exe"))).To(Succeed())
			}
			pid, err := instanceProcess(proc, "gardenlet-extension")
			if test.want == 0 {
				g.Expect(err).To(MatchError(ContainSubstring("no process of it was built for a debugger")))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pid).To(Equal(test.want))
		})
	}
}

func TestDebugNeedsAnInstance(t *testing.T) {
	g := NewWithT(t)
	l, _ := newDev(t)
	l.Layout.Kind = ""
	if os.Geteuid() != 0 {
		g.Expect(l.Debug(t.Context(), "seed")).To(MatchError(ContainSubstring("needs root")))
		return
	}
	g.Expect(l.Debug(t.Context(), "seed")).To(MatchError("there is no instance of the seed yet; run make up first"))
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
)

func TestTheLandscapeOfAnotherCloneIsFoundOnTheMachinesOwnNetworkOnly(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make a network namespace")
	}
	for name, tt := range map[string]struct {
		command []string
		found   bool
	}{
		"its kubelet":                         {nil, true},
		"a program of that name in container": {[]string{"unshare", "--net"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			sleep, err := exec.LookPath("sleep")
			g.Expect(err).NotTo(HaveOccurred())
			program, err := os.ReadFile(sleep)
			g.Expect(err).NotTo(HaveOccurred())
			clone := t.TempDir()
			kubelet := filepath.Join(clone, "bin", "landscape", "kubelet")
			g.Expect(os.MkdirAll(filepath.Dir(kubelet), 0o700)).To(Succeed())
			g.Expect(os.WriteFile(kubelet, program, 0o700)).To(Succeed()) // #nosec G306 -- it is a program

			// A landscape may run while this is tested.
			present := processIDs(g)
			command := slices.Concat(tt.command, []string{kubelet, "60"})
			cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
			g.Expect(cmd.Start()).To(Succeed())
			defer func() {
				g.Expect(cmd.Process.Kill()).To(Succeed())
				_ = cmd.Wait()
			}()
			g.Eventually(func() (string, error) {
				return os.Readlink(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "exe"))
			}).Should(Equal(kubelet), "it runs")

			if tt.found {
				g.Expect(OtherLandscape(present)).To(Equal(clone))
			} else {
				g.Expect(OtherLandscape(present)).NotTo(Equal(clone))
			}
			g.Expect(OtherLandscape(append(present, cmd.Process.Pid))).NotTo(Equal(clone), "it is one's own")
		})
	}
}

func processIDs(g *WithT) []int {
	folders, err := filepath.Glob("/proc/[0-9]*")
	g.Expect(err).NotTo(HaveOccurred())
	var all []int
	for _, folder := range folders {
		id, err := strconv.Atoi(filepath.Base(folder))
		g.Expect(err).NotTo(HaveOccurred())
		all = append(all, id)
	}
	return all
}

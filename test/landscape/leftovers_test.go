// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build landscape

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/host"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/up"
)

// ownProgram builds the program, as it starts copies of itself. It returns the landscape, which is taken down in the end, and what runs a
// program and returns what it prints; the test fails where there is a landscape.
func ownProgram(t *testing.T) (landscape up.Landscape, program string, run func(name string, args ...string) string) {
	t.Helper()
	g := NewWithT(t)
	landscape, err := open("", "down")
	g.Expect(err).NotTo(HaveOccurred())
	if _, err := os.Stat(landscape.Layout.State()); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("there is a landscape, which this test would take down: run make down first")
	}
	run = func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		t.Logf("%s", out)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return string(out)
	}
	program = filepath.Join(t.TempDir(), "landscape")
	run("go", "build", "-trimpath", "-o", program, ".")
	t.Cleanup(func() {
		out, err := exec.Command(program, "down").CombinedOutput() // #nosec G204 -- built above.
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), string(out))
	})
	return landscape, program, run
}

// TestDownLeavesNothingBehind brings a node up and down again, and compares the machine before and after by itself, in
// addition to the comparison that down makes. It needs root and a machine without a landscape:
//
//	go test -C test/landscape -tags landscape -run TestDownLeavesNothingBehind -v .
func TestDownLeavesNothingBehind(t *testing.T) {
	g := NewWithT(t)
	landscape, program, run := ownProgram(t)
	state := landscape.Layout.State()
	before, err := host.Take(t.Context(), state)
	g.Expect(err).NotTo(HaveOccurred())

	run(program, "up", "--until", "dns")
	during, err := host.Take(t.Context(), state)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(host.Compare(before, during, state)).NotTo(BeEmpty(), "otherwise the comparison proves nothing")

	run(program, "down")
	after, err := host.Take(t.Context(), state)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(host.Compare(before, after, state)).To(BeEmpty())
	g.Expect(state).NotTo(BeADirectory())
}

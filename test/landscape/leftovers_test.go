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
)

// TestDownLeavesNothingBehind brings a node up and down again, and compares the machine before and after by itself, in
// addition to the comparison that down makes. It needs root and a machine without a landscape:
//
//	go test -C test/landscape -tags landscape -run TestDownLeavesNothingBehind -v .
func TestDownLeavesNothingBehind(t *testing.T) {
	g := NewWithT(t)
	landscape, err := open("", false)
	g.Expect(err).NotTo(HaveOccurred())
	state := landscape.Layout.State()
	if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
		t.Skip("there is a landscape, which this test would take down")
	}
	before, err := host.Take(t.Context(), state)
	g.Expect(err).NotTo(HaveOccurred())

	// The program itself, as it starts copies of itself.
	program := filepath.Join(t.TempDir(), "landscape")
	run := func(name string, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		t.Logf("%s", out)
		g.Expect(err).NotTo(HaveOccurred())
	}
	run("go", "build", "-o", program, ".")
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

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestAPageNamesNoFoldersOfTheMachine(t *testing.T) {
	g := NewWithT(t)
	g.Expect(withoutFolders([]string{"--programs", "/a", "--quick", "--out=/b", "--docs", "/c", "--n", "5"})).To(Equal([]string{"--quick", "--n", "5"}))
	g.Expect(withoutFolders([]string{"--docs"})).To(BeEmpty())
}

func TestAPageNamesTheMinorVersionOfTheKernel(t *testing.T) {
	g := NewWithT(t)
	for version, want := range map[string]string{"6.18.44-x": "6.18", "6.1": "6.1", "unknown": "unknown"} {
		g.Expect(minor(version)).To(Equal(want))
	}
}

func TestAPageSaysWhereItWasMeasuredAfterAnInterruption(t *testing.T) {
	g := NewWithT(t)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	out := t.TempDir()
	cmd := newCommand()
	cmd.SetArgs([]string{"--scenario", "pull", "--out", out, "--docs", out})
	cmd.SetOut(io.Discard)
	cmd.SetErr(t.Output())
	g.Expect(cmd.ExecuteContext(ctx)).To(MatchError(context.Canceled), "what is missing is not passed over")
	g.Expect(filepath.Join(out, "result.json")).To(BeAnExistingFile())
	page, err := os.ReadFile(filepath.Join(out, "README.md"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(page)).To(MatchRegexp(`Linux \d+\.\d+\n`))
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package docs_test runs the commands of the documents as they stand: all blocks whose fence says `sh test=test/e2e/docs`, one
// shell for each, from the folder in which somebody who reads them is. They run against a landscape that is up (`make up`),
// with KUBECONFIG naming its runtime cluster. The label is "docs", and the name of a document is another one.
package docs_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

const (
	root = "../../.."
	// fence opens a block that is run, and cleanup one that is run even if a block before it failed.
	fence   = "```sh test=test/e2e/docs"
	cleanup = fence + " cleanup"
	// patience is for a block that waits until a Shoot is there or gone.
	patience = 20 * time.Minute
)

func TestDocs(t *testing.T) {
	RegisterFailHandler(Fail)
	suite, reporter := GinkgoConfiguration()
	suite.Timeout = max(suite.Timeout, 2*time.Hour)
	RunSpecs(t, "The commands of the documents", suite, reporter, Label("docs"))
}

// block is a block of commands.
type block struct {
	line    int
	script  string
	cleanup bool
}

var _ = Describe("What a reader does", Serial, func() {
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*", "*.md"))
	if err != nil {
		panic(err) // The tree of specs is still built: there is nothing else to tell it by.
	}
	for _, document := range documents {
		content, err := os.ReadFile(document) // #nosec G304 -- of the repository
		if err != nil {
			panic(err)
		}
		blocks := blocksOf(string(content))
		if len(blocks) == 0 {
			continue
		}
		Describe("by "+filepath.Base(document), Ordered, Label(strings.TrimSuffix(filepath.Base(document), ".md")), func() {
			var ran []int
			for _, b := range blocks {
				It(fmt.Sprintf("runs the commands of line %d", b.line), NodeTimeout(patience), func(ctx SpecContext) {
					ran = append(ran, b.line)
					run(ctx, b.script)
				})
				if b.cleanup {
					AfterAll(func(ctx SpecContext) {
						if len(ran) > 0 && !slices.Contains(ran, b.line) {
							run(ctx, b.script)
						}
					}, NodeTimeout(patience))
				}
			}
		})
	}
})

// blocksOf returns the blocks of a document that are run.
func blocksOf(content string) []block {
	var (
		blocks []block
		open   bool
	)
	for i, line := range strings.Split(content, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case !open && strings.HasPrefix(line, fence):
			blocks, open = append(blocks, block{line: i + 1, cleanup: strings.HasPrefix(line, cleanup)}), true
		case open && strings.HasPrefix(line, "```"):
			open = false
		case open:
			blocks[len(blocks)-1].script += line + "\n"
		}
	}
	return blocks
}

// run runs commands, for the landscape's network, and shows what they print.
func run(ctx context.Context, script string) {
	GinkgoHelper()
	var output bytes.Buffer
	shell := exec.CommandContext(ctx, "bash", "-xeuo", "pipefail", "-c", landscape.CurrentNetwork().Translate(script)) // #nosec G204 -- It is what the documents say.
	shell.Dir = landscape.State("..")
	shell.Stdout, shell.Stderr = &output, &output
	// What a shell started ends with it.
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	err := shell.Run()
	AddReportEntry("printed", output.String(), ReportEntryVisibilityAlways)
	Expect(err).NotTo(HaveOccurred(), "%s", output.String())
}

func TestBlocks(t *testing.T) {
	g := NewWithT(t)
	g.Expect(blocksOf("text\n```sh\nnot this\n```\n   " + fence + "\n   one\n   two\n   ```\n" + cleanup + "\nthree\n```\n")).To(Equal([]block{
		{line: 5, script: "one\ntwo\n"}, {line: 9, script: "three\n", cleanup: true},
	}))
}

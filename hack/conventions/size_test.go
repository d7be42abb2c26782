// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package conventions_test

import (
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// TestCodeDoesNotGrowUnnoticed counts lines of Go with code: no tests, nothing generated, no comments and blank lines. If a folder
// needs more for good reason, raise its number in the same commit; if one has become smaller, lower it.
func TestCodeDoesNotGrowUnnoticed(t *testing.T) {
	for folder, limit := range map[string]int{
		"pkg": 21_650, "gardenlet-extension": 650, "operator-extension": 180, "test/landscape": 15_780, "skaffold/publish": 1_180,
	} {
		t.Run(folder, func(t *testing.T) {
			g := NewWithT(t)
			lines := 0
			for _, name := range files(t) {
				if strings.HasPrefix(name, folder+"/") && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "zz_generated") {
					data, err := os.ReadFile(filepath.Join(root, name))
					g.Expect(err).NotTo(HaveOccurred())
					lines += codeLines(data)
				}
			}
			t.Logf("%d lines of code", lines)
			g.Expect(lines).To(And(BeNumerically("<=", limit), BeNumerically(">", limit*95/100)), "lines of code in %s", folder)
		})
	}
}

// codeLines counts the lines that have more than comments and white space.
func codeLines(source []byte) int {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(source))
	s.Init(file, source, nil, 0)
	lines := map[int]struct{}{}
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue
		}
		first := file.Line(pos)
		for i := range strings.Count(text, "\n") + 1 {
			lines[first+i] = struct{}{}
		}
	}
}

func TestCodeLines(t *testing.T) {
	g := NewWithT(t)
	g.Expect(codeLines([]byte("// Package p is one.\npackage p\n\n/* a\nb */\nconst c = `x\n\ny` // z\n"))).To(Equal(4))
}

// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func TestAFileIsWrittenInOnePiece(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "file")
	g.Expect(layout.WriteFile(path, []byte("first, which is longer"), 0o640)).To(Succeed())
	before, err := os.Open(path)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(before.Close()).To(Succeed()) }()

	g.Expect(layout.WriteFile(path, []byte("second"), 0o640)).To(Succeed())
	g.Expect(os.ReadFile(path)).To(BeEquivalentTo("second"))
	info, err := os.Stat(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode()).To(Equal(os.FileMode(0o640)))
	old := make([]byte, 64)
	n, err := before.Read(old)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(old[:n])).To(Equal("first, which is longer"), "a reader keeps what it has opened")

	// What cannot be written leaves what is there.
	g.Expect(os.Mkdir(path+".new", 0o700)).To(Succeed())
	g.Expect(layout.WriteFile(path, []byte("third"), 0o640)).NotTo(Succeed())
	g.Expect(os.ReadFile(path)).To(BeEquivalentTo("second"))
	g.Expect(layout.WriteFile(filepath.Join(path, "below"), nil, 0o640)).NotTo(Succeed())
}

func TestAValueIsReadAsItWasWritten(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "file.json")
	var read map[string]int
	g.Expect(layout.ReadJSON(path, &read)).To(MatchError(os.ErrNotExist))
	g.Expect(layout.WriteJSON(path, map[string]int{"a": 1}, 0o640)).To(Succeed())
	g.Expect(layout.ReadJSON(path, &read)).To(Succeed())
	g.Expect(read).To(Equal(map[string]int{"a": 1}))
	g.Expect(os.ReadFile(path)).To(BeEquivalentTo("{\n \"a\": 1\n}\n"))

	g.Expect(os.WriteFile(path, []byte("{"), 0o600)).To(Succeed())
	g.Expect(layout.ReadJSON(path, &read)).To(MatchError(ContainSubstring("reading " + path)))
	g.Expect(layout.WriteJSON(filepath.Join(path, "below"), 1, 0o640)).To(MatchError(ContainSubstring("writing " + path)))
}

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

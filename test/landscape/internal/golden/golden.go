// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package golden compares what the landscape renders with files under testdata, for the tests of this module. Go's flag
// -update, given to the tests, writes them anew.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Check compares content with testdata/NAME.
func Check(t *testing.T, name string, content []byte) {
	t.Helper()
	g := NewWithT(t)
	path := filepath.Join("testdata", name)
	if *update {
		g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed()) // #nosec G301 -- part of the repository.
		g.Expect(os.WriteFile(path, content, 0o644)).To(Succeed())     // #nosec G306 -- part of the repository.
	}
	want, err := os.ReadFile(path) // #nosec G304 -- a test's own file.
	g.Expect(err).NotTo(HaveOccurred(), "run the test with -update to write it")
	g.Expect(string(content)).To(Equal(string(want)), "run the test with -update if the change is meant")
}

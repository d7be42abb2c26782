// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestReadCRDsReadsWhatMatches(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	definition := func(name string) string {
		return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: " + name + "\n"
	}
	for name, content := range map[string]string{
		"operator/crd-a.yaml": definition("a.test"),
		"operator/crd-b.yaml": definition("b1.test") + "---\n" + definition("b2.test"),
		"operator/other.yaml": definition("other.test"),
		"operator/doc.go":     "package operator\n",
	} {
		path := filepath.Join(folder, filepath.FromSlash(name))
		g.Expect(os.MkdirAll(filepath.Dir(path), 0o750)).To(Succeed())
		g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	}

	objects, err := readCRDs([]string{filepath.Join(folder, "operator", "crd-*.yaml")}, false)
	g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, object := range objects {
		names = append(names, object.GetName())
	}
	g.Expect(names).To(Equal([]string{"a.test", "b1.test", "b2.test"}))
}

func TestReadCRDsNamesWhatIsMissingUnlessItMayBe(t *testing.T) {
	g := NewWithT(t)
	patterns := []string{filepath.Join(t.TempDir(), "gone", "crd-*.yaml")}
	_, err := readCRDs(patterns, false)
	g.Expect(err).To(MatchError(ContainSubstring("no file matches " + patterns[0])))
	g.Expect(readCRDs(patterns, true)).To(BeEmpty())
}

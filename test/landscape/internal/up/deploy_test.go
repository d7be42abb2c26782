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

func TestReadCRDsReadsWhatIsEmbedded(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	definition := func(name string) string {
		return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: " + name + "\n"
	}
	for name, content := range map[string]string{
		"operator/crd.go": "package operator\n\nimport _ \"embed\"\n\n" +
			"//go:embed templates/a.yaml\nvar a string\n\n//go:embed templates/b*.yaml\nvar b string\n\n//go:embed templates/other.yaml\nvar other string\n\n" +
			"//go:embed chart\nvar chart string\n\n//go:embed script.lua\nvar script string\n",
		"operator/crd_test.go":                   "package operator\n\nimport _ \"embed\"\n\n//go:embed templates/unused.yaml\nvar unused string\n",
		"operator/templates/a.yaml":              definition("a.test"),
		"operator/templates/b1.yaml":             definition("b1.test") + "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: x\n",
		"operator/templates/b2_without_cel.yaml": definition("b2.test"),
		"operator/templates/other.yaml":          "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: y\n",
		"operator/templates/unused.yaml":         definition("unused.test"),
		"operator/chart/crd.yaml":                definition("chart.test"),
		"operator/script.lua":                    "",
	} {
		path := filepath.Join(folder, filepath.FromSlash(name))
		g.Expect(os.MkdirAll(filepath.Dir(path), 0o750)).To(Succeed())
		g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	}

	objects, err := readCRDs([]string{folder})
	g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, object := range objects {
		names = append(names, object.GetName())
	}
	g.Expect(names).To(ConsistOf("a.test", "b1.test"))
}

func TestReadCRDsNamesAFolderThatIsNotThere(t *testing.T) {
	_, err := readCRDs([]string{filepath.Join(t.TempDir(), "gone")})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("gone")))
}
